"""Check the links of the built site: ``python docs/_extensions/links.py output/docs``.
Exit code 1 if one leads nowhere. Links to other hosts are not followed: the site loads
nothing from them.
"""

from __future__ import annotations

import sys
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """Links, anchors, pictures and visible text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.alts: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.silent = 0
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect."""
        a = {name: value or "" for name, value in attrs}
        self.ids |= {a["id"]} if a.get("id") else set()
        if tag == "a" and a.get("href"):
            self.links.append(a["href"])
        if tag in ("img", "script", "source", "iframe") and a.get("src"):
            self.loads.append(a["src"])
        if tag == "link" and a.get("href") and a.get("rel") not in ("canonical",):
            self.loads.append(a["href"])
        if tag == "img":
            self.alts.append((a.get("src", ""), a.get("alt", "")))
        self.silent += tag in ("script", "style", "pre", "code")

    def handle_endtag(self, tag: str) -> None:
        """Text counts again."""
        self.silent -= tag in ("script", "style", "pre", "code")

    def handle_data(self, data: str) -> None:
        """What a reader sees outside of code."""
        if not self.silent:
            self.words.append(data)


def pages(site: Path) -> dict[Path, Page]:
    """Every page of a built site, by its full path."""
    return {p: Page(p) for p in sorted(site.resolve().rglob("*.html"))}


def broken(site: dict[Path, Page]) -> list[tuple[str, str]]:
    """Relative links that lead to no file,
    or to a place that the page does not have.
    """
    lost = []
    for path, page in site.items():
        for href in (*page.links, *page.loads):
            url = urllib.parse.urlsplit(href)
            if url.scheme or url.netloc:
                continue
            target = (
                (path.parent / urllib.parse.unquote(url.path)).resolve()
                if url.path
                else path
            )
            there = site.get(target)
            if not target.exists() or (
                url.fragment
                and there
                and urllib.parse.unquote(url.fragment) not in there.ids
            ):
                lost.append((path.name, href))
    return lost


if __name__ == "__main__":
    built = pages(Path(sys.argv[1]))
    lost = broken(built)
    for name, href in lost:
        print(f"{name}: {href} leads nowhere", file=sys.stderr)
    print(
        f"{sum(len(p.links) for p in built.values())} links on {len(built)} pages,"
        f" {len(lost)} broken"
    )
    sys.exit(1 if lost or not built else 0)
