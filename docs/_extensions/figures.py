"""The gallery: figures of the papers that stored runs and theory suffice for, and how to make the
others.
"""

from __future__ import annotations

import contextlib
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
    if os.environ.get("DOCS_EXECUTION") == "off":  # a quick look at the text
        return None
    with contextlib.suppress(NeedsTraining), nothing_trained():
        return figure.write(Source(scale, list(range(8)), None, TRAIN), path.parent)
    return None


def gallery(paper: str) -> str:
    """Figures of a paper with captions and commands."""
    model = next(m for m in registry.MODELS.values() if m.paper == paper)
    module = model.ledger()
    scale = getattr(module, "SCALES", ("small",))[0]
    shown, missing = [], []
    for figure in module.FIGURES.values():
        command = f"python -m papers {paper} --figure {figure.name}"
        path = draw(figure, paper, scale)
        if path is None:
            missing.append(f"- {figure.name}: {figure.caption} `{command}`")
            continue
        alt = f"Figure {figure.name} of {paper}: {figure.caption}".replace("\n", " ")
        shown.append(
            f":::{{figure}} /{os.path.relpath(path, ROOT / 'docs')}\n:alt: {alt}\n:width: 100%\n\n"
            f"{figure.name}. {figure.caption} `{command}`\n:::\n"
        )
    out = ["::::{div} gallery\n", *shown, "::::\n"] if shown else []
    if missing:
        out += [
            "\nThese need students that this site was built without; the command trains them "
            "(`make docs-all` trains all):\n",
            *missing,
        ]
    return "\n".join(out) + "\n"
