"""LaTeX of expressions and equations. A long right-hand side is broken before plus and
minus signs; brackets open at a break are closed by invisible delimiters.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy as sp
from sympy.printing.latex import LatexPrinter

from theory.symbols.notation import NAMES

if TYPE_CHECKING:
    from theory.equations.equation import Equation


SETTINGS = {
    "mul_symbol": None,
    "fold_short_frac": False,
    "ln_notation": True,
    "parenthesize_super": True,
    "imaginary_unit": "i",
    "diff_operator": "d",
}
HALF = sp.Rational(1, 2)


class Printer(LatexPrinter):
    """SymPy's printer, with roots as written by hand: one root of a product, and the
    root of e.
    """

    def _print_Mul(self, expr: sp.Mul) -> str:
        number, product = expr.as_coeff_Mul(rational=True)
        factors = sp.Mul.make_args(product)
        over = [x.base for x in factors if _is_root(x, HALF)]
        under = [x.base for x in factors if _is_root(x, -HALF)]
        for base in [x for x in over if under and x.is_Integer and number.q % x == 0]:
            number *= base  # sqrt(2) / (2 sqrt(pi)) is 1 / sqrt(2 pi)
            over.remove(base)
            under.append(base)
        if len(over) + len(under) < 2:
            return super()._print_Mul(expr)
        # By a symbol that is printed so: SymPy would take the root of a product apart
        # again.
        radicand = sp.Dummy(positive=True)
        inside = sp.Mul(*over) / sp.Mul(*under) if over else sp.Mul(*under)
        self._settings["symbol_names"][radicand] = self._print(inside)
        others = [x for x in factors if not (_is_root(x, HALF) or _is_root(x, -HALF))]
        root = radicand ** (HALF if over else -HALF)
        return self._print(sp.Mul(number, *others, root))

    def _print_ExpBase(self, expr: sp.exp, exp: str | None = None) -> str:
        if exp is None and abs(expr.exp) == HALF:
            root = r"\sqrt{e}"
            return root if expr.exp > 0 else rf"\frac{{1}}{{{root}}}"
        return super()._print_ExpBase(expr, exp)


def _is_root(expr: sp.Basic, power: sp.Rational) -> bool:
    return isinstance(expr, sp.Pow) and expr.exp == power and expr.base.is_number


def expression(expr: sp.Basic) -> str:
    """LaTeX of an expression with the toolkit's printer settings."""
    return Printer({**SETTINGS, "symbol_names": ChainMap({}, NAMES)}).doprint(expr)


def aligned(equations: Iterable[Equation]) -> str:
    """One ``aligned`` block of several equations."""
    lines = " \\\\\n".join("  " + e.latex(align=True) for e in equations)
    return f"\\begin{{aligned}}\n{lines}\n\\end{{aligned}}"


ROOM = 41.0  # width of a line in ems, without the space for the equation number
LONG_LEFT = 14.0  # a left-hand side wider than this gets its own line
FILLED = 0.4  # a line must be filled to this share before it is broken
SPACE = 1.35  # width of an equals sign in ems
_TOKEN = re.compile(
    r"\\begin\{[a-z]+\}.*?\\end\{[a-z]+\}|\\[a-zA-Z]+|\\.|\s+|.", re.DOTALL
)
# Width in ems; what prints nothing itself; names that are printed upright.
_WIDE = {
    "+": 1.2,
    "-": 1.2,
    "=": SPACE,
    "(": 0.39,
    ")": 0.39,
    "[": 0.28,
    "]": 0.28,
    ",": 0.45,
}
_WIDE |= {
    "|": 0.28,
    ".": 0.28,
    "\\,": 0.17,
    "\\;": 0.28,
    "\\quad": 1.0,
    "\\times": 1.2,
    "!": 0.3,
}
_WIDE |= {
    "\\left": 0.1,
    "\\right": 0.1,
    "\\sum": 1.45,
    "\\prod": 1.3,
    "\\int": 0.8,
    "\\cdot": 0.7,
}
FOLDED = {"\\frac": 2, "\\sqrt": 1, "e^": 1}  # what `unfolded` writes anew: arguments
_BARE = (
    "\\mathrm",
    "\\operatorname",
    "\\text",
    "\\mathbb",
    "\\mathcal",
    "\\hat",
    "\\bar",
    "\\tilde",
)
_NAMED = (
    "\\ln",
    "\\exp",
    "\\sin",
    "\\cos",
    "\\tan",
    "\\sinh",
    "\\cosh",
    "\\tanh",
    "\\log",
    "\\max",
)


def tokens(latex: str) -> list[str]:
    """Split LaTeX into commands, characters and whole environments."""
    return _TOKEN.findall(latex)


def argument(parts: list[str], place: int) -> tuple[list[str], int]:
    """Tokens of the group (without braces) or the single token at a position, and the
    position behind it.
    """
    while place < len(parts) and parts[place].isspace():
        place += 1
    if place >= len(parts) or parts[place] != "{":
        return parts[place : place + 1], place + 1
    depth, end = 0, place
    while True:
        depth += {"{": 1, "}": -1}.get(parts[end], 0)
        end += 1
        if depth == 0:
            return parts[place + 1 : end - 1], end


def width(latex: str) -> float:
    """Estimated printed width in ems."""
    return _width(tokens(latex))


def _width(parts: list[str]) -> float:
    total, place, under = 0.0, 0, 0.0
    while place < len(parts):
        token, place = parts[place], place + 1
        if token in (
            "\\sum",
            "\\prod",
            "\\limits",
        ):  # sub- and superscripts are stacked
            total += _WIDE.get(token, 0.0)
            under = 1.4 if token != "\\limits" else 0.8
            continue
        if token in ("\\frac", "\\binom"):
            above, place = argument(parts, place)
            below, place = argument(parts, place)
            total += max(_width(above), _width(below)) + 0.25
        elif token == "\\sqrt":
            inner, place = argument(parts, place)
            total += _width(inner) + 0.85
        elif token in ("^", "_"):
            inner, place = argument(parts, place)
            script = 0.75 * _width(inner)
            if place < len(parts) and parts[place] in (
                "^",
                "_",
            ):  # numerator above denominator
                inner, place = argument(parts, place + 1)
                script = max(script, 0.75 * _width(inner))
            total += max(0.0, script - under)
            under = 0.0
        elif token.startswith("\\begin"):
            rows = re.sub(r"^\\begin\{\w+\}|\\end\{\w+\}$", "", token).split("\\\\")
            total += 1 + max(width(row.replace("&", "\\quad ")) for row in rows)
        elif token in _BARE or token in "{}" or token.isspace():
            total += 0.2 if token == "\\operatorname" else 0.0
        elif token in _NAMED:
            total += 0.5 * (len(token) - 1) + 0.17
        else:
            total += _WIDE.get(token, 0.78 if token.isupper() else 0.54)
    return total


def unfolded(latex: str, room: float) -> str:
    """Rewrite fractions, roots and exponentials that are wider than a line as products,
    powers and exp.
    """
    parts, made, place = tokens(latex), [], 0
    while place < len(parts):
        head, after, groups = parts[place], place + 1, []
        if parts[place : place + 2] == ["e", "^"]:
            head, after = "e^", place + 2
        for _ in range(FOLDED.get(head, 0)):
            group, after = argument(parts, after)
            groups.append("".join(group))
        if any(width(group) > room for group in groups):
            made.append(_opened(head, groups, room))
            place = after
        else:
            made.append(parts[place])
            place += 1
    return "".join(made)


def _opened(head: str, groups: list[str], room: float) -> str:
    if head == "\\frac":
        return _fraction(groups[0], groups[1], room)
    inner = f"\\left({unfolded(groups[0], room)}\\right)"
    return f"{inner}^{{1/2}}" if head == "\\sqrt" else f"\\exp{inner}"


def _fraction(above: str, below: str, room: float) -> str:
    over = f"\\left({unfolded(above, room)}\\right)"
    if width(below) <= room:
        return f"\\frac{{1}}{{{below}}} {over}"
    under = f"\\left({unfolded(below, room)}\\right)^{{-1}}"
    return f"{over if width(above) > room else above} {under}"


@dataclass(frozen=True)
class _Break:
    """A place where a line may end."""

    at: int  # index of the token that starts the next line
    opened: int  # number of open brackets
    product: bool  # between factors instead of before a sign

    @property
    def cost(self) -> float:
        return 2 * self.opened + 3 * self.product


def _breaks(parts: list[str]) -> list[_Break]:
    places, opened = [], 0
    solid, closes = (
        [""],
        [False],
    )  # tokens without space; whether a bracket or its exponent ends
    outer: list[
        bool
    ] = []  # of open braces: whether each holds the exponent of a bracket
    for place, token in enumerate(parts):
        if token.isspace():
            continue
        if not outer:
            opened += {"\\left": 1, "\\right": -1}.get(token, 0)
        if not outer and place and parts[place - 1].isspace():
            if token in "+-" and parts[place + 1 : place + 2] == [" "]:
                if solid[-1] and solid[-1] not in "([{=,":
                    places.append(_Break(place, opened, False))
            elif closes[-1] and token not in ("\\right", "^", "_", ")", ",", "{"):
                places.append(_Break(place, opened - (token == "\\left"), True))
        ends = solid[-1] == "\\right"
        if token == "{":
            outer.append(solid[-1] == "^" and closes[-2])
        elif token == "}":
            ends = outer.pop()
        solid.append(token)
        closes.append(ends)
    return places


def broken(latex: str, room: float) -> list[str]:
    """Break a formula into lines of at most ``room`` ems with balanced brackets. A line
    is wider only if it has no place to break.
    """
    if width(latex) <= room:
        return [latex]
    parts = tokens(unfolded(latex, 0.9 * room))
    places = _breaks(parts)
    lines: list[str] = []
    start, opened, sign = 0, 0, ""
    while True:
        head = sign + "\\left. " * opened
        whole = head + "".join(parts[start:])
        here = [b for b in places if b.at > start]
        if width(whole) <= room or not here:
            return [*lines, whole.strip()]

        def upto(b: _Break, head: str = head, start: int = start) -> str:
            return (
                head + "".join(parts[start : b.at]).rstrip() + " \\right." * b.opened
            ).strip()

        fits = [b for b in here if width(upto(b)) <= room] or here[:1]
        full = [b for b in fits if width(upto(b)) >= FILLED * room] or fits[-1:]
        best = min(full, key=lambda b: (b.cost, -b.at))
        lines.append(upto(best))
        start = best.at
        opened = best.opened
        sign = "\\times " if best.product else ""


def rows(left: str, right: str, room: float = ROOM) -> list[str]:
    """Rows of an alignment ``left &= right``, broken into several if too long."""
    space = room - width(left) - SPACE
    if width(right) <= space:
        return [f"{left} &= {right}"]
    if width(left) <= LONG_LEFT:
        first, *others = broken(right, space)
        return [f"{left} &= {first}", *(f"&\\quad {line}" for line in others)]
    first, *others = broken(right, room - SPACE - 2)
    return [f"&{left}", f"&\\quad = {first}", *(f"&\\qquad {line}" for line in others)]
