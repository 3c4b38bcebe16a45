"""Notebooks to download, made from executed pages: a first cell that installs the
toolkit, and text without markup of the site.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from myst_nb.sphinx_ext import OUTPUT_FOLDER
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

PAGES = {  # by name of the notebook
    "start": "start",
    "own_model": "tutorial",
    "compare_students": "how_to/their_students",
    "paper_figure": "how_to/figure",
}
FOLDER = "notebooks"
INSTALL = """\
# Installs the toolkit, unless this kernel has it.
import os, sys
from importlib.util import find_spec

CHECKOUT = "."  # the toolkit's folder, with its pyproject.toml
if not all(map(find_spec, ("theory", "simulate", "verify", "papers"))):
    %pip install --quiet {CHECKOUT}
beside = os.path.dirname(sys.executable)  # of the commands after !
os.environ["PATH"] = beside + os.pathsep + os.environ["PATH"]"""
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]*)\.md(?:#[^)]*)?\)")


def plain(text: str, page: str, titles: Mapping[str, str]) -> str:
    """Markdown that any notebook shows: words in place of links between pages.

    Raises
    ------
    ExtensionError
        If other markup of the site is in it.
    """

    def words(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link[2]))
        return f"*{link[1] or titles[target]}*"

    text = LINK.sub(words, text)
    if left := re.search(
        r"^(`{3}|:{3})\{.*|^\([\w-]+\)=|\{[\w-]+\}`.*", text, re.MULTILINE
    ):
        raise ExtensionError(f"{page}: {left[0]!r} is no Markdown of notebooks")
    return text


def notebook(executed: Path, page: str, titles: Mapping[str, str]) -> Any:
    """A page that has been executed, as a notebook."""
    made = nbformat.read(executed, as_version=4)
    made.metadata.pop("source_map", None)
    for cell in made.cells:
        cell.metadata = {}
        if cell.cell_type == "markdown":
            cell.source = plain(cell.source, page, titles)
    made.cells.insert(0, nbformat.v4.new_code_cell(INSTALL))
    _, made = nbformat.validator.normalize(made)  # every cell has an id
    nbformat.validate(made)
    return made


def write(app: Sphinx, error: Exception | None) -> None:
    """Write all notebooks beside the pages."""
    if error or app.builder.format != "html":
        return
    folder = Path(app.outdir) / FOLDER
    folder.mkdir(exist_ok=True)
    titles = {page: title.astext() for page, title in app.env.titles.items()}
    for name, page in PAGES.items():
        executed = Path(app.outdir).parent / OUTPUT_FOLDER / f"{page}.ipynb"
        nbformat.write(notebook(executed, page, titles), folder / f"{name}.ipynb")


def offer(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any
) -> None:
    """Below the title of a page: its notebook."""
    for name, of in PAGES.items():
        if of == page:
            target = context["pathto"](f"{FOLDER}/{name}.ipynb", 1)
            link = (
                f'<p class="cost"><a href="{target}" download>This page as a'
                " notebook</a></p>"
            )
            context["body"] = context["body"].replace("</h1>", f"</h1>{link}", 1)


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer and write."""
    app.connect("html-page-context", offer)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
