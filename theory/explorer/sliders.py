"""Sliders of a page: allowed values of a field, and the quantities that a formula
depends on.
"""

import dataclasses
import functools
import itertools
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from theory.call import sweep
from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError

STEPS = 20  # places of a slider on either side of its value
FACTOR = {int: 16.0, float: 100.0}  # from the value to either end
# Random places at which a derived number is compared with the product or sum it is
# tabulated as, and the relative error allowed: roundings of a few parts.
PROBES, CLOSE = 24, 1e-9

Fits = Callable[[BaseParameters], bool]
# How a number follows from several fields: the part of one field, and all parts
# together.
WAYS: dict[
    str, tuple[Callable[[float, float], float], Callable[[float, Any], float]]
] = {
    "product": (
        lambda value, base: value / base if base else math.nan,
        lambda base, parts: base * math.prod(parts),
    ),
    "sum": (lambda value, base: value - base, lambda base, parts: base + sum(parts)),
}


@dataclasses.dataclass(frozen=True)
class Follows:
    """How a number that is no field follows from the sliders.

    Attributes
    ----------
    way : {'product', 'sum'}
        How its parts go together, starting from its value where all sliders start.
    parts : dict
        By field, its part at each place of the slider.
    """

    way: str
    parts: dict[str, list[float]]


def moved(p: BaseParameters, names: list[str], fits: Fits) -> dict[str, list[Any]]:
    """Values of all sliders: of every field that one of the numbers follows from."""
    fields = [f.name for f in dataclasses.fields(p) if _moves(p, f.name, names)]
    return {f: v for f in fields if len(v := steps(p, f, fits)) > 1}


def steps(p: BaseParameters, field: str, fits: Fits) -> list[Any]:
    """Values that a field may take on its slider."""
    value = getattr(p, field)
    whole = isinstance(value, int)
    if value > 0:
        factor = FACTOR[int if whole else float]
        values = np.geomspace(value / factor, value * factor, 2 * STEPS + 1)
    else:
        values = np.linspace(value - 1, value + 1, 2 * STEPS + 1)
    tried = {round(v) for v in values} if whole else {float(f"{v:.6g}") for v in values}

    def allowed(v: Any) -> bool:
        return fits(p.replace(**{field: v}))

    return [v for v in sorted(tried | {value}) if _holds(allowed, v)]


@functools.cache
def _related(kind: type[BaseParameters]) -> type[BaseParameters]:
    """The same parameters, which check no single field but only relations between
    fields.
    """
    return types.new_class(
        kind.__name__,
        (kind,),
        exec_body=lambda names: names.update(_check=lambda *_: None),
    )


@functools.lru_cache(1 << 17)  # flows and closed forms ask for the same pairs
def _beside(p: BaseParameters, *change: tuple[str, Any]) -> BaseParameters | None:
    """Parameters with values that are allowed one by one; None if they are not allowed
    together.
    """
    kind = _related(type(p))
    q = object.__new__(kind)
    vars(q).update(
        {name: getattr(p, name) for name in kind.__dataclass_fields__} | dict(change)
    )
    try:
        q.__post_init__()
    except ParameterError:
        return None
    return q


def _holds(question: Callable[[Any], bool], about: Any) -> bool:
    try:
        return question(about)
    except ParameterError:
        return False


def clashes(
    p: BaseParameters, fits: Fits, moves: dict[str, list[Any]]
) -> dict[str, list[str]]:
    """Pairs of values that are not allowed together: per pair of fields ``"f g"`` a row
    of letters for each value of f, ``x`` where a value of g does not fit.
    """

    def letter(*change: tuple[str, Any]) -> str:
        q = _beside(p, *change)
        return "." if q is not None and _holds(fits, q) else "x"

    pairs = {}
    for f, g in itertools.combinations(moves, 2):
        rows = []
        for v in moves[f]:
            rows.append("".join(letter((f, v), (g, w)) for w in moves[g]))
        if any("x" in row for row in rows):
            pairs[f"{f} {g}"] = rows
    return pairs


def followed(
    p: BaseParameters, names: list[str], moves: dict[str, list[Any]]
) -> tuple[dict[str, Follows], dict[str, list[Any]]]:
    """How numbers that are no fields follow from the sliders; and the sliders, without
    those whose effect is neither a factor nor a summand.
    """

    def numbers(**change: Any) -> dict[str, float]:
        monomials = sweep.numbers(p.replace(**change), names)
        return {n: float(monomials[n]) for n in names}

    base = numbers()
    fields = {f.name for f in dataclasses.fields(p) if getattr(p, f.name) is not None}
    derived = [n for n in names if n not in fields]
    along = {}
    for f, values in moves.items():
        along[f] = [numbers(**{f: v}) for v in values]
    monomials, dropped = {}, set()
    for n in derived:
        changing = []
        for f, rows in along.items():
            if any(row[n] != base[n] for row in rows):
                changing.append(f)
        candidates = []
        for way, (part, _) in WAYS.items():
            follows = Follows(way, {})
            for f in changing:
                follows.parts[f] = [part(row[n], base[n]) for row in along[f]]
                if not _follows(numbers, base[n], n, follows, moves):
                    del follows.parts[f]
            candidates.append(follows)
        # The first of equals.
        monomials[n] = max(candidates, key=lambda follows: len(follows.parts))
        dropped |= {f for f in changing if f not in monomials[n].parts}
    read = {f for f in moves if f in names}
    for follows in monomials.values():
        for f in dropped & follows.parts.keys():
            del follows.parts[f]
        read.update(follows.parts)
    return monomials, {f: v for f, v in moves.items() if f in read - dropped}


def _follows(
    numbers: Callable[..., dict[str, float]],
    base: float,
    name: str,
    follows: Follows,
    values: dict[str, list[Any]],
) -> bool:
    """Whether a number is made of its parts, at random places of all its sliders."""
    rng = np.random.default_rng(0)
    together = WAYS[follows.way][1]
    for _ in range(PROBES):
        drawn = {f: int(rng.integers(len(values[f]))) for f in follows.parts}
        try:
            true = numbers(**{f: values[f][k] for f, k in drawn.items()})[name]
        except ParameterError:  # values that clash: no curve there
            continue
        made = together(base, [follows.parts[f][k] for f, k in drawn.items()])
        if not abs(made - true) <= CLOSE * abs(true):
            return False
    return True


def _moves(p: BaseParameters, field: str, names: list[str]) -> bool:
    """Whether a field is a number that others follow from:
    its value doubled or halved.
    """
    value = getattr(p, field)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    base = sweep.numbers(p, names)

    def changes(other: float) -> bool:
        changed = sweep.numbers(p.replace(**{field: other}), names)
        return any(changed.get(n) != base[n] for n in names)

    halved = value // 2 if isinstance(value, int) else value / 2
    return any(_holds(changes, other) for other in (2 * value or 1, halved))


def described(
    p: BaseParameters, names: list[str], fits: Fits, asked: Fits
) -> dict[str, Any]:
    """Numbers of a formula, sliders, and how the numbers follow from them, as data of a
    page.

    Parameters
    ----------
    p : Parameters
        Where the sliders start.
    names : list of str
        Numbers that the formula reads.
    fits, asked : callable
        Whether parameters have a curve; and the same, without computing numbers, for
        all pairs of values. Either may raise a `ParameterError` instead.
    """
    follows, moves = followed(p, names, moved(p, names, fits))
    numbers = sweep.numbers(p, names)
    fields = {f: slider(p, f, values) for f, values in moves.items()}
    return {
        "needs": names,
        "numbers": {n: float(numbers[n]) for n in names},
        "fields": fields,
        "follows": {n: dataclasses.asdict(of) for n, of in follows.items()},
        "clashes": clashes(p, asked, moves),
    }


def slider(p: BaseParameters, field: str, values: list[Any]) -> dict[str, Any]:
    """A slider: its values, the index of the one nearest to the field's own value, and
    the meaning of the field.
    """
    own = getattr(p, field)
    near = (
        range(len(values))
        if own is None
        else np.argsort([abs(v - own) for v in values])
    )
    start = len(values) // 2 if own is None else int(near[0])
    doc = next(f.metadata["doc"] for f in dataclasses.fields(p) if f.name == field)
    return {"values": values, "start": start, "doc": doc}
