"""Figures, the source of their students (settings per scale, trained once and kept in
the run store), and write-ups.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xarray as xr

from papers import claims, evidence
from theory import Equation
from theory.dynamics.flow import Flow
from theory.equations import titles
from theory.equations.titles import described
from theory.models import write_up
from theory.runtime import output, plotting, progress
from verify.checks.check import Check
from verify.checks.check_table import percent


@dataclass(frozen=True)
class Source:
    """Ensembles at one scale.

    Attributes
    ----------
    scale : {'shipped', 'small', 'paper'}
        Shipped ensembles, sizes for minutes on a CPU, or those of the paper.
    seeds : list of int
        Seeds of every ensemble.
    device : str or None
        Torch device.
    progress : bool
        Progress bars on stderr.
    made : callable
        ``made(path)`` is called for every file when it is written.
    asked : list
        Parameters and number of seeds of the ensembles used by the current figure.
    """

    scale: str
    seeds: list[int]
    device: str | None = None
    progress: bool = True
    made: Callable[[Path], None] = lambda path: None
    asked: list[tuple[Any, int]] = field(default_factory=list, compare=False)

    def few(self, most: int) -> list[int]:
        """Seeds of expensive ensembles: only the first ``most`` at the small scale."""
        return self.seeds[:most] if self.scale == "small" else self.seeds

    def used(self, p: Any, seeds: int) -> None:
        """Record an ensemble used by the current figure."""
        self.asked.append((p, seeds))

    def train(
        self,
        train: Callable[..., xr.Dataset],
        p: Any,
        seeds: Iterable[int] | None = None,
    ) -> xr.Dataset:
        """Train (or fetch) the ensemble of one setting."""
        seeds = self.seeds if seeds is None else list(seeds)
        self.used(p, len(seeds))
        return train(p, seeds=seeds, device=self.device, progress=self.progress)

    def train_on_cpu(
        self,
        train: Callable[..., xr.Dataset],
        p: Any,
        seeds: Iterable[int] | None = None,
    ) -> xr.Dataset:
        """Train (or fetch) an ensemble of small students, which run on the CPU only."""
        seeds = self.seeds if seeds is None else list(seeds)
        self.used(p, len(seeds))
        return train(p, seeds=seeds, progress=self.progress)


@dataclass(frozen=True)
class Figure:
    """One figure of a paper.

    Attributes
    ----------
    name : str
        Number in the paper, or a word for figures of our own.
    caption : str
        What is shown.
    draw : callable
        ``draw(source)`` trains what is missing and returns a matplotlib figure.
    result : str
        What is off, and by how much, at the default scale.
    """

    name: str
    caption: str
    draw: Callable[[Source], Any]
    result: str = ""

    def write(self, source: Source, out: Path) -> Path:
        """Draw and write, with all parameters of the ensembles and the place of the
        first panel in the file's metadata; return the file.
        """
        path = out / f"figure_{self.name}.png"
        source.asked.clear()
        figure = self.draw(source)
        if source.asked and not figure.get_suptitle():
            plotting.headline(figure, titles.title(source.asked))
        told = {"Description": described(source.asked)} if source.asked else {}
        told |= {
            "Title": self.caption,
            "Panel": output.to_json(plotting.first_panel(figure)),
        }
        with output.atomic(path) as temporary:
            figure.savefig(temporary, metadata=told)
        plotting.plt.close(figure)
        source.made(path)
        return path


# Write-ups

PREAMBLE = write_up.PREAMBLE
Makers = Mapping[str, Callable[[str], str]]


def tabular(header: Sequence[str], rows: Sequence[Sequence[str]], columns: str) -> str:
    """Longtable of plain text cells."""
    head = " & ".join(f"\\textbf{{{write_up.escape(cell)}}}" for cell in header)
    lines = [head + r" \\ \hline \endhead"]
    for row in rows:
        lines.append(" & ".join(map(write_up.escape, row)) + r" \\")
    body = "\n".join(lines)
    return f"{{\\small\n\\begin{{longtable}}{{{columns}}}\n{body}\n\\end{{longtable}}}}"


def flow(system: Flow) -> str:
    """Equations of a flow."""
    return f"\\begin{{equation}}\n{system.latex()}\n\\end{{equation}}"


def check_table(checks: Sequence[Check]) -> str:
    """Checks as a table."""
    header = ("check", "predicted", "measured", "off", "z", "verdict")
    rows = []
    for c in checks:
        z = f"{c.error:.1f}" if c.statistic == "z" else ""
        numbers = f"{c.predicted:.5g}", f"{c.measured:.5g}", percent(c.deviation), z
        rows.append((c.name, *numbers, c.verdict))
    return tabular(header, rows, "p{62mm}rrrrl")


def claims_table(folder: Path) -> str:
    """Ledger of a paper's folder as a table."""
    results = evidence.found(evidence.read(folder / "evidence.json"))
    ledger = claims.load(folder / "claims.toml")
    rows = [(c.id, claims.computed(c, results), c.says, c.note) for c in ledger]
    return tabular(
        ("where", "verdict", "says", "note"), rows, "p{28mm}p{18mm}p{58mm}p{52mm}"
    )


def picture(name: str, caption: str) -> str:
    """A figure of `write_all` with its caption."""
    drawn = f"\\fitpicture{{figure_{name}.png}}"
    return f"\\begin{{center}}{drawn}\\\\\n{write_up.escape(caption)}\\end{{center}}"


def makers(
    folder: Path,
    figures: Mapping[str, Any],
    sections: Callable[[], dict[str, list[Equation]]],
) -> dict[str, Callable[[str], str]]:
    """Generators available to every template: preamble, equations SECTION, figure NAME,
    claims.
    """

    def equations(section: str) -> str:
        return "\n".join(map(write_up.display, sections()[section]))

    return {
        "preamble": lambda _: PREAMBLE,
        "equations": equations,
        "figure": lambda name: picture(name, figures[name].caption),
        "claims": lambda _: claims_table(folder),
    }


def fill(folder: Path, make: Makers) -> str:
    """Fill the folder's ``template.tex``: lines ``%! KIND REST`` are replaced by the
    output of the generator KIND.
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
        for figure in progress.each(
            figures.values(), "figures", lambda figure: figure.name
        )
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
