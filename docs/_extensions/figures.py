"""The gallery: figures of the papers that stored runs and theory suffice for, and how to make the
others.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from papers.source import Figure, Source
from simulate import jobs
from theory import registry

ROOT = Path(__file__).parents[2]
DRAWN = ROOT / "output" / "docs-figures"
TRAIN = bool(os.environ.get("DOCS_TRAIN"))


# Minutes of computing each, without the store of runs: left to `make docs-all`.
SLOW = {("bietti2025", "capacity"), ("musat2025", "law")}


class NeedsTraining(Exception):
    """A figure asks for students that nobody has trained yet."""


@contextlib.contextmanager
def nothing_trained() -> Iterator[None]:
    """Within, an ensemble that is not in the store is refused instead of trained."""

    def refuse(todo: Any, *_: Any, **__: Any) -> Any:
        if todo:
            raise NeedsTraining
        return []

    kept, jobs.carry_out = jobs.carry_out, jobs.carry_out if TRAIN else refuse
    try:
        yield
    finally:
        jobs.carry_out = kept


def draw(figure: Figure, paper: str, scale: str) -> Path | None:
    """Draw a figure once; None where it needs training."""
    path = DRAWN / os.environ["DOCS_SOURCES"] / paper / f"figure_{figure.name}.png"
    if path.is_file():
        return path
    if os.environ.get("DOCS_FIGURES") == "stored":  # a quick look at the text
        return None
    if (paper, figure.name) in SLOW and not TRAIN:
        return None
    with contextlib.suppress(NeedsTraining), nothing_trained():
        return figure.write(Source(scale, list(range(8)), None, TRAIN), path.parent)
    return None


def picture(paper: str, name: str) -> str:
    """One figure of a paper, drawn once for the whole site."""
    model = next(m for m in registry.MODELS.values() if m.paper == paper)
    module = model.ledger()
    figure = module.FIGURES[name]
    path = draw(figure, paper, getattr(module, "SCALES", ("small",))[0])
    if path is None:
        return f"*The figure needs students that are not here:* `{command(paper, figure)}`\n"
    return shown(path, f"Figure {name} of {paper}", figure, paper)


def command(paper: str, figure: Figure) -> str:
    """How to make a figure."""
    return f"python -m papers {paper} --figure {figure.name}"


def shown(path: Path, title: str, figure: Figure, paper: str) -> str:
    """A drawn figure with alternative text, caption and command."""
    place = os.path.relpath(path, ROOT / "docs")
    return (
        f":::{{figure}} /{place}\n:alt: {json.dumps(f'{title}: {figure.caption}', ensure_ascii=False)}\n:width: 100%\n\n"
        f"**{figure.name}** {figure.caption} `{command(paper, figure)}`\n:::\n"
    )


def gallery(paper: str) -> str:
    """Figures of a paper with captions and commands."""
    model = next(m for m in registry.MODELS.values() if m.paper == paper)
    module = model.ledger()
    scale = getattr(module, "SCALES", ("small",))[0]
    there, missing = [], []
    for figure in module.FIGURES.values():
        path = draw(figure, paper, scale)
        if path is None:
            missing.append(f"- {figure.name}: {figure.caption} `{command(paper, figure)}`")
        else:
            there.append(shown(path, f"Figure {figure.name} of {paper}", figure, paper))
    out = ["::::{container} gallery\n", *there, "::::\n"] if there else []
    if missing:
        out += [
            "\nThese need students that this site was built without, or minutes; the command makes them "
            "(`make docs-all` makes all):\n",
            *missing,
        ]
    return "\n".join(out) + "\n"
