"""Write-ups: a paper's ``template.tex`` with prose, everything else generated and marked as
such.
"""

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from papers import claims, evidence
from papers.source import Source
from theory import Equation, latex
from theory.runtime import output, progress
from verify.check import Check
from verify.check_table import percent

PREAMBLE = latex.PREAMBLE
Makers = Mapping[str, Callable[[str], str]]


def tabular(header: Sequence[str], rows: Sequence[Sequence[str]], columns: str) -> str:
    """Longtable of plain text cells."""
    lines = [" & ".join(f"\\textbf{{{latex.escape(c)}}}" for c in header) + r" \\ \hline \endhead"]
    lines += [" & ".join(latex.escape(c) for c in row) + r" \\" for row in rows]
    body = "\n".join(lines)
    return f"{{\\small\n\\begin{{longtable}}{{{columns}}}\n{body}\n\\end{{longtable}}}}"


def check_table(checks: Sequence[Check]) -> str:
    """Checks as a table."""
    rows = [
        (
            c.name,
            f"{c.predicted:.5g}",
            f"{c.measured:.5g}",
            percent(c.deviation),
            f"{c.error:.1f}" if c.statistic == "z" else "",
            c.verdict,
        )
        for c in checks
    ]
    return tabular(("check", "predicted", "measured", "off", "z", "verdict"), rows, "p{62mm}rrrrl")


def claims_table(folder: Path) -> str:
    """Ledger of a paper's folder as a table."""
    results = evidence.found(evidence.read(folder / "evidence.json"))
    ledger = claims.load(folder / "claims.toml")
    rows = [(c.id, claims.computed(c, results), c.says, c.note) for c in ledger]
    return tabular(("where", "verdict", "says", "note"), rows, "p{28mm}p{18mm}p{58mm}p{52mm}")


def picture(name: str, caption: str) -> str:
    """A figure of `write_all` with its caption."""
    return f"\\begin{{center}}\\fitpicture{{figure_{name}.png}}\\\\\n{latex.escape(caption)}\\end{{center}}"


def makers(
    folder: Path, figures: Mapping[str, Any], sections: Callable[[], dict[str, list[Equation]]]
) -> dict[str, Callable[[str], str]]:
    """Generators available to every template: preamble, equations SECTION, figure NAME, claims."""
    return {
        "preamble": lambda _: PREAMBLE,
        "equations": lambda name: "\n".join(latex.display(e) for e in sections()[name]),
        "figure": lambda name: picture(name, figures[name].caption),
        "claims": lambda _: claims_table(folder),
    }


def fill(folder: Path, make: Makers) -> str:
    """Fill the folder's ``template.tex``: lines ``%! KIND REST`` are replaced by the output of the
    generator KIND.
    """
    lines = []
    for line in (folder / "template.tex").read_text().splitlines():
        if line.startswith("%!"):
            kind, _, words = line[2:].partition(" ")
            lines += [
                f"% begin generated: {line[2:]}",
                make[kind](words),
                f"% end generated: {line[2:]}",
            ]
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def write_all(
    source: Source, out: Path, figures: Mapping[str, Any], text: Callable[[], str]
) -> list[Path]:
    """All figures, the write-up, and its PDF where a TeX engine is installed.

    Raises
    ------
    OSError
        If the engine stops.
    """
    written = [
        figure.write(source, out)
        for figure in progress.each(figures.values(), "figures", lambda figure: figure.name)
    ]
    progress.stage("write-up")
    tex = out / "writeup.tex"
    with output.atomic(tex) as temporary:
        temporary.write_text(text())
    written.append(tex)
    source.made(tex)
    if not shutil.which("pdflatex"):
        return written
    for _ in range(2):  # longtable needs two passes
        done = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", tex.name],
            cwd=out,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise OSError(f"{tex}: pdflatex failed: {done.stdout[-600:]}")
    for suffix in (".aux", ".log"):
        tex.with_suffix(suffix).unlink(missing_ok=True)
    source.made(tex.with_suffix(".pdf"))
    return [*written, tex.with_suffix(".pdf")]
