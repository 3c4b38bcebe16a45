"""Titles of figures, in symbols."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import sympy as sp
import xarray as xr

from theory.call.parameters import NOT_SHOWN, BaseParameters, stated

MOST = 4  # longest list of values in a title
SPELLED = {"lam": "lambda"}  # a field cannot be named lambda
SIZES = 2  # the first fields of the parameters are the sizes, which every title gives


def title(asked: Sequence[tuple[BaseParameters, int]]) -> str:
    """Title of a figure: the preset next to the ensembles, their sizes, what differs
    from the preset, and the number of seeds.

    Parameters
    ----------
    asked : sequence of (Parameters, int)
        Parameters and number of seeds of every ensemble; zero is not shown.
    """
    every = [_told(p) for p, _ in asked]
    kinds = {type(p) for p, _ in asked}
    presets = {
        name: _told(make())
        for kind in kinds
        for name, make in getattr(kind, "presets", dict)().items()
    }
    off = {
        name: sum(
            told.get(key) != value for told in every for key, value in preset.items()
        )
        for name, preset in presets.items()
    }
    nearest = min(off, key=lambda name: off[name], default="")
    preset = presets.get(nearest, {})
    shown: dict[str, list[Any]] = {}
    for told in every:
        for key in [
            *list(told)[:SIZES],
            *(k for k, v in told.items() if preset.get(k) != v),
        ]:
            shown.setdefault(key, [])
    for key, values in shown.items():
        values += dict.fromkeys(
            told[key] for told in every if told.get(key) is not None
        )
    seeds = sorted({n for _, n in asked if n})
    parts = [f"preset {nearest.replace('_', ' ')}"] if nearest else []
    parts += [assigned(key, values) for key, values in shown.items() if values]
    if seeds:
        parts.append(
            " or ".join(map(str, seeds)) + (" seed" if seeds == [1] else " seeds")
        )
    return "; ".join(parts)


def of_runs(p: BaseParameters, runs: xr.Dataset) -> tuple[str, str]:
    """Title of a figure of one ensemble, and its description."""
    asked = [(p, runs.sizes["seed"])]
    return title(asked), described(asked)


def symbols(text: str) -> str:
    """``name = value; ...`` as returned by `theory.call.parameters.stated`, with names
    replaced by symbols where known.
    """
    parts = [part.partition(" = ") for part in text.split("; ")]
    return "; ".join(
        (
            assigned(name, [*map(_read, value.split(", "))])
            if equals and name.isidentifier()
            else name + equals + value
        )
        for name, equals, value in parts
    )


def _read(text: str) -> Any:
    """A number with a power of ten as a number; anything else as it stands."""
    return float(text) if re.fullmatch(r"-?[\d.]+e[+-]?\d+", text) else text


def _told(p: BaseParameters) -> Mapping[str, Any]:
    known = p.stored(training_only=True)
    return {
        k: tuple(v) if isinstance(v, list) else v
        for k, v in known.items()
        if k not in NOT_SHOWN
    }


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


def described(asked: Sequence[tuple[BaseParameters, int]]) -> str:
    """Parameters of several ensembles on one line: the common values, all values of
    those that differ, and the number of seeds.

    Parameters
    ----------
    asked : sequence of (Parameters, int)
        Parameters and number of seeds of every ensemble; zero is not shown.
    """
    values: dict[str, list[Any]] = {}
    for p, _ in asked:
        for name, value in p.stored(training_only=True).items():
            if value is not None and name not in NOT_SHOWN:
                values.setdefault(name, []).append(value)
    seeds = sorted({n for _, n in asked if n})
    counts = [" or ".join(map(str, seeds)) + (" seed" if seeds == [1] else " seeds")]
    return "; ".join([stated(values), *(counts if seeds else [])])
