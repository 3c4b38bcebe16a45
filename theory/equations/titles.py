"""Titles of figures, in symbols."""

import itertools
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
    settings = [_settings(p) for p, _ in asked]
    presets: dict[str, Mapping[str, Any]] = {}
    for kind in {type(p) for p, _ in asked}:
        for name, make in getattr(kind, "presets", dict)().items():
            presets[name] = _settings(make())

    def differences(name: str) -> int:
        preset = presets[name].items()
        return sum(
            fields.get(key) != value
            for fields, (key, value) in itertools.product(settings, preset)
        )

    nearest = min(presets, key=differences, default="")
    preset = presets.get(nearest, {})
    shown: dict[str, list[Any]] = {}
    for fields in settings:
        changed = [key for key, value in fields.items() if preset.get(key) != value]
        for key in [*list(fields)[:SIZES], *changed]:
            shown.setdefault(key, [])
    for key, values in shown.items():
        values += dict.fromkeys(
            fields[key] for fields in settings if fields.get(key) is not None
        )
    parts = [f"preset {nearest.replace('_', ' ')}"] if nearest else []
    parts += [assigned(key, values) for key, values in shown.items() if values]
    return "; ".join([*parts, *_seeds(asked)])


def _seeds(asked: Sequence[tuple[BaseParameters, int]]) -> list[str]:
    """Numbers of seeds in words; nothing if no ensemble has any."""
    numbers = sorted({n for _, n in asked if n})
    if not numbers:
        return []
    return [" or ".join(map(str, numbers)) + (" seed" if numbers == [1] else " seeds")]


def of_runs(p: BaseParameters, runs: xr.Dataset) -> tuple[str, str]:
    """Title of a figure of one ensemble, and its description."""
    asked = [(p, runs.sizes["seed"])]
    return title(asked), described(asked)


def _settings(p: BaseParameters) -> Mapping[str, Any]:
    """Fields that a title may show."""
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
    return "; ".join([stated(values), *_seeds(asked)])
