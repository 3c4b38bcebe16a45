"""The write-up: prose from ``template.tex``, everything else generated and marked as such."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from papers import claims
from papers.forner2026.writeup import check_table, tabular
from papers.musat2025.figures import FIGURES
from papers.source import Source
from theory import cli, latex
from theory import induction_heads as ih
from theory.induction_heads import emergence
from verify.induction_heads import gradients, laws

HERE = Path(__file__).parent
SIZES = (1, 2, 4, 16, 64, 1024, 10**4, 10**6)


def numbers() -> str:
    """Emergence times over N."""
    rows = []
    for N in SIZES:
        found = emergence.times(N)
        rows.append((f"{N}", *(f"{v:.10g}" if v < float("inf") else "never" for v in found.values())))
    return tabular(("N", "T_gamma", "T_beta", "T_alpha", "T_drop"), rows, "rrrrr")


def generate(source: Source) -> str:
    """Whole document."""
    ledger = claims.load(HERE / "claims.toml")
    preamble = latex.PREAMBLE.replace("\\usepackage{amsmath", "\\usepackage{longtable}\n\\usepackage{amsmath")
    make: dict[str, Callable[[str], str]] = {
        "preamble": lambda _: preamble,
        "numbers": lambda _: numbers(),
        "equations": lambda name: "\n".join(latex.display(e) for e in ih.sections()[name]),
        "flow": lambda _: f"\\begin{{equation}}\n{ih.flow().latex()}\n\\end{{equation}}",
        "figure": lambda name: (f"\\begin{{center}}\\fitpicture{{figure_{name}.png}}\\\\\n"
                                f"{latex.escape(FIGURES[name].caption)}\\end{{center}}"),
        "gradients": lambda _: check_table(gradients.checks()),
        "laws": lambda _: check_table([*laws.constants(), *laws.exponents()[0]]),
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
    if shutil.which("pdflatex"):
        for _ in range(2):  # longtable needs a second pass
            done = subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", tex.name], cwd=out,
                                  capture_output=True, text=True, check=False)  # fmt: skip
        if done.returncode:
            raise OSError(f"{tex}: pdflatex failed: {done.stdout[-600:]}")
        for rest in (".aux", ".log"):
            tex.with_suffix(rest).unlink(missing_ok=True)
        written.append(tex.with_suffix(".pdf"))
    return written
