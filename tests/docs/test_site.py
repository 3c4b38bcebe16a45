"""The built site: no warnings, no broken links, no external resources, mathematics that
a browser renders.
"""

import gc
import importlib.metadata
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import opener
from theory.models import plugins, registry

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs/_extensions"))
import links  # noqa: E402

sys.path.pop(0)
QUICK = {"DOCS_EXECUTION": "stored", "DOCS_FIGURES": "stored"}
# What the quick build leaves out: the API, and the same kinds of pages of three models.
# Where others list them or link to them, Sphinx warns.
ALIKE = ["forner2026", "cui2024", "musat2025"]
ALIKE += ["state_tracking", "positional_semantic", "induction"]
LEFT_OUT = [
    "_extensions",
    "_static",
    "api/**",
    "tested.md",
    "gallery.md",
    *(f"**{word}**" for word in ALIKE),
]
KNOWN = "toc,myst.xref_missing,ref,myst-nb.lexer,index"
FEWER = [
    *("-D", f"exclude_patterns={','.join(LEFT_OUT)}"),
    *("-D", f"suppress_warnings={KNOWN}"),
]


def alone():
    """Build what a clone is before anything else is installed: no model of another
    package. The collection of garbage would be a quarter of the time.
    """
    gc.disable()
    found = importlib.metadata.entry_points
    importlib.metadata.entry_points = lambda **wanted: (
        () if wanted.get("group") == plugins.GROUP else found(**wanted)
    )
    registry._table.cache_clear()
    os.environ.update(QUICK)
    runpy.run_module("sphinx", run_name="__main__", alter_sys=True)


@pytest.fixture(
    scope="module", params=["stored", pytest.param("executed", marks=pytest.mark.slow)]
)
def site(request, forked, tmp_path_factory):
    """The site as `make docs` builds it; or a part of it, with only those pages
    executed that train nothing, and no package beside this one, in a process that has
    what earlier tests derived.
    """
    for package in ("sphinx", "myst_nb", "furo", "latex2mathml"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra docs)")
    options = ("-W", "--keep-going", "-q", "-E")
    if request.param == "executed":
        out = ROOT / "output" / "docs"
        program = (sys.executable, "docs/_extensions/forked.py", "-j", "2")
        at = ("-d", "output/docs-doctrees", "docs", str(out))
        done = subprocess.run(
            [*program, *options, *at], cwd=ROOT, capture_output=True, text=True
        )
    else:
        out = tmp_path_factory.mktemp("site")
        at = (
            "-d",
            str(tmp_path_factory.mktemp("doctrees")),
            str(ROOT / "docs"),
            str(out),
        )
        done = forked(alone, *FEWER, *options, *at, seconds=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (out / "explore").is_dir() is (request.param == "executed")  # two minutes
    return links.pages(out)


def test_links_resolve(site):
    """Every relative link leads to a file, and every fragment to an id."""
    out, docs = Path(os.path.commonpath(site)), ROOT / "docs"
    pages = {path.relative_to(docs).with_suffix(".html") for path in docs.rglob("*.md")}
    left_out = [f"/{path}" for path in pages - {path.relative_to(out) for path in site}]
    for page, link in links.broken(site):
        if left_out and link.startswith(("#equation-", "#check-", "#figure-")):
            continue  # of a page that is left out
        name = link.partition("#")[0].replace("../", "")
        assert any(path.endswith(f"/{name}") for path in left_out), (page, link)
    assert len(site) > 40


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    """To no file, and to no place in a page; links to other hosts are not followed."""
    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html#there">')
    (tmp_path / "b.html").write_text(
        '<a href="a.html#here"><a href="c.html"><a href="https://example.org/x#y">'
    )
    found = links.broken(links.pages(tmp_path))
    assert found == [("a.html", "b.html#there"), ("b.html", "c.html")]


def test_rows_lead_to_checks_and_equations(site):
    """From the ledger of each paper."""
    for path, page in site.items():
        if path.stem.startswith("ledger_"):
            for kind in ("check", "equation"):
                assert sum(f".html#{kind}-" in x for x in page.links) > 20, (
                    path.name,
                    kind,
                )


def test_pages_say_how_long_they_took(site):
    """Those with cells that ran."""
    took = {
        path.stem
        for path, page in site.items()
        if "s to run when" in " ".join(page.words)
    }
    assert {"associative_memory", "glossary"} <= took and "commands" not in took


def test_nothing_comes_from_elsewhere(site):
    """No script, style, font or picture of another host."""
    loads = {
        x for page in site.values() for x in page.loads if "//" in x.partition("?")[0]
    }
    assert loads == set()
    for sheet in next(iter(site)).parent.rglob("*.css"):
        assert not re.search(
            r"(url\(|@import)\s*['\"]?(https?:)?//", sheet.read_text()
        ), sheet


def test_pictures_and_mathematics(site):
    """Alternative texts; formulas as MathML, none as raw LaTeX in the text."""
    assert [x for page in site.values() for x in page.alts if not x[1].strip()] == []
    for path, page in site.items():
        assert not re.search(
            r"\\(frac|sqrt|sum|begin|alpha)\b", " ".join(page.words)
        ), path
    assert sum(path.read_text().count("<math") for path in site) > 400


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """Opens a page; gives its document, console messages, and what it asked other hosts
    for.
    """
    return opener(tmp_path_factory.mktemp("browser"))


def test_the_browser_sees_faults(browse, tmp_path):
    """A page with an error and a picture from elsewhere is found out."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<!doctype html><img src="https://example.org/x.png"><script>missing()</script>'
    )
    _, said, asked = browse(bad)
    assert any("missing is not defined" in x for x in said) and asked == {"example.org"}


def test_the_filter_of_a_table(browse, tmp_path):
    """A verdict, then words among its rows; then all again."""
    kinds = ["exact", "limit"] * 4
    rows = "".join(
        f'<tr><td>row{i}<td><span class="verdict {k}">{k}</span></tr>'
        for i, k in enumerate(kinds)
    )
    script = """
    addEventListener("load", () => {
      const [words, button] = [document.querySelector("input"), document.querySelectorAll("button")[1]];
      const say = () => {
        const left = [...document.querySelectorAll("tbody tr")].filter((row) => !row.hidden);
        document.body.append(` [${left.map((row) => row.cells[0].textContent)}]`);
      };
      const type = (text) => { words.value = text; words.dispatchEvent(new Event("input")); say(); };
      button.click(); say(); type("ROW3 limit"); type("exact"); type(""); button.click(); say();
    });
    """
    page = tmp_path / "table.html"
    page.write_text(
        f'<!doctype html><div class="filtered"><table><tbody>{rows}</table></div>'
        f'<script src="{(ROOT / "docs/_static/filter.js").as_uri()}"></script>'
        f"<script>{script}</script>"
    )
    document, said, _ = browse(page)
    odd, every = "row1,row3,row5,row7", ",".join(f"row{i}" for i in range(8))
    assert said == [] and "limit</span> 4</button>" in document
    assert f"[{odd}] [row3] [] [{odd}] [{every}]" in document


def test_in_a_browser(request, site, browse):
    """Each page opens without a console error or a request to another host; of the
    quick build one of each folder.
    """
    some = {path.parent: path for path in site}.values()
    for path in site if request.node.callspec.params["site"] == "executed" else some:
        document, said, asked = browse(path)
        assert "</html>" in document and (said, asked) == ([], set()), path
