"""Markdown of tables: cells, anchors, links to equations, verdicts, notes."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

from theory.models import registry


def text(words: object) -> str:
    """Plain words made safe for a cell of a Markdown table; code in backticks passes
    through.
    """
    parts = re.split(r"(`[^`]*`)", " ".join(str(words).split()))
    return "".join(
        (
            p.replace("|", r"\|")
            if p.startswith("`")
            else re.sub(r"([\\*_|<>\[\]$#~^{}])", r"\\\1", p)
        )
        for p in parts
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown table; cells are Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def code(words: object) -> str:
    """Words as code, in a cell."""
    return f"`{words}`".replace("|", r"\|")


def anchor(kind: str, *names: str) -> str:
    """Name of a place in a page, of an equation or a check."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join((kind, *names)).lower())


def linked(model: registry.Model, names: Iterable[str]) -> str:
    """Names of equations, each a link to its formula where there is one."""
    known = [n for n in names if n in found_equations(model.name)]
    return ", ".join(
        f"[{code(n)}](#{anchor('equation', model.name, n)})" for n in known
    )


@functools.cache
def found_equations(model: str) -> frozenset[str]:
    """Names of a model's equations."""
    return frozenset(registry.find(model).wing("theory").equations())


def mark(verdict: str) -> str:
    """A verdict with the CSS class that gives it its colour and sign."""
    return f"[{verdict}]{{.verdict .{verdict.lower().replace(' ', '-')}}}"


def below(*notes: str) -> str:
    """Notes of a row, each on a line below what it says."""
    return "".join(f" [{note}]{{.note}}" for note in notes if note)


def filtered(made: str, kind: str = "") -> str:
    """A table that `_static/filter.js` gives a field for words and a button per
    verdict.
    """
    return f":::::{{container}} filtered {kind}\n{made}:::::\n"
