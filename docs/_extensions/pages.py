"""How pages are made: in which order and on which cores, their navigation and costs,
and those of the explorer beside them.
"""

from __future__ import annotations

import html
import multiprocessing
import os
import re
import unittest.mock
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import forked
import yaml
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.parallel import make_chunks

from theory import explorer
from theory.explorer import curves
from theory.models import registry
from theory.runtime import output

logger = logging.getLogger(__name__)


def with_explorer() -> bool:
    """Whether pages of the explorer are made, which takes seconds each."""
    return os.environ.get("DOCS_EXECUTION") not in ("off", "stored")


def explorable() -> list[registry.Model]:
    """Models of this package with something to explore."""
    models = [m for m in registry.TABLE.values() if not m.package and not m.systems]
    return [m for m in models if explorer.offers(m)]


def explorers() -> str:
    """Links to the explorer's pages, where they are made."""
    if not with_explorer():
        return "Left out of this quick build."
    made = [
        f'<li><a href="explore/{m.name}.html">{html.escape(m.title)}</a></li>'
        for m in explorable()
    ]
    return f"<ul>{''.join(made)}</ul>"


def explore(app: Sphinx, *_: Any) -> None:
    """Write the explorer's pages while those of the site are written, as many at once
    as those are read: first the ones with tables, which take longest.
    """
    if not with_explorer() or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "explore"
    folder.mkdir(exist_ok=True, parents=True)
    pages = sorted(explorable(), key=lambda m: curves.charts(m) is None)
    hands = [
        multiprocessing.get_context("fork").Process(
            target=write, args=(folder, pages[first :: app.parallel])
        )
        for first in range(app.parallel)
    ]
    for hand in hands:
        hand.start()

    def finish(_: Sphinx, error: Exception | None) -> None:
        for hand in hands:
            hand.join()
        if error is None and any(hand.exitcode for hand in hands):
            raise ExtensionError("pages of the explorer: see the error above")

    app.connect("build-finished", finish)


def write(folder: Path, models: Iterable[registry.Model]) -> None:
    """Write the explorer's pages of some models."""
    for model in models:
        with output.atomic(folder / f"{model.name}.html") as temporary:
            temporary.write_text(
                explorer.page(model, explorer.opening(model)), encoding="utf-8"
            )


def alone(app: Sphinx, *_: Any) -> None:
    """Keep a process of a parallel build to one core: the students of its pages are
    then trained in the process that asks for them, instead of in two that import torch
    once more.
    """
    place = multiprocessing.current_process()._identity
    if place and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(os.getppid()))
        forked.keep_to({cores[place[-1] % len(cores)]})


def deal(app: Sphinx, env: Any, pages: list[str]) -> None:
    """Order pages so that neighbours, which cost alike, are read by different
    processes.
    """
    hands = len(make_chunks(pages, app.parallel)) or 1
    pages[:] = [page for first in range(hands) for page in pages[first::hands]]


def plain_bars(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Absolute values in docstrings are not substitutions."""
    lines[:] = [x if "`" in x else x.replace("|", r"\|") for x in lines]


def cost(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any
) -> None:
    """At the end of a page with cells: how long they took to run."""
    data = getattr(app.env, "nb_metadata", {}).get(page, {}).get("exec_data") or {}
    if data.get("runtime"):
        context["body"] += (
            f'<p class="cost">The cells of this page took {data["runtime"]:.0f} s to'
            " run when they were last executed.</p>"
        )


def pictured(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any
) -> None:
    """Warn, so that the build fails, if cells of an executed page do not show a picture
    that their options describe.
    """
    if not getattr(app.env, "nb_metadata", {}).get(page, {}).get("exec_data"):
        return
    shown = {
        html.unescape(alt)
        for alt in re.findall(r'<img[^>]*\balt="([^"]*)"', context["body"])
    }
    source = Path(app.env.doc2path(page)).read_text(encoding="utf-8")
    for line in re.findall(r"^ *alt: .*$", source, re.MULTILINE):
        if (alt := yaml.safe_load(line)["alt"]) not in shown:
            logger.warning(
                "no picture is shown for the cell with alt: %s", alt, location=page
            )


def navigation(app: Sphinx, builder: Any) -> None:
    """Make the navigation, which shows titles alone, from contents without sections and
    functions: they would be copied for each page, to be left out, in most of the time
    that pages are written.
    """
    titles = {page: toc.deepcopy() for page, toc in app.env.tocs.items()}
    for top in (node for toc in titles.values() for node in toc if len(node) > 1):
        top[1][:] = list(top.findall(addnodes.toctree))

    def short(
        _: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any
    ) -> None:
        whole = context["toctree"]

        def toctree(**options: Any) -> str:
            with unittest.mock.patch.object(app.env, "tocs", titles):
                return whole(**options)

        context["toctree"] = toctree

    app.connect("html-page-context", short, priority=400)  # before the theme asks


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect each to its event."""
    app.connect("autodoc-process-docstring", plain_bars)
    app.connect("html-page-context", cost)
    app.connect("html-page-context", pictured)
    app.connect("env-before-read-docs", deal)
    app.connect("source-read", alone)
    app.connect("write-started", navigation)
    app.connect("write-started", explore)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
