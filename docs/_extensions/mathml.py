"""Mathematics as MathML, made when the site is built: no script and no font is needed."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)
# Commands the converter has no word for.
SPELLED = {r"{aligned}": "{align*}", r"\\arg\b": r"\\operatorname{arg}", r"\\bm\b": r"\\boldsymbol"}


def mathml(text: str, display: str, where: nodes.Node) -> str:
    """MathML of a formula; a warning, which fails the build, where a command has none."""
    for command, spelled in SPELLED.items():
        text = re.sub(command, spelled, text)
    try:
        made = convert(text.strip(), display=display)
    except Exception as error:  # the converter has a class for every slip
        LOG.warning("no MathML of %s: %s %s", text, type(error).__name__, error, location=where)
        return ""
    if left := re.findall(r"\\[A-Za-z]+", made):
        LOG.warning("no MathML of %s in %s", ", ".join(left), text, location=where)
    return made


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    writer.body.append(mathml(node.astext(), "inline", node))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on its own line; one wider than the page scrolls by itself."""
    text = node.astext()
    if not node.get("no-wrap", node.get("nowrap")) and (r"\\" in text and r"\begin" not in text):
        text = rf"\begin{{align*}}{text}\end{{align*}}"
    writer.body.append(f'<div class="math">{mathml(text, "block", node)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
