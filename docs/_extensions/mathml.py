"""Mathematics as MathML, made when the site is built: no script is needed.
``_static/fonts`` has the font: STIX Two Math and its licence, from the npm package
@fontsource/stix-two-math 5.3.0.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)
# Commands the converter has no word for.
SPELLED = {
    r"{aligned}": "{align*}",
    r"\\arg\b": r"\\operatorname{arg}",
    r"\\bm\b": r"\\boldsymbol",
}

NS = "{http://www.w3.org/1998/Math/MathML}"
TALL = {
    NS + x
    for x in ("mfrac", "msqrt", "mroot", "mtable", "munder", "mover", "munderover")
}
ElementTree.register_namespace("", NS.strip("{}"))


def tidied(made: str) -> str:
    """Indices below an exponent instead of behind it; bars that the font can stretch;
    delimiters around what is one line high do not stretch, since Chromium leaves room
    beside those that may.
    """
    root = ElementTree.fromstring(made)
    for e in root.iter():
        inner = e[0][0] if e.tag == NS + "msub" and len(e[0]) == 1 else None
        if inner is not None and inner.tag == NS + "msup":
            e.tag, e[:] = NS + "msubsup", [inner[0], e[1], inner[1]]
        if e.tag == NS + "mover" and e[1].text in ("\u2015", "\u00af"):
            e[1].text = "\u203e"
            e[1].set("stretchy", "true")
        if e.tag == NS + "mover" and len(e[1]) == 0:
            e.set("accent", "true")
        if e.get("columnspacing") == "":
            del e.attrib["columnspacing"]
        fences = [x for x in e if x.get("fence") == "true"]
        if fences and not TALL & {x.tag for x in e.iter()}:
            for fence in fences:
                fence.set("stretchy", "false")
    return ElementTree.tostring(root, encoding="unicode")


def mathml(text: str, display: str, where: nodes.Node) -> str:
    """MathML of a formula; a warning, which fails the build,
    where a command has none.
    """
    for command, spelled in SPELLED.items():
        text = re.sub(command, spelled, text)
    try:
        made = convert(text.strip(), display=display)
    except Exception as error:  # the converter has a class for every slip
        LOG.warning(
            "no MathML of %s: %s %s", text, type(error).__name__, error, location=where
        )
        return ""
    if left := re.findall(r"\\[A-Za-z]+", made):
        LOG.warning("no MathML of %s in %s", ", ".join(left), text, location=where)
    return tidied(made)


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    writer.body.append(mathml(node.astext(), "inline", node))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on its own line; one wider than the page scrolls by itself."""
    text = node.astext()
    if not node.get("no-wrap", node.get("nowrap")) and (
        r"\\" in text and r"\begin" not in text
    ):
        text = rf"\begin{{align*}}{text}\end{{align*}}"
    writer.body.append(f'<div class="math">{mathml(text, "block", node)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
