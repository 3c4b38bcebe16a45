"""Notebooks of the site: made from pages, run where the toolkit is installed."""

import importlib
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = """---
file_format: mystnb
kernelspec:
  name: python3
---
# Page
Read [this](../a.md#b), [](../trust.md) and [that](https://example.org/x.md).

```{code-cell} ipython3
---
mystnb:
  image:
    alt: nothing
---
!python -c "import sys; print(sys.executable)"
```
"""
TITLES = {"trust": "When to trust what"}


@pytest.fixture
def notebooks(monkeypatch):
    """The extension."""
    pytest.importorskip("myst_nb", reason="myst_nb is not installed (extra docs)")
    monkeypatch.syspath_prepend(ROOT / "docs/_extensions")
    return importlib.import_module("notebooks")


def made(notebooks, text, page, folder):
    """A notebook from the source of a page, not executed."""
    import nbformat
    from myst_nb.core.read import read_myst_markdown_notebook

    nbformat.write(read_myst_markdown_notebook(text), folder / "page.ipynb")
    titles = {
        path.relative_to(ROOT / "docs").with_suffix("").as_posix(): path.stem
        for path in (ROOT / "docs").rglob("*.md")
    }
    return notebooks.notebook(folder / "page.ipynb", page, titles | TITLES)


def run(notebook, folder):
    """Execute all cells in a folder; stop at an error."""
    from nbclient import NotebookClient

    NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(folder)}}
    ).execute()


def test_a_page_becomes_a_notebook(notebooks, tmp_path):
    """Links between pages are words, others stay; the first cell installs nothing here,
    and its kernel's Python is the one that cells call.
    """
    book = made(notebooks, PAGE, "how_to/page", tmp_path)
    first, text, code = book.cells
    assert "%pip install" in first.source and code.metadata == {}
    assert (
        "Read *this*, *When to trust what* and [that](https://example.org/x.md)."
        in text.source
    )
    run(book, tmp_path)
    assert first.outputs == [] and code.outputs[0].text.strip() == sys.executable


def test_the_first_cell_installs_what_is_missing(notebooks, monkeypatch):
    """From the folder that it names."""
    from IPython.core.interactiveshell import InteractiveShell

    shell, ran = InteractiveShell(), []
    shell.register_magic_function(ran.append, "line", "pip")
    monkeypatch.setenv("PATH", os.environ["PATH"])
    for wing in ("", "papers"):
        monkeypatch.setattr(
            "importlib.util.find_spec", lambda name, wing=wing: name != wing or None
        )
        shell.run_cell(notebooks.INSTALL).raise_error()
        assert ran == ["install --quiet ."] * bool(wing)


def test_markup_of_the_site_is_refused(notebooks):
    """Which a notebook would show as it is written."""
    for text in ("```{table}\n```", ":::{note}\n:::", "(place)=\n# A", "see {doc}`a`"):
        with pytest.raises(Exception, match="no Markdown of notebooks"):
            notebooks.plain(text, "page", {})


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("start", "own_model", "paper_figure", "compare_students")
    ],
)
def test_a_notebook_runs(notebooks, tmp_path, name):
    """In an empty folder, all its cells."""
    page = notebooks.PAGES[name]
    book = made(notebooks, (ROOT / "docs" / f"{page}.md").read_text(), page, tmp_path)
    run(book, tmp_path)
    assert sum(cell.cell_type == "code" for cell in book.cells) > 3
