"""The built site: no warnings, no broken links, no external resources, mathematics that a browser
renders.
"""

import os
import re
import subprocess
import sys
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.browser import opener

ROOT = Path(__file__).parents[2]
UNEXECUTED = {"DOCS_EXECUTION": "off", "DOCS_FIGURES": "stored"}


class Page(HTMLParser):
    """Links, anchors, pictures and visible text of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.ids, self.alts, self.words = [], [], set(), [], []
        self.silent = 0
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        """Collect."""
        a = dict(attrs)
        self.ids |= {a["id"]} if a.get("id") else set()
        if tag == "a" and a.get("href"):
            self.links.append(a["href"])
        if tag in ("img", "script", "source", "iframe") and a.get("src"):
            self.loads.append(a["src"])
        if tag == "link" and a.get("href") and a.get("rel") not in ("canonical",):
            self.loads.append(a["href"])
        if tag == "img":
            self.alts.append((a.get("src", ""), a.get("alt") or ""))
        self.silent += tag in ("script", "style", "pre", "code")

    def handle_endtag(self, tag):
        """Text counts again."""
        self.silent -= tag in ("script", "style", "pre", "code")

    def handle_data(self, data):
        """What a reader sees outside of code."""
        if not self.silent:
            self.words.append(data)


@pytest.fixture(
    scope="module", params=["unexecuted", pytest.param("executed", marks=pytest.mark.slow)]
)
def site(request, tmp_path_factory):
    """The site as `make docs` builds it; or its pages without what their cells print."""
    for package in ("sphinx", "myst_nb", "furo", "latex2mathml"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra docs)")
    whole = request.param == "executed"
    out = ROOT / "output" / "docs" if whole else tmp_path_factory.mktemp("site")
    doctrees = "output/docs-doctrees" if whole else tmp_path_factory.mktemp("doctrees")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-W",
            "--keep-going",
            "-q",
            "-E",
            "-d",
            str(doctrees),
            "docs",
            str(out),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | ({} if whole else UNEXECUTED),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {p: Page(p) for p in sorted(out.rglob("*.html"))}


def test_links_resolve(site):
    """Every relative link leads to a file, and every fragment to an id."""
    broken = []
    for path, page in site.items():
        for href in (*page.links, *page.loads):
            url = urllib.parse.urlsplit(href)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            there = site.get(target)
            if not target.exists() or (url.fragment and there and url.fragment not in there.ids):
                broken.append((path.name, href))
    assert broken == [] and len(site) > 40


def test_nothing_comes_from_elsewhere(site):
    """No script, style, font or picture of another host."""
    loads = {x for page in site.values() for x in page.loads if "//" in x.partition("?")[0]}
    assert loads == set()
    for sheet in next(iter(site)).parent.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", sheet.read_text()), sheet


def test_pictures_and_mathematics(site):
    """Alternative texts; formulas as MathML, none as raw LaTeX in the text."""
    assert [x for page in site.values() for x in page.alts if not x[1].strip()] == []
    for path, page in site.items():
        assert not re.search(r"\\(frac|sqrt|sum|begin|alpha)\b", " ".join(page.words)), path
    assert sum(path.read_text().count("<math") for path in site) > 400


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """Opens a page; gives its document, console messages, and what it asked other hosts for."""
    return opener(tmp_path_factory.mktemp("browser"))


def test_the_browser_sees_faults(browse, tmp_path):
    """A page with an error and a picture from elsewhere is found out."""
    bad = tmp_path / "bad.html"
    bad.write_text('<!doctype html><img src="https://example.org/x.png"><script>missing()</script>')
    _, said, asked = browse(bad)
    assert any("missing is not defined" in x for x in said) and asked == {"example.org"}


def test_in_a_browser(request, site, browse):
    """Each page opens without a console error or a request to another host; of pages that are not
    executed, one of each folder.
    """
    some = {path.parent: path for path in site}.values()
    for path in site if request.node.callspec.params["site"] == "executed" else some:
        document, said, asked = browse(path)
        assert "</html>" in document and (said, asked) == ([], set()), path
