"""Titles of figures, in symbols."""

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from theory.call.parameters import NOT_SHOWN, BaseParameters, stated
from theory.runtime.in_symbols import assigned

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


def _told(p: BaseParameters) -> Mapping[str, Any]:
    known = p.stored(training_only=True)
    return {
        k: tuple(v) if isinstance(v, list) else v
        for k, v in known.items()
        if k not in NOT_SHOWN
    }


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
