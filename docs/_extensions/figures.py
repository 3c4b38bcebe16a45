"""The gallery: figures of the papers, drawn where shipped ensembles, stored runs and
theory suffice; of the others a small copy is kept. ``python docs/_extensions/figures.py
[PAPER ...]`` renews the copies of those that the store of runs suffices for, with
``DOCS_TRAIN=1`` of all.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
import unittest.mock
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from papers import evidence
from papers.source import Figure, Source
from simulate.training import jobs
from theory.models import registry
from theory.runtime import output

ROOT = Path(__file__).parents[2]
DRAWN = ROOT / "output" / "docs-figures"
TRAIN = bool(os.environ.get("DOCS_TRAIN"))
KEPT = (
    ROOT / "docs" / "_static" / "kept"
)  # small copies, and the commit each was drawn at
DPI, COLOURS = 144, 256  # of a copy: sharp at the width it is drawn for
EDGE = 5  # pixels around a thumbnail
PALETTE = (
    Image.Quantize.MAXCOVERAGE
)  # keeps pale colours, and rare ones as in a colour bar

# From ten seconds of computing on, without the store of runs: left to `make docs-all`.
SLOW = {
    ("bietti2025", "capacity"),
    ("forner2026", "fidelity"),
    ("musat2025", "law"),
    ("musat2025", "uniform"),
}


class NeedsTraining(Exception):
    """A figure asks for students that nobody has trained yet."""


@contextlib.contextmanager
def nothing_trained() -> Iterator[list[Any]]:
    """Within, an ensemble that is not in the store is refused instead of trained; gives
    the list of requests to the store.
    """
    asked: list[Any] = []

    def noted(todo: Any, *more: Any, **options: Any) -> Any:
        asked.append(todo)
        if todo and not TRAIN:
            raise NeedsTraining
        return carry_out(todo, *more, **options)

    carry_out = jobs.carry_out
    with unittest.mock.patch.object(jobs, "carry_out", noted):
        yield asked


def make(
    figure: Figure, paper: str, folder: Path, scale: str
) -> tuple[Path | None, bool]:
    """Draw a figure, None where it needs training; and whether it asked the store of
    runs.
    """
    try:
        with contextlib.suppress(NeedsTraining), nothing_trained() as asked:
            return figure.write(
                Source(scale, list(range(8)), None, TRAIN), folder
            ), bool(asked)
        return None, True
    finally:
        plt.close("all")


def draw(figure: Figure, paper: str, scale: str) -> Path | None:
    """Draw a figure once; None where it needs training."""
    folder = DRAWN / os.environ["DOCS_SOURCES"] / paper
    path = folder / f"figure_{figure.name}.png"
    if (
        path.is_file() or os.environ.get("DOCS_FIGURES") == "stored"
    ):  # a quick look at the text
        return path if path.is_file() else None
    if (paper, figure.name) in SLOW and not TRAIN:
        return None
    return make(figure, paper, folder, scale)[0]


def of_paper(paper: str) -> tuple[dict[str, Figure], str]:
    """Figures of a paper, and its default scale."""
    model = next(m for m in registry.MODELS.values() if m.paper == paper)
    module = model.ledger()
    return module.FIGURES, getattr(module, "SCALES", ("small",))[0]


def commits() -> dict[str, str]:
    """Commit of every copy, by ``PAPER/FIGURE``."""
    listed = KEPT / "commits.json"
    return json.loads(listed.read_text()) if listed.is_file() else {}


def picture(paper: str, name: str) -> str:
    """One figure of a paper, drawn once for the whole site."""
    known, scale = of_paper(paper)
    return shown(
        draw(known[name], paper, scale), f"Figure {name} of {paper}", known[name], paper
    )


def command(paper: str, figure: Figure) -> str:
    """How to make a figure."""
    return f"python -m papers {paper} --figure {figure.name}"


def copy_of(paper: str, figure: Figure) -> Path | None:
    """The copy that is kept of a figure, if any."""
    kept = (
        KEPT / paper / name
        for name in (f"figure_{figure.name}.png", f"{figure.name}.txt")
    )
    return next((p for p in kept if p.is_file()), None)


def shown(path: Path | None, title: str, figure: Figure, paper: str) -> str:
    """A figure, or its copy, with alternative text, caption and command."""
    how, said = f"`{command(paper, figure)}`", ""
    if path is None:
        path = copy_of(paper, figure)
        commit = commits().get(f"{paper}/{figure.name}")
        if commit is None or path is None:
            return (
                f"*{figure.name}: {figure.caption} Its students are not here:* {how}\n"
            )
        said = f" Small copy, drawn at commit {commit}."
    if path.suffix == ".txt":
        return (
            f"**{figure.name}**"
            f" {figure.caption} {figure.result}{said} {how}\n"
            f"```text\n{path.read_text()}\n```\n"
        )
    where = os.path.relpath(path, ROOT / "docs")
    alt = json.dumps(f"{title}: {figure.caption}", ensure_ascii=False)
    with Image.open(path) as image:
        width = round(
            96 * image.width / image.info["dpi"][0]
        )  # CSS has 96 pixels in an inch
    return (
        f":::{{figure}} /{where}\n:alt: {alt}\n:width: {width}px\n\n"
        f"**{figure.name}** {figure.caption} {figure.result}{said} {how}\n:::\n"
    )


def gallery(paper: str) -> str:
    """Figures of a paper with captions and commands."""
    known, scale = of_paper(paper)
    return "\n".join(
        f"({place(paper, name)})=\n"
        + shown(draw(f, paper, scale), f"Figure {name} of {paper}", f, paper)
        for name, f in known.items()
    )


def place(paper: str, name: str) -> str:
    """Name of a figure's place in the gallery of its paper."""
    return f"figure-{paper}-{name}".replace("_", "-")


def thumbnail(path: Path, paper: str) -> Path:
    """The first panel of a figure, whose place the file tells."""
    made = DRAWN / os.environ["DOCS_SOURCES"] / "thumbnails" / paper / path.name
    made.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(path) as image:
        edges = json.loads(image.info.get("Panel", "[0, 0, 1, 1]"))
        left, upper, right, lower = edges * np.array([*image.size, *image.size])
        image.crop(
            (
                max(0, int(left) - EDGE),
                max(0, int(upper) - EDGE),
                min(image.width, int(right) + EDGE),
                min(image.height, int(lower) + EDGE),
            )
        ).save(made)
    return made


def thumbnails(paper: str) -> str:
    """A crop of each figure of a paper, linked to the whole; one for all figures whose
    captions differ in numbers alone.
    """
    known, scale = of_paper(paper)
    alike: dict[str, list[str]] = {}
    for name, figure in known.items():
        alike.setdefault(re.sub(r"\d+", "#", figure.caption), []).append(name)
    out = ["::::{container} gallery\n"]
    for first, *others in alike.values():
        figure = known[first]
        more = ", ".join(f"[{name}](#{place(paper, name)})" for name in others)
        said = (
            f"[{first}](#{place(paper, first)}): {figure.caption}"
            + f" Others: {more}." * bool(others)
        )
        path = draw(figure, paper, scale) or copy_of(paper, figure)
        if path is None or path.suffix == ".txt":
            out.append(f":::{{container}} entry\n{said}\n:::\n")
            continue
        where = os.path.relpath(thumbnail(path, paper), ROOT / "docs")
        words = json.dumps(f"Part of figure {first} of {paper}", ensure_ascii=False)
        target = f"gallery_{paper}.html#{place(paper, first)}"
        out.append(
            f":::{{figure}} /{where}\n:alt: {words}\n:target: {target}\n\n{said}\n:::\n"
        )
    return "\n".join([*out, "::::\n"])


def keep(papers: list[str]) -> None:
    """Renew the copies of figures that take students from the store of runs, or
    minutes.
    """
    for paper in papers:
        known, scale = of_paper(paper)
        for name, figure in known.items():
            with tempfile.TemporaryDirectory() as folder:
                path, stored = make(figure, paper, Path(folder), scale)
                if path is None or not (stored or (paper, name) in SLOW):
                    why = "needs training" if path is None else "drawn by every build"
                    print(f"{paper} {name}: {why}")
                    continue
                copy = KEPT / paper / path.name
                copy.parent.mkdir(parents=True, exist_ok=True)
                if path.suffix == ".txt":
                    copy.write_text(path.read_text())
                else:
                    with Image.open(path) as drawn_now:
                        ratio, told = DPI / drawn_now.info["dpi"][0], PngInfo()
                        for word, said in drawn_now.info.items():
                            if isinstance(word, str) and isinstance(said, str):
                                told.add_text(word, said)
                        drawn_now.thumbnail(
                            (drawn_now.width * ratio, drawn_now.height * ratio)
                        )
                        small = drawn_now.convert("RGB").quantize(COLOURS, PALETTE)
                        small.save(copy, optimize=True, dpi=(DPI, DPI), pnginfo=told)
            drawn = sorted(
                (
                    commits() | {f"{paper}/{name}": evidence.commit(Path(__file__))}
                ).items()
            )
            (KEPT / "commits.json").write_text(output.to_json(dict(drawn)) + "\n")
            print(f"{paper} {name}: {copy.stat().st_size // 1000} kB")


if __name__ == "__main__":
    keep(sys.argv[1:] or [m.paper for m in registry.MODELS.values() if not m.package])
