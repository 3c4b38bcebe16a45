"""Every public function of numbers, by its path, and the arguments of a call that
works.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import xarray as xr

from tests.theory.test_swept_numbers import (
    CASES,
    DECAYING,
    OWN_FIELDS,
    SMALL,
    STATE,
    of,
)
from theory.call.parameters import BaseParameters
from theory.models import registry

ROOMS = ("numbers", "onset", "predict", "theory")  # functions of numbers; flat packages
CHAPTERS = "theory.state_tracking."  # where a derivation and its numbers are one file
ROOMS += ("fixed_point", "branches", "general")
# Functions of numbers in chapters that also derive.
OF_CHAPTERS = {
    "theory.induction_heads.all_weights.descent": "moving flow_of times curve",
    "theory.induction_heads.all_weights.law": "predicted effective_length slow_drop",
    "theory.induction_heads.all_weights.recent": "predicted exact",
    "theory.induction_heads.dynamics": "times",
    "theory.induction_heads.emergence": "times",
}
# Formulas in, formulas out.
SYMBOLIC = {
    "derived",
    "equations",
    "sections",
    "flow",
    "flows",
    "thermodynamic_limit",
    "mixture",
}
# Parts of other functions, which have read the arguments; and figures.
INNER = {
    "branches": "crossing",
    "positional_semantic.onset": "over_alpha",
    "general": "attention fields conjugates output_channel input_channel",
    "state_tracking.onset": (
        "secant sharp at_large_sizes rates growth early_mass "
        "early_difference exponent onset_A gain_of_flow departure_of_sharp"
    ),
    "linear_attention.theory": "plateau level merged_time",
    "onset": "curves curve draw report lines interpolated",
}


def small(system: str, function: str = "") -> BaseParameters:
    """Parameters at which every number is cheap, and that a function describes."""
    own = OWN_FIELDS.get((system, function), {})
    if function in DECAYING:
        own = {"weight_decay": 0.005, "d_h": 32}
    return (
        registry.find(system)
        .wing("theory")
        .Parameters(**{**SMALL.get(system, {}), **own})
    )


def start() -> Any:
    """Two seeds of state tracking."""
    from theory.state_tracking.single_students.realisation import Start

    return Start.drawn(small("state_tracking"), 2, np.random.default_rng(0))


def cavity() -> Any:
    """Their cavity equations."""
    from theory.state_tracking.single_students.cavity import Cavity

    return Cavity(small("state_tracking"), start())


def general() -> dict[str, Any]:
    """A system of the general state evolution, and where to start."""
    from theory.positional_semantic import general

    system = general.headline(small("positional_semantic"), points=64)
    order = general.starting_order(system, 0.5, 0.3, np.array([0.1, -0.1]), 12.0)
    return {"system": system, "start": order}


def fixed_point() -> Any:
    """A solution to look at."""
    from theory.positional_semantic import solve

    return solve(small("positional_semantic"), "semantic")


def curve() -> xr.Dataset:
    """A trajectory with logits."""
    from theory.state_tracking import flow

    return flow().solve(small("state_tracking"), alpha=0.5, at=[0.0, 0.5])


# What an argument is in a call that works, where neither its default nor its type says
# so.
EXAMPLES: dict[str, Any] = {
    "A": np.eye(2),
    "D": 0.1,
    "K": 3,
    "N": 4,
    "accuracies": [0.9, 0.8, 0.7],
    "alpha": 0.5,
    "alphas": [2.0, 3.0],
    "at": [0.0, 0.5],
    "branch": "semantic",
    "curve": curve,
    "d": 16,
    "draws": 2,
    "epochs": [0, 2],
    "gap": 1.0,
    "jobs": 1,
    "log_size": 5.0,
    "mask": "strict",
    "norm": 0.5,
    "omega": 0.3,
    "omegas": [0.3],
    "overlap": 0.3,
    "point": fixed_point,
    "points": 64,
    "share": 0.5,
    "sigma_k": 0.5,
    "sigma_kbar": 0.5,
    "size": 3,
    "spread": 12.0,
    "start": start,
    "state": STATE,
    "system": cavity,
    "t": 2.0,
    "x": 0.1,
    "z": 0.5,
}
# By function, where a name means something else there.
SPECIAL: dict[str, dict[str, Any]] = {
    "general.solve": {
        "system": lambda: general()["system"],
        "start": lambda: general()["start"],
    },
    "general.starting_order": {
        "system": lambda: general()["system"],
        "m": np.array([0.1, -0.1]),
    },
    "integrate.half_times": {"epochs": 20},
    "law.effective_length": {"size": 512, "right": 2},
    "recent.predicted": {"size": 32, "window": 0.25, "rtol": 1e-4},
    "recent.exact": {"size": 16, "window": 0.25, "rtol": 1e-4},
    "linear_attention.drops": {
        "v": np.array([0.01, 0.02]),
        "K": np.array([[[0.01, 0.03]], [[0.02, -0.01]]]),
        "Q": np.array([[[0.02, 0.01]], [[0.03, 0.01]]]),
        "eigenvalues": np.array([1.0, 0.5]),
        "a": np.array([1.2, 0.4]),
    },
}


def checked(function: Callable) -> bool:
    """Whether a decorator reads its arguments: scope, dimensions, arrays of fields."""
    return isinstance(function, types.FunctionType) and hasattr(function, "__wrapped__")


@cache
def functions() -> dict[str, tuple[str, Callable]]:
    """System and function by name: what a theory's package offers, and the rooms of its
    numbers.
    """
    found: dict[str, tuple[str, Callable]] = {}
    for model in registry.TABLE.values():
        if model.systems:  # a family: what its systems have
            continue
        package = model.wing("theory")
        chapters = {package.__name__, *(x.__name__ for x in rooms(package))}
        chapters = {x for x in chapters if x.startswith(CHAPTERS)}
        for home in (package, *rooms(package)):
            names = getattr(
                home, "__all__", [n for n in vars(home) if not n.startswith("_")]
            )
            names = OF_CHAPTERS.get(home.__name__, "").split() or names
            inner = {
                n
                for end, parts in INNER.items()
                if home.__name__.endswith(end)
                for n in parts.split()
            }
            for name in names:
                function = getattr(home, name)
                if not callable(function) or inspect.isclass(function):
                    continue
                if home.__name__ in chapters and not (
                    checked(function) or name == "rollout"
                ):
                    continue  # formulas, and parts of other functions
                if getattr(function, "__module__", "").startswith("theory.statement"):
                    continue  # of any statement: tests/theory/statement
                if (
                    home is not package
                    and getattr(function, "__module__", "") != home.__name__
                ):
                    continue
                if name not in SYMBOLIC | inner and function not in [
                    f for _, f in found.values()
                ]:
                    path = f"{function.__module__}.{name}".replace("theory.", "")
                    found[path] = model.name, function
    return found


def homes() -> set[str]:
    """Names of all modules that are looked into."""
    systems = (model for model in registry.TABLE.values() if not model.systems)
    return {room.__name__ for m in systems for room in rooms(m.wing("theory"))}


def rooms(package: types.ModuleType) -> Iterator[types.ModuleType]:
    """Modules of numbers below a theory's package."""
    home = importlib.import_module(
        str(package.__package__)
    )  # a system may be one module of it
    beside = tuple(f"{m.path('theory')}." for m in registry.TABLE.values() if m.family)
    beside = tuple(x for x in beside if not f"{home.__name__}.".startswith(x))
    for info in pkgutil.walk_packages(home.__path__, f"{home.__name__}."):
        if f"{info.name}.".startswith(beside):
            continue  # another system's
        parts = info.name.removeprefix(home.__name__).split(".")
        here = info.name in OF_CHAPTERS or info.name.startswith(CHAPTERS)
        if here or set(parts) & set(ROOMS):
            yield importlib.import_module(info.name)


def made(example: Any) -> Any:
    """An example, made where it is a function."""
    return example() if isinstance(example, types.FunctionType) else example


def example(path: str) -> dict[str, Any]:
    """Arguments of a call that works.

    Raises
    ------
    LookupError
        Where one is not in the tables.
    """
    system, function = functions()[path]
    listed = [c for c in CASES.get(system, {}) if of(system, c) is function]
    given = dict(CASES[system][listed[0]][0]) if listed else {}
    own = next((v for end, v in SPECIAL.items() if path.endswith(end)), {})
    for x in inspect.signature(function).parameters.values():
        if x.kind in (x.VAR_KEYWORD, x.VAR_POSITIONAL) or x.name in given:
            continue
        if x.name in own:
            given[x.name] = own[x.name]
        elif x.name in ("p", "parameters"):
            given[x.name] = small(system, path.rpartition(".")[2])
        elif x.default is x.empty:
            if x.name not in EXAMPLES:
                raise LookupError(f"{path}: no example of {x.name}; add one")
            given[x.name] = EXAMPLES[x.name]
    return {name: made(v) for name, v in given.items()}
