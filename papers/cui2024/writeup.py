"""The write-up: prose from ``template.tex``, everything else generated and marked as such."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from papers import claims
from papers.cui2024.figures import FIGURES, SETTINGS
from papers.forner2026.writeup import check_table, tabular
from papers.source import Source
from theory import cli, latex
from theory import positional_semantic as ps
from theory.positional_semantic.thresholds import line
from verify.positional_semantic import gradients

HERE = Path(__file__).parent


def thresholds(source: Source) -> str:
    """Thresholds over omega for both selections."""
    setting = SETTINGS[source.scale]
    omegas = [w for w in sorted(setting.lines, reverse=True) if round(10 * w, 6) % 1 == 0]
    found = {k: line(setting.p.replace(prox=k, order=setting.theory_order), omegas) for k in ("global", "local")}
    rows = [[f"{w:g}", *(f"{getattr(found[k][i], name):.4f}" for name in ("alpha_c", "alpha_l") for k in found)]
            for i, w in reversed(list(enumerate(omegas)))]  # fmt: skip
    header = ("omega", "alpha_c, global", "alpha_c, local", "alpha_l, global", "alpha_l, local")
    return tabular(header, rows, "lllll")


def generate(source: Source) -> str:
    """Whole document."""
    ledger = claims.load(HERE / "claims.toml")
    preamble = latex.PREAMBLE.replace("\\usepackage{amsmath", "\\usepackage{longtable}\n\\usepackage{amsmath")
    make: dict[str, Callable[[str], str]] = {
        "preamble": lambda _: preamble,
        "equations": lambda name: "\n".join(latex.display(e) for e in ps.sections()[name]),
        "figure": lambda name: (f"\\begin{{center}}\\fitpicture{{figure_{name}.png}}\\\\\n"
                                f"{latex.escape(FIGURES[name].caption)}\\end{{center}}"),
        "thresholds": lambda _: thresholds(source),
        "gradients": lambda _: check_table(gradients.checks()),
        "claims": lambda _: tabular(("where", "verdict", "says", "note"), [(c.id, c.verdict, c.says, c.note) for c in ledger],
                                    "p{28mm}p{18mm}p{58mm}p{52mm}"),
    }  # fmt: skip
    lines = []
    for text in (HERE / "template.tex").read_text().splitlines():
        if text.startswith("%!"):
            kind, _, rest = text[2:].partition(" ")
            lines += [f"% begin generated: {text[2:]}", make[kind](rest), f"% end generated: {text[2:]}"]
        else:
            lines.append(text)
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
