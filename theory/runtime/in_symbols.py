"""Names and values of fields in symbols, as figures show them."""

import re
from collections.abc import Sequence
from typing import Any

import sympy as sp

MOST = 4  # longest list of values in a title
SPELLED = {"lam": "lambda"}  # a field cannot be named lambda


def symbols(text: str) -> str:
    """``name = value; ...`` as returned by `theory.call.parameters.stated`, with names
    replaced by symbols where known.
    """
    parts = []
    for part in text.split("; "):
        name, equals, value = part.partition(" = ")
        if equals and name.isidentifier():
            part = assigned(name, [*map(_read, value.split(", "))])
        parts.append(part)
    return "; ".join(parts)


def _read(text: str) -> Any:
    """A number with a power of ten as a number; anything else as it stands."""
    return float(text) if re.fullmatch(r"-?[\d.]+e[+-]?\d+", text) else text


def assigned(name: str, values: Sequence[Any]) -> str:
    """Name and values of a field, in symbols if its name is that of a symbol."""
    few = [*map(written, values)]
    if len(few) > MOST:
        few = [few[0], r"\dots", few[-1]]
    head, _, index = SPELLED.get(name, name).partition("_")
    letter = sp.latex(sp.Symbol(head))
    if len(head) > 1 and not letter.startswith("\\"):
        return f"{name.replace('_', ' ')} " + ", ".join(
            f"${x}$" if "\\" in x else x for x in few
        )
    below = sp.latex(sp.Symbol(index))
    if len(index) > 1:
        below = f"{{{below}}}" if below.startswith("\\") else rf"{{\mathrm{{{index}}}}}"
    small = f"_{below}" * bool(index)
    return f"${letter}{small}=" + r",\;".join(few) + "$"


def written(value: Any) -> str:
    """A value as a title gives it, a power of ten as LaTeX."""
    if not isinstance(value, float):
        return str(value)
    digits, e, power = f"{value:.4g}".partition("e")
    return (
        rf"{digits}\times10^{{{int(power)}}}".removeprefix(r"1\times") if e else digits
    )
