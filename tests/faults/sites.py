"""Possible faults and how they are injected: signs, operators, terms, numbers, bounds,
comparisons, functions; and the logical mistakes of `slips.py`.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.faults.slips import Change, slips

ROOMS = ("theory", "simulate", "verify")
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
PAIRS = (
    "sin cos",
    "sinh cosh",
    "min max",
    "minimum maximum",
    "argmin argmax",
    "floor ceil",
    "mean sum",
    "zeros ones",
    "zeros_like ones_like",
)
FUNCTIONS = {a: b for pair in PAIRS for a, b in (pair.split(), pair.split()[::-1])} | {
    "sum": "max"
}
RANGES = {"range", "arange", "linspace"}
INFINITE = {"oo", "inf"}
SUMS = {"Sum", "Product", "integrate", "Integral"}
FACTOR = 1.05
SMALLEST = 1e-3  # a smaller number says how precisely, or how close to a limit

# What is left out. Layout, files, progress, timing, estimates of memory:
FILES = re.compile(
    r"(^|/)__main__\.py$|^verify/demo\.py$"
    r"|^theory/runtime/(cli|memory|output|plotting|progress)\.py$"
    r"|^theory/(latex|numbers/compiled|symbols/notation)\.py$"
    r"|^theory/(equations/printing|models/registry)\.py$"
)
NAMES = re.compile(
    r"^(_?seconds.*|memory.*|draw.*figure|plot.*|_plot.*|__repr__|__str__|_repr.*|text|table)$"
)
DRAWING = {
    "ax",
    "axes",
    "plt",
    "fig",
    "figure",
    "plotting",
}  # a function that touches one draws
# Calls whose arguments are words, random streams, or what a person chose a check to
# accept:
WORDS = {
    "print",
    "warn",
    "add_argument",
    "default_rng",
    "manual_seed",
    "SeedSequence",
    "keyed",
}
CHOICES = {
    "Check",
    "Band",
    "identity",
    "near",
    "vanishing",
    "at_least",
    "at_most",
    "sampled",
    "estimated",
}
PRECISION = re.compile(
    r"(^|_)(tol|rtol|atol|xtol|ftol|tolerance|seed|seeds|maxiter|max_step)$"
)


@dataclass(frozen=True, order=True)
class Fault:
    """One change of one expression.

    Attributes
    ----------
    file, line, column, end_line, end_column : str, int
        The expression, lines from 1, columns in bytes.
    kind : str
        What changes.
    before, after : str
        Its text and what stands there instead.
    function : str
        Outermost function around it; ``<module>`` where there is none.
    nth : int
        Which it is of the same changes in this file, from 1.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    kind: str
    before: str
    after: str
    function: str = "<module>"
    nth: int = 1

    @property
    def key(self) -> str:
        """What it is known by: the change, not its line, which moves with the code
        above.
        """
        return f"{self.file} #{self.nth}: {self.before} -> {self.after}"

    def applied(self, source: str) -> str:
        """The source with the fault.

        Raises
        ------
        ValueError
            If the expression is not there.
        """
        lines = source.encode().splitlines(keepends=True)
        begin = sum(map(len, lines[: self.line - 1])) + self.column
        end = sum(map(len, lines[: self.end_line - 1])) + self.end_column
        whole = b"".join(lines)
        found = ast.unparse(
            ast.parse(whole[begin:end].decode().join("()"), mode="eval")
        )
        if found != self.before:
            raise ValueError(
                f"{self.file}:{self.line}: {found!r} stands there, not {self.before!r}"
            )
        return (whole[:begin] + self.after.encode() + whole[end:]).decode()


def changes(node: ast.AST) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """All faults of one node: kind, the expression that is replaced, and by what."""
    if isinstance(node, ast.BinOp) and not any(map(_is_text, (node.left, node.right))):
        if type(node.op) in SWAPS:
            kind = "sign" if isinstance(node.op, ast.Add | ast.Sub) else "operator"
            yield kind, node, ast.BinOp(node.left, SWAPS[type(node.op)](), node.right)
        if isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            yield "dropped", node, node.left
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "sign", node, node.operand
    elif (
        isinstance(node, ast.Compare)
        and len(node.ops) == 1
        and type(node.ops[0]) in SWAPS
    ):
        swapped = ast.Compare(node.left, [SWAPS[type(node.ops[0])]()], node.comparators)
        yield "comparison", node, swapped
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "number", node, ast.Constant(node.value + 1)
    elif isinstance(node, ast.Constant) and type(node.value) is float:
        if abs(node.value) >= SMALLEST and node.value < 1e300:
            yield "factor", node, ast.Constant(FACTOR * node.value)
    elif isinstance(node, ast.Call):
        name = _name(node.func)
        if name in FUNCTIONS:
            other = copy.deepcopy(node.func)
            if isinstance(other, ast.Attribute):
                other.attr = FUNCTIONS[name]
            elif isinstance(other, ast.Name):
                other.id = FUNCTIONS[name]
            yield "function", node.func, other
        if name in RANGES and node.args:
            last = node.args[min(1, len(node.args) - 1)]
            if not isinstance(
                last, ast.Constant | ast.Starred
            ):  # a number is a fault of its own
                yield "bound", last, ast.BinOp(last, ast.Add(), ast.Constant(1))
        if name in SUMS:
            for limits in node.args[1:]:
                if isinstance(limits, ast.Tuple) and len(limits.elts) == 3:
                    last = limits.elts[2]
                    if _name(last) not in INFINITE and not isinstance(
                        last, ast.Constant
                    ):
                        yield "bound", last, ast.BinOp(last, ast.Add(), ast.Constant(1))


def _name(called: ast.expr) -> str:
    return (
        called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    )


def _is_text(node: ast.expr) -> bool:
    """Strings and lists are joined by + and *, too."""
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


class _Walk(ast.NodeVisitor):
    """Collects the faults of a file, without what the rules leave out."""

    def __init__(self, file: str) -> None:
        self.file, self.settings = file, file.startswith("verify/")
        self.found: list[Fault] = []
        self.inside: list[str] = []  # classes and functions

    def generic_visit(self, node: ast.AST) -> None:
        self._found(changes(node))
        if not isinstance(node, ast.Call):
            self._found(slips(node, self.file.partition("/")[0]))
        super().generic_visit(node)

    def _found(self, faults: Iterator[Change]) -> None:
        for kind, old, new in faults:
            spot = old.lineno, old.col_offset, old.end_lineno, old.end_col_offset
            after = ast.unparse(ast.fix_missing_locations(new))
            after = (
                after
                if isinstance(old, ast.Constant) or kind == "function"
                else f"({after})"
            )
            where = outer(self.inside)
            self.found.append(
                Fault(self.file, *spot, kind, ast.unparse(old), after, where)
            )

    def _skip(self, node: ast.AST) -> None:
        """Messages, texts, patterns."""

    visit_Raise = visit_Assert = visit_JoinedStr = visit_Match = _skip

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        draws = any(isinstance(n, ast.Name) and n.id in DRAWING for n in ast.walk(node))
        if NAMES.match(node.name) or draws:
            return
        for default in [] if self.settings else _defaults(node.args):
            self.visit(default)
        self._enter(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._enter(node)

    def _enter(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        self.inside.append(
            node.name if isinstance(node, ast.FunctionDef) else f"{node.name}."
        )
        for child in node.body:
            self.visit(child)
        self.inside.pop()

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and not self._chosen([node.target]):
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not self._chosen(node.targets):
            self.generic_visit(node)

    def _chosen(self, targets: Sequence[ast.expr]) -> bool:
        """Settings of a check, in capitals, and what says how precisely to compute."""
        names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        settings = self.settings and names and all(n.isupper() for n in names)
        return bool(settings) or any(PRECISION.search(n.lower()) for n in names)

    def visit_Call(self, node: ast.Call) -> None:
        name = _name(node.func)
        self._found(
            slips(node, self.file.partition("/")[0])
        )  # whatever a person may choose in it
        if name in WORDS:
            return
        kept = copy.copy(node)
        if self.settings and name in CHOICES:
            kept.args = [a for a in node.args if not isinstance(_bare(a), ast.Constant)]
        kept.keywords = [
            k
            for k in node.keywords
            if not (k.arg and PRECISION.search(k.arg))
            and not (self.settings and isinstance(_bare(k.value), ast.Constant))
        ]
        self.generic_visit(kept)

    def _loop(self, node: ast.For | ast.comprehension) -> None:
        """In a check, literal values that a loop goes through say where it looks."""
        kept = copy.copy(node)
        if self.settings and isinstance(node.iter, ast.Tuple):
            kept.iter = ast.Tuple([], ast.Load())
        self.generic_visit(kept)

    visit_For = visit_comprehension = _loop


def outer(inside: list[str]) -> str:
    """Qualified name of the outermost function, with its classes; outside of any, the
    module.
    """
    for k, name in enumerate(inside):
        if not name.endswith("."):
            return "".join(inside[: k + 1])
    return "<module>"


def _defaults(args: ast.arguments) -> list[ast.expr]:
    """Defaults that are no choice of precision."""
    positional = (
        [*args.posonlyargs, *args.args][-len(args.defaults) :] if args.defaults else []
    )
    pairs = [*zip(positional, args.defaults, strict=True)]
    pairs += [
        (a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d
    ]
    return [d for a, d in pairs if not PRECISION.search(a.arg)]


def _bare(node: ast.expr) -> ast.expr:
    """A number without its sign."""
    return node.operand if isinstance(node, ast.UnaryOp) else node


def sites(tree: Path) -> list[Fault]:
    """Every fault of the three rooms, in order."""
    found: list[Fault] = []
    for room in ROOMS:
        for path in sorted((tree / room).rglob("*.py")):
            file = path.relative_to(tree).as_posix()
            if FILES.search(file):
                continue
            walk = _Walk(file)
            walk.visit(ast.parse(path.read_text()))
            seen: Counter[str] = Counter()
            for fault in sorted(set(walk.found)):
                seen[fault.key] += 1
                found.append(replace(fault, nth=seen[fault.key]))
    return found


def shuffled(tree: Path, seed: int) -> list[Fault]:
    """All faults in a random order, that of a hash of seed and key.

    What is drawn stays drawn while code elsewhere changes.
    """
    return sorted(
        sites(tree),
        key=lambda f: hashlib.sha256(f"{seed} {f.kind} {f.key}".encode()).digest(),
    )
