"""Logical instead of arithmetic faults: reused seeds, a random stream used twice,
exchanged arguments, predicted in place of measured, a dropped variance or field, a lost
sign.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

Change = tuple[str, ast.expr, ast.expr]
SIDES = {
    "identity",
    "near",
    "sampled",
    "estimated",
}  # name, equation, predicted, measured, ...
SAMPLES = {"sampled"}  # their measured side is an array
STREAM, TEST, TRAIN = "stream", "test", "train"


def slips(node: ast.AST, room: str) -> Iterator[Change]:
    """All faults of one node in a file of one room: kind, the expression replaced, and
    by what.
    """
    if isinstance(node, ast.Call):
        yield from _calls(node)
    if isinstance(node, ast.Subscript) and _reads_a_stream(node):
        other = TRAIN if ast.literal_eval(node.slice) != TRAIN else TEST
        yield "stream", node, ast.Subscript(node.value, ast.Constant(other), ast.Load())
    if isinstance(node, ast.For | ast.comprehension) and _is_plain(node.iter):
        some = ast.Call(ast.Name("list", ast.Load()), [node.iter], [])
        two = ast.Slice(None, ast.Constant(2), None)
        yield "rest ignored", node.iter, ast.Subscript(some, two, ast.Load())
    if isinstance(node, ast.GeneratorExp) and _is_plain(node.generators[0].iter):
        first = node.generators[0].iter
        some = ast.Call(ast.Name("list", ast.Load()), [first], [])
        rest = ast.Slice(ast.Constant(1), None, None)
        yield "first ignored", first, ast.Subscript(some, rest, ast.Load())
    if (
        room != "theory"
        and isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
    ):
        yield "direction", node, _call("abs", node)


def _calls(node: ast.Call) -> Iterator[Change]:
    """Faults of a call and its arguments."""
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    named = {k.arg: k.value for k in node.keywords}
    for value in [*node.args, named.get("seed")]:
        if value is not None and _mentions(value, "seed"):
            half = ast.BinOp(value, ast.FloorDiv(), ast.Constant(2))
            yield "seed", value, half
    if (
        name == "keyed"
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
    ):
        purpose = node.args[1].value
        yield (
            "stream",
            node.args[1],
            ast.Constant(purpose - 1 if purpose else purpose + 1),
        )
    for k, (left, right) in enumerate(zip(node.args, node.args[1:], strict=False)):
        if _is_plain(left) and _is_plain(right) and ast.dump(left) != ast.dump(right):
            swapped = [*node.args[:k], right, left, *node.args[k + 2 :]]
            yield "argument", node, ast.Call(node.func, swapped, node.keywords)
    if (
        name in SIDES
        and len(node.args) > 3
        and not isinstance(node.args[2], ast.Starred)
    ):
        measured = node.args[3]
        side = (
            _call("float", _call("sum", measured), over=measured)
            if name in SAMPLES
            else measured
        )
        yield "predicted", node.args[2], side
    if "ddof" in named:
        yield "variance", named["ddof"], ast.Constant(0)
    if name == "parameter" and "theory_only" not in named:
        aside = ast.keyword("theory_only", ast.Constant(True))
        yield "field", node, ast.Call(node.func, node.args, [*node.keywords, aside])
    if name == "abs" and len(node.args) == 1:
        yield "direction", node, node.args[0]


def _call(name: str, of: ast.expr, over: ast.expr | None = None) -> ast.expr:
    """Name of a builtin, called; over the length of something, where that is given."""
    made: ast.expr = ast.Call(ast.Name(name, ast.Load()), [of], [])
    if over is not None:
        made = ast.BinOp(
            made, ast.Div(), ast.Call(ast.Name("len", ast.Load()), [over], [])
        )
    return made


def _is_plain(node: ast.expr) -> bool:
    """A variable, or an attribute of one:
    what stands for something of the same kind.
    """
    if isinstance(node, ast.Attribute):
        return _is_plain(node.value)
    return isinstance(node, ast.Name) and not node.id.isupper()


def _mentions(node: ast.expr, word: str) -> bool:
    return isinstance(node, ast.Name) and node.id == word


def _reads_a_stream(node: ast.Subscript) -> bool:
    text = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
    return text and isinstance(node.ctx, ast.Load) and STREAM in ast.unparse(node.value)
