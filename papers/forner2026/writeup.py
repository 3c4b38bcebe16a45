"""The write-up: prose from ``template.tex``, everything else generated and marked as such."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from papers import claims
from papers.forner2026.figures import FIGURES, students
from papers.source import Source
from theory import cli, latex
from theory import state_tracking as st
from theory.state_tracking import onset
from verify.check import Check
from verify.state_tracking import gradients, trajectories

HERE = Path(__file__).parent


def tabular(header: Sequence[str], rows: Sequence[Sequence[str]], columns: str) -> str:
    """Longtable of plain text cells."""
    lines = [" & ".join(f"\\textbf{{{latex.escape(c)}}}" for c in header) + r" \\ \hline \endhead"]
    lines += [" & ".join(latex.escape(c) for c in row) + r" \\" for row in rows]
    body = "\n".join(lines)
    return f"{{\\small\n\\begin{{longtable}}{{{columns}}}\n{body}\n\\end{{longtable}}}}"


def check_table(checks: list[Check]) -> str:
    """Checks as a table."""
    rows = [
        (c.name, f"{c.predicted:.5g}", f"{c.measured:.5g}", f"{c.error:.1e}", f"{c.tolerance:.2g}", c.verdict)
        for c in checks
    ]
    return tabular(("check", "predicted", "measured", "error", "tolerance", "verdict"), rows, "p{62mm}rrrrl")


def numbers(source: Source) -> str:
    """Settings and the constants that follow from them."""
    rows = []
    for table in ("table_1", "table_2"):
        p = students(source, table)[0]
        found = onset.onset(p).numbers
        rows.append((table.replace("_", " "), f"N = {p.N}, d_g = {p.d_g}, L = {p.L}, d_h = {p.d_h}, eta = {p.eta:g}, n = {p.n_train}",
                     f"{found['c_omega']:.8g}", f"{found['T_alpha']:.5g}", f"{found['alpha_half']:.8g}",
                     f"{st.initial_variance(p):.4f}"))  # fmt: skip
    header = ("setting", "sizes", "c_omega", "onset time scale", "time of A = 1/2", "initial logit variance")
    return tabular(header, rows, "lp{52mm}rp{20mm}p{22mm}p{20mm}")


def generate(source: Source) -> str:
    """Whole document."""
    p, runs = students(source, "table_1")
    comparison, more, notes = trajectories.verify(p, runs)
    ledger = claims.load(HERE / "claims.toml")
    preamble = latex.PREAMBLE.replace("\\usepackage{amsmath", "\\usepackage{longtable}\n\\usepackage{amsmath")
    make: dict[str, Callable[[str], str]] = {
        "preamble": lambda _: preamble,
        "numbers": lambda _: numbers(source),
        "equations": lambda name: "\n".join(latex.display(e) for e in st.sections()[name]),
        "flow": lambda _: f"\\begin{{equation}}\n{st.flow().latex()}\n\\end{{equation}}",
        "figure": lambda name: (f"\\begin{{center}}\\fitpicture{{figure_{name}.png}}\\\\\n"
                                f"{latex.escape(FIGURES[name].caption)}\\end{{center}}"),
        "comparison": lambda _: check_table([*comparison.checks, *more]) + "\n" + r"\par ".join(
            latex.escape(n) for n in notes if n),
        "gradients": lambda _: check_table(gradients.checks()),
        "claims": lambda _: tabular(("where", "verdict", "says", "note"), [(c.id, c.verdict, c.says, c.note) for c in ledger],
                                    "p{28mm}p{18mm}p{58mm}p{52mm}"),
    }  # fmt: skip
    lines = []
    for line in (HERE / "template.tex").read_text().splitlines():
        if line.startswith("%!"):
            kind, _, rest = line[2:].partition(" ")
            lines += [f"% begin generated: {line[2:]}", make[kind](rest), f"% end generated: {line[2:]}"]
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def write_all(source: Source, out: Path) -> list[Path]:
    """All figures, the write-up, and its PDF where a TeX engine is installed."""
    written = [figure.write(source, out) for figure in FIGURES.values()]
    tex = out / "writeup.tex"
    with cli.atomic(tex) as temporary:
        temporary.write_text(generate(source))
    written.append(tex)
    return [*written, *compile_tex(tex)]


def compile_tex(tex: Path) -> list[Path]:
    """Typeset a document next to it, where a TeX engine is installed; the PDF, if any.

    Raises
    ------
    OSError
        If the engine stops.
    """
    if not shutil.which("pdflatex"):
        return []
    for _ in range(2):  # longtable needs a second pass
        done = subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", tex.name], cwd=tex.parent,
                              capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode:
        raise OSError(f"{tex}: pdflatex failed: {done.stdout[-600:]}")
    for rest in (".aux", ".log"):
        tex.with_suffix(rest).unlink(missing_ok=True)
    return [tex.with_suffix(".pdf")]
