"""The edges of every argument of every public function of every model: a finite number, one that is
documented not to be finite, or one line that names the argument. No other error, no warning, no
silent nan, no work without end.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import pkgutil
import re
import signal
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import xarray as xr

from tests.theory.test_swept_numbers import CASES, DECAYING, OWN_FIELDS, SMALL, STATE, of
from theory import registry
from theory.flow import MOST_CALLS, Flow
from theory.parameters import BaseParameters, ParameterError

LIMIT = 60  # seconds of a call, on a machine with other things to do
ROOMS = ("numbers", "onset", "predict", "theory")  # functions of numbers; flat packages
CHAPTERS = "theory.state_tracking."  # where a derivation and its numbers are one file
ROOMS += ("fixed_point", "branches", "variants", "general")
# Functions of numbers in chapters that also derive.
OF_CHAPTERS = {
    "theory.induction_heads.all_weights.descent": "moving flow_of times curve",
    "theory.induction_heads.all_weights.law": "predicted effective_length slow_drop",
    "theory.induction_heads.all_weights.recent": "predicted exact",
    "theory.induction_heads.dynamics": "times",
    "theory.induction_heads.emergence": "times",
}
# Formulas in, formulas out.
SYMBOLIC = {"derived", "equations", "sections", "flow", "flows", "thermodynamic_limit", "mixture"}
# Parts of other functions, which have read the arguments; and figures.
INNER = {
    "arrivals": "emergence_steps",
    "variants": "rule low_degree_averages input_channel",
    "branches": "crossing",
    "proportional.onset": "charts",
    "positional_semantic.onset": "over_alpha",
    "general": "attention fields conjugates output_channel input_channel",
    "reward_onset": "curve",
    "state_tracking.onset": "secant sharp at_large_sizes rates growth early_mass "
    "early_difference exponent onset_A gain_of_flow departure_of_sharp",
    "linear_attention.theory": "plateau level merged_time",
    "onset": "curves curve draw report lines interpolated",
    "online.numbers": "numbers_at boundary end_of",
    "online.onset": "basins",
}
OF_REWARDS = ("rewards_time", "best_switch", "reward_stall", "critical_penalty")
REWARDED = [("state_tracking", name) for name in OF_REWARDS]
EDGES: dict[str, Any] = {
    "nan": math.nan,
    "inf": math.inf,
    "-1": -1,
    "0": 0,
    "1e300": 1e300,
    "1e-300": 1e-300,
    "10^18": 10**18,
    "2^70": 2**70,
    "None": None,
    "word": "nope",
    "complex": 1j,
    "True": True,
    "empty": [],
    "empty array": np.empty((0, 2)),
    "set": {1, 2},
    "ragged": [[1], [1, 2]],
    "true among numbers": [True, 8],
    "masked": lambda x: np.ma.masked_array([x, x], [False, True]),
    "dimension": lambda x: xr.DataArray([x, x], dims="edge"),
}


UNTIL = "until|alpha|t|run length"  # messages call the length of a run by the model's time


def small(system: str, function: str = "") -> BaseParameters:
    """Parameters at which every number is cheap, and that a function describes."""
    own = OWN_FIELDS.get((system, function), {})
    if (system, function) in REWARDED:
        own = {"reward": "step"}
    if function in DECAYING:
        own = {"weight_decay": 0.005, "d_h": 32}
    return registry.find(system).wing("theory").Parameters(**{**SMALL.get(system, {}), **own})


def start() -> Any:
    """Two seeds of state tracking."""
    from theory.state_tracking.realisation import Start

    return Start.drawn(small("state_tracking"), 2, np.random.default_rng(0))


def dressed() -> Any:
    """Their dressed theory."""
    from theory.state_tracking.dressed import Dressed

    return Dressed(small("state_tracking"), start())


def general() -> dict[str, Any]:
    """A system of the general state evolution, and where to start."""
    from theory.positional_semantic import general

    system = general.headline(small("positional_semantic"), points=64)
    order = general.starting_order(system, 0.5, 0.3, np.array([0.1, -0.1]), 12.0)
    return {"system": system, "start": order}


def regulariser() -> Any:
    """A ridge with a little lasso."""
    from theory.positional_semantic.variants import elastic_net

    return elastic_net(0.01, 0.001)


def fixed_point() -> Any:
    """A solution to look at."""
    from theory.positional_semantic import solve

    return solve(small("positional_semantic"), "semantic")


def curve() -> xr.Dataset:
    """A trajectory with logits."""
    from theory.state_tracking import flow

    return flow().solve(small("state_tracking"), alpha=0.5, at=[0.0, 0.5])


# What an argument is in a call that works, where neither its default nor its type says so.
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
    "lasso": 0.001,
    "log_size": 5.0,
    "mask": "strict",
    "norm": 0.5,
    "omega": 0.3,
    "omegas": [0.3],
    "overlap": 0.3,
    "point": fixed_point,
    "points": 64,
    "regulariser": regulariser,
    "ridge": 0.01,
    "rng": lambda: np.random.default_rng(0),
    "share": 0.5,
    "sigma_k": 0.5,
    "sigma_kbar": 0.5,
    "size": 3,
    "spread": 12.0,
    "start": start,
    "state": STATE,
    "system": dressed,
    "t": 2.0,
    "teachers": "D_4",
    "x": 0.1,
    "z": 0.5,
}
# By function, where a name means something else there.
SPECIAL: dict[str, dict[str, Any]] = {
    "general.solve": {"system": lambda: general()["system"], "start": lambda: general()["start"]},
    "general.starting_order": {"system": lambda: general()["system"], "m": np.array([0.1, -0.1])},
    "integrate.half_times": {"epochs": 20},
    "integrate.data_scatter": {"alpha": 3.0},
    "law.effective_length": {"size": 512, "right": 2},
    "recent.predicted": {"size": 32, "window": 0.25, "rtol": 1e-4},
    "recent.exact": {"size": 16, "window": 0.25, "rtol": 1e-4},
    "order.without_order": {"L": 4},
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
    """System and function by name: what a theory's package offers, and the rooms of its numbers."""
    found: dict[str, tuple[str, Callable]] = {}
    for model in registry.TABLE.values():
        if model.systems:  # a family: what its systems have
            continue
        package = model.wing("theory")
        chapters = {package.__name__, *(x.__name__ for x in rooms(package))}
        chapters = {x for x in chapters if x.startswith(CHAPTERS)}
        for home in (package, *rooms(package)):
            names = getattr(home, "__all__", [n for n in vars(home) if not n.startswith("_")])
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
                if home.__name__ in chapters and not (checked(function) or name == "rollout"):
                    continue  # formulas, and parts of other functions
                if getattr(function, "__module__", "").startswith("theory.statement"):
                    continue  # of any statement: tests/theory/statement
                if home is not package and getattr(function, "__module__", "") != home.__name__:
                    continue
                if name not in SYMBOLIC | inner and function not in [f for _, f in found.values()]:
                    path = f"{function.__module__}.{name}".replace("theory.", "")
                    found[path] = model.name, function
    return found


def homes() -> set[str]:
    """Names of all modules that are looked into."""
    systems = (model for model in registry.TABLE.values() if not model.systems)
    return {room.__name__ for m in systems for room in rooms(m.wing("theory"))}


def rooms(package: types.ModuleType) -> Iterator[types.ModuleType]:
    """Modules of numbers below a theory's package."""
    home = importlib.import_module(str(package.__package__))  # a system may be one module of it
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


@pytest.fixture(autouse=True)
def _soon(monkeypatch) -> None:
    """An integration that goes nowhere is given up after a tenth of the usual evaluations."""
    monkeypatch.setattr(Flow._functions, "__defaults__", (MOST_CALLS / 10,))


class Late(Exception):
    """A call took too long."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Stop what takes longer."""

    def late(*_: Any) -> None:
        raise Late(f"not done in {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def numbers(result: Any) -> Iterator[float]:
    """All numbers of a result."""
    if hasattr(result, "absent"):  # an onset says itself what is not finite
        yield from (v for n, v in result.numbers.items() if n not in result.absent)
    elif hasattr(result, "summary"):
        yield from numbers(result.summary())
    elif isinstance(result, xr.Dataset):
        yield from numbers([result[name].values for name in result.data_vars])
    elif isinstance(result, Mapping):
        yield from numbers(list(result.values()))
    elif isinstance(result, list | tuple):
        for part in result:
            yield from numbers(part)
    elif np.asarray(result).dtype.kind in "iufc":
        yield from np.ravel(result).tolist()


def dimensions(result: Any) -> set[str]:
    """Names of dimensions of a result."""
    if isinstance(result, dict):
        return set().union(*map(dimensions, result.values()))
    return set(getattr(result, "dims", ()))


def call(function: Callable, arguments: Mapping[str, Any]) -> Any:
    """The result of a call; parameters go by position, as `sweep.over_fields` wants them."""
    first = next(iter(inspect.signature(function).parameters))
    rest = {name: v for name, v in arguments.items() if name != first}
    with warnings.catch_warnings(), within(LIMIT):
        warnings.simplefilter("error")
        result = function(arguments[first], **rest) if first in arguments else function(**rest)
        return list(result) if inspect.isgenerator(result) else result


def fault(function: Callable, arguments: Mapping[str, Any], name: str, edge: str) -> str | None:
    """What is wrong with a call, one of whose arguments is an edge; None if nothing is."""
    try:
        result = call(function, arguments)
    except ParameterError as error:
        said = str(error)
        if "\n" in said:
            return f"several lines: {said!r}"
        names = UNTIL if name == "until" else name
        return None if re.search(rf"\b({names})\b", said) else f"does not name it: {said}"
    except (Exception, Late) as error:
        return f"{type(error).__name__}: {error}"
    found, said = list(numbers(result)), inspect.getdoc(function) or ""
    if any(isinstance(v, complex) for v in found):
        return f"complex: {result!r}"
    if edge == "dimension" and "edge" not in dimensions(result):
        return f"a dimension is lost: {result!r}"
    if any(math.isnan(v) for v in found) and "NaN" not in said:
        return f"nan, which is not documented: {result!r}"
    if any(math.isinf(v) for v in found) and "infinite" not in said:
        return f"infinite, which is not documented: {result!r}"
    return None


def edges(example: Any) -> Iterator[tuple[str, Any]]:
    """Edges by name; those made from a value that works, where there is one number."""
    for edge, value in EDGES.items():
        if not isinstance(value, types.FunctionType):
            yield edge, value
        elif isinstance(example, int | float) and not isinstance(example, bool):
            yield edge, value(example)


def at_arguments(path: str) -> dict[str, str]:
    """What is wrong at the edges of a function's own arguments."""
    _, function = functions()[path]
    working, found = example(path), {}
    call(function, working)
    for x in inspect.signature(function).parameters.values():
        if x.kind in (x.VAR_KEYWORD, x.VAR_POSITIONAL):
            continue
        for edge, changed in edges(value := working.get(x.name, x.default)):
            if changed is value:
                continue
            wrong = fault(function, {**example(path), x.name: changed}, x.name, edge)
            found |= {f"{x.name} = {edge}": wrong} if wrong else {}
    return found


def at_fields(path: str) -> dict[str, str]:
    """What is wrong at parameters, one field of which is an edge that they allow."""
    system, function = functions()[path]
    found: dict[str, str] = {}
    first = next(iter(inspect.signature(function).parameters))
    given = example(path)
    if isinstance(given.get(first), BaseParameters):
        for name, edge, q in allowed(given[first]):
            names = "|".join([*q.as_dict(), *given])  # what else it does not go with, perhaps
            wrong = fault(function, given | {first: q}, names, edge)
            found |= {f"{name} = {edge}": wrong} if wrong else {}
    return found


def allowed(p: BaseParameters) -> Iterator[tuple[str, str, BaseParameters]]:
    """Parameters with an edge in a field, as far as they allow it."""
    for name, value in p.as_dict().items():
        for edge, changed in edges(value):
            with contextlib.suppress(ParameterError):
                if (q := p.replace(**{name: changed})) != p:
                    yield name, edge, q


# Seconds at some edge, or of derivation before the first.
LONG = ("branches", "thresholds", "general.solve", "positional_semantic.onset", "transverse")
LONG += ("all_weights", "law.", "continue_branch", "low_degree", "solve_regularised")
LONG += ("fixed_point", "positional_semantic.online")
SAID = [
    pytest.param(path, id=path, marks=[pytest.mark.slow] * any(x in path for x in LONG))
    for path in functions()
]
# How long the curves of `predict` are is a matter of training: tests of `predict` ask.
OF_FIELDS = [x for x in SAID if not x.id.endswith(".predict")]


@pytest.mark.parametrize("path", [x.id for x in SAID])
def test_every_function_has_a_call_that_works(path):
    """Arguments from types, defaults and the tables above, which are complete."""
    assert example(path)


def test_tables_name_what_there_is():
    """No example, no inner part and no mark for long is left of a function that went."""
    names = [(home, set(vars(importlib.import_module(home)))) for home in sorted(homes())]
    for end, parts in INNER.items():
        known = set().union(*(found for home, found in names if home.endswith(end)))
        assert set(parts.split()) <= known, end
    used = {n for _, f in functions().values() for n in inspect.signature(f).parameters}
    assert set(EXAMPLES) <= used
    assert all(any(path.endswith(x) for path in functions()) for x in SPECIAL)
    assert all(any(x in path for path in functions()) for x in LONG)


@pytest.mark.parametrize("path", SAID)
def test_edges_of_arguments(path):
    """Every argument at every edge, one at a time."""
    assert at_arguments(path) == {}


@pytest.mark.parametrize("path", OF_FIELDS)
def test_edges_of_fields(path):
    """Every field of the parameters at every edge that they allow."""
    assert at_fields(path) == {}


@pytest.mark.parametrize("system", sorted({system for system, _ in functions().values()}))
def test_parameters_hold_edges_or_name_them(system):
    """A field is refused by name in one line, or holds what was given."""
    p = small(system)
    for name, value in p.as_dict().items():
        for edge, changed in edges(value):
            try:
                held = getattr(p.replace(**{name: changed}), name)
            except ParameterError as error:
                assert f"{name} = " in str(error) and "\n" not in str(error), edge
            else:
                assert held == changed and type(held) in (bool, int, float, str, type(None)), edge
