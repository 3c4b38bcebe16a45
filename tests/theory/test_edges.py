"""The edges of every argument of every public function of every model: a finite number,
one that is documented not to be finite, or one line that names the argument. No other
error, no warning, no silent nan, no work without end.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import re
import signal
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import xarray as xr
from calls import EXAMPLES, INNER, SPECIAL, example, functions, homes, small

from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError
from theory.dynamics.flow import MOST_CALLS, Flow

LIMIT = 60  # seconds of a call, on a machine with other things to do
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
UNTIL = (  # messages call the length of a run by the model's time
    "until|alpha|t|run length"
)


@pytest.fixture(autouse=True)
def _soon(monkeypatch) -> None:
    """An integration that goes nowhere is given up after a tenth of the usual
    evaluations.
    """
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
    """The result of a call; parameters go by position, as `sweep.over_fields` wants
    them.
    """
    first = next(iter(inspect.signature(function).parameters))
    rest = {name: v for name, v in arguments.items() if name != first}
    with warnings.catch_warnings(), within(LIMIT):
        warnings.simplefilter("error")
        result = (
            function(arguments[first], **rest)
            if first in arguments
            else function(**rest)
        )
        return list(result) if inspect.isgenerator(result) else result


def fault(
    function: Callable, arguments: Mapping[str, Any], name: str, edge: str
) -> str | None:
    """What is wrong with a call, one of whose arguments is an edge;
    None if nothing is.
    """
    try:
        result = call(function, arguments)
    except ParameterError as error:
        said = str(error)
        if "\n" in said:
            return f"several lines: {said!r}"
        names = UNTIL if name == "until" else name
        return (
            None if re.search(rf"\b({names})\b", said) else f"does not name it: {said}"
        )
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
            names = "|".join(
                [*q.as_dict(), *given]
            )  # what else it does not go with, perhaps
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
LONG = (
    "branches",
    "thresholds",
    "general.solve",
    "positional_semantic.onset",
    "transverse",
)
LONG += ("all_weights", "law.", "continue_branch")
LONG += ("fixed_point",)
LONG += ("onset.emergence_times", "linear_attention.drops")
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
    """No example, no inner part and no mark for long
    is left of a function that went.
    """
    names = [
        (home, set(vars(importlib.import_module(home)))) for home in sorted(homes())
    ]
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


@pytest.mark.parametrize(
    "system", sorted({system for system, _ in functions().values()})
)
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
                assert held == changed and type(held) in (
                    bool,
                    int,
                    float,
                    str,
                    type(None),
                ), edge
