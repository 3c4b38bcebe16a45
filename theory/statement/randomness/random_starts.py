"""Random initial weights: the mean of a class of entries starts at random, the flow
does the rest.

How entries scatter about the mean of their class is left out: that shifts a single
student's time in first order of their size, and quantiles of times in second order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from theory.call.refusal import Allowed, ParameterError, number
from theory.dynamics import prediction
from theory.dynamics.optimisers import Optimiser
from theory.numbers import numeric
from theory.numbers.streams import keyed
from theory.statement.evaluation import arrays
from theory.statement.words.tree import Random, Weight, require

STREAM = 4  # of a seed, beside those of teachers, inputs and weights of students
EVENTS = {
    "t_10": 0.1,
    "t_50": 0.5,
    "t_90": 0.9,
}  # by name, share of the fall of the loss
PILOTS = 64  # draws that find how far the loss falls, and how long that takes
PATIENCE = (
    4  # a run is long enough if the loss hardly falls over all but this part of it
)
SETTLED = 0.02  # part of the fall that is hardly any
LONGEST = 200_000  # steps of a run that looks for its own end
HALVINGS = 40  # of a step, to find where the loss crosses a level
ROOM = 2**22  # entries of weights that are drawn at once
ASSUMED = "class means alone are random: how entries scatter about them is left out"
HOW = "write weight(..., start=gaussian(sigma))"


def laws(made: Any) -> dict[Weight, Random]:
    """The weights that start at random, and how."""
    return {w: w.start for w in made.statement.weights if isinstance(w.start, Random)}


def sizes(made: Any, p: Any) -> dict[Weight, float]:
    """Size of the entries of every weight that starts at random.

    Raises
    ------
    ParameterError
        If one has no value or is not positive.
    """
    found = {}
    for w, law in laws(made).items():
        for s in law.size.free_symbols:
            message = (
                f"{s.name}: has no value; set it by --set {s.name}=VALUE, or by values="
                " in the statement"
            )
            require(getattr(p, s.name) is not None, message)
        found[w] = arrays.Data(p.as_dict()).scalar(law.size)
        message = f"weight {w.name}: start = {law}: is {found[w]:g}; must be above 0"
        require(found[w] > 0, message)
    return found


def entries(
    law: Random, size: float, shape: Sequence[int], rng: np.random.Generator
) -> np.ndarray:
    """Initial values of a weight, or of several: the last two axes are those of a
    matrix.
    """
    if law.kind == "gaussian":
        return size * rng.normal(size=shape)
    if law.kind == "uniform":
        return rng.uniform(-size, size, shape)
    *several, rows, columns = shape
    q, r = np.linalg.qr(
        rng.normal(size=(*several, max(rows, columns), min(rows, columns)))
    )
    q = size * q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
    return q if rows >= columns else np.swapaxes(q, -2, -1)


def variance(law: Random, size: float, shape: Sequence[int]) -> float:
    """Variance of an entry; entries are uncorrelated, also those of an orthogonal
    matrix.
    """
    return (
        size**2
        / {"gaussian": 1, "uniform": 3, "orthogonal": max(shape, default=1)}[law.kind]
    )


def variances(made: Any, p: Any) -> dict[Weight, float]:
    """Variance of the entries of every weight that starts at random;
    raises as `sizes`.
    """
    data, law = arrays.Data(p.as_dict()), laws(made)
    return {
        w: variance(law[w], x, data.shape(w.sorts)) for w, x in sizes(made, p).items()
    }


def starts(made: Any, p: Any, draws: int, seed: int = 0) -> xr.Dataset:
    """Draw initial values of the classes: the mean of n independent normal entries is
    normal, with variance sigma^2 / n; of other laws whole weights are drawn.

    Parameters
    ----------
    p : Parameters
        Sizes and numbers.
    draws : int
        How many starts.
    seed : int
        Of the draws. They are none of the students'.

    Returns
    -------
    Dataset
        A variable per class, over ``draw``.

    Raises
    ------
    ParameterError
        If no weight starts at random, the size of its entries has no value, or a class
        is empty.
    """
    require(
        laws(made),
        f"statement {made.statement.name}: no weight starts at random; {HOW}",
    )
    draws = number("seeds", draws, Allowed(low=1, high=10**6), int)
    scope = made.flow.scope
    if broken := scope.applies(p):  # without entries there is no mean, whoever insists
        raise ParameterError(broken[0] + scope.proposal(p))
    given = sizes(made, p)
    data = arrays.Data(arrays.counted(p))
    rng = keyed(seed, STREAM)
    data.tables = arrays.teachers(made.statement, data, rng)
    members = made.members(data)
    found: dict[str, np.ndarray] = {}
    for w in made.statement.weights:
        classes = [(k, c) for k, c in enumerate(made.classes) if c.weight is w]
        if w not in given:
            found |= {
                c.symbol.name: np.full(draws, data.scalar(w.mean)) for _, c in classes
            }
        elif w.start.kind == "gaussian":
            for k, c in classes:
                scale = given[w] / math.sqrt((members[w] == k).sum())
                found[c.symbol.name] = scale * rng.normal(size=draws)
        else:
            shape = members[w].shape
            block = max(ROOM // math.prod(shape), 1)
            many = [min(block, draws - n) for n in range(0, draws, block)]
            drawn = [entries(w.start, given[w], (n, *shape), rng) for n in many]
            for k, c in classes:
                here = members[w] == k
                found[c.symbol.name] = np.concatenate(
                    [x[:, here].mean(1) for x in drawn]
                )
    return xr.Dataset(
        {c.symbol.name: ("draw", found[c.symbol.name]) for c in made.classes},
        {"draw": range(draws)},
        {"kind": "theory", "parameters": p.as_json()},
    )


def means(
    made: Any, members: Mapping[Weight, np.ndarray], weights: Any
) -> dict[str, Any]:
    """Means of all classes, of weights by entry,
    or of several with the entries behind.
    """
    return {
        c.symbol.name: weights[c.weight][..., members[c.weight] == k].mean(-1)
        for k, c in enumerate(made.classes)
    }


def ordered(made: Any, means: Mapping[Any, Any]) -> np.ndarray:
    """Order parameters of the flow from values of the classes."""
    names = [c.symbol for c in made.classes]
    forms = numeric.compiled(names, list(made.quotient.order.values()))
    values = [np.asarray(means[x.name], float) for x in names]
    return np.array(np.broadcast_arrays(*forms(*values)))


def coefficients(made: Any) -> np.ndarray:
    """Matrix of the order parameters (rows) in the classes (columns)."""
    symbols = [c.symbol for c in made.classes]
    rows = []
    for form in made.quotient.order.values():
        rows.append([form.coeff(x) for x in symbols])
    return np.array(rows, float)


class Bulk:
    """Descent on a flow from many starts at once; states have shape ``(order
    parameters, draws)``.

    Parameters
    ----------
    flow : Flow
        Of a statement.
    p : Parameters
        Sizes, numbers, and the learning rate.
    """

    def __init__(self, flow: Any, p: Any) -> None:
        self.flow, self.eta = flow, p.eta
        free, self._rates, _, _ = flow._compiled
        numbers = p.as_dict()
        self._fixed = [float(numbers[s.name]) for s in free]
        shown = {k: flow._spell(e) for k, e in flow.observables.items()}
        read = set().union(*(e.free_symbols for e in shown.values()))
        others = sorted(read - {*flow.state}, key=str)
        self._others = [float(numbers[s.name]) for s in others]
        self._shown = {
            k: numeric.system([*flow.state, *others], [e]) for k, e in shown.items()
        }

    def rates(self, x: np.ndarray) -> np.ndarray:
        """Rates of the order parameters."""
        return np.array(
            [
                np.broadcast_to(r, x.shape[1:])
                for r in self._rates(0.0, *x, *self._fixed)
            ]
        )

    def shown(self, name: str, x: np.ndarray) -> np.ndarray:
        """The loss, or another observable."""
        with np.errstate(all="ignore"):  # of states that the next step refuses
            return np.broadcast_to(self._shown[name](*x, *self._others)[0], x.shape[1:])

    def step(self, x: np.ndarray) -> np.ndarray:
        """States after a step.

        Raises
        ------
        ParameterError
            If the descent diverges.
        """
        with np.errstate(all="ignore"):
            x = x + self.eta * self.rates(x)
        message = f"eta = {self.eta:g}: the descent diverges; take it smaller"
        require(np.isfinite(x).all(), message)
        return x

    def steps(self, x: np.ndarray) -> Iterator[np.ndarray]:
        """States before the first and after every step."""
        while True:
            yield x
            x = self.step(x)

    def at(self, x: np.ndarray, steps: Any) -> dict[str, np.ndarray]:
        """Order parameters and observables, of shape ``(draws, steps)``, after numbers
        of steps.
        """
        kept = {int(n) for n in steps}
        path = itertools.islice(self.steps(x), max(kept) + 1)
        states = np.array(
            [y for n, y in enumerate(path) if n in kept]
        )  # in order, none twice
        along = np.moveaxis(states, 0, -1)[:, :, np.searchsorted(sorted(kept), steps)]
        named = {k.name: v for k, v in zip(self.flow.state, along, strict=True)}
        return named | {k: self.shown(k, along) for k in self._shown}

    def fall(self, x: np.ndarray, most: int | None) -> tuple[float, int]:
        """Least loss at the end of a run, and its steps: as many as given, or until no
        draw's loss has fallen by much for most of it.
        """
        losses: list[np.ndarray] = []
        for n, y in enumerate(self.steps(x)):
            losses.append(self.shown("loss", y))
            if n == most or (most is None and n == LONGEST):
                break
            if most is None and n >= 64 and n & (n - 1) == 0:
                late = losses[n // PATIENCE] - losses[n]
                fallen = losses[0].max() - losses[n].min()
                if (
                    fallen > 1e-3 * abs(losses[0].max())
                    and (late < SETTLED * fallen).all()
                ):
                    break
        return float(losses[-1].min()), n

    def crossings(
        self, x: np.ndarray, levels: Sequence[float], most: int
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Times at which the loss falls below levels, and observables after the last of
        these.

        Between steps the loss is a cubic through its neighbours, smooth from one to the
        next: times are differentiable in the start.

        Parameters
        ----------
        x : array, shape (order parameters, draws)
        levels : sequence of float
            Falling.
        most : int
            Steps of the run.

        Returns
        -------
        times : array, shape (levels, draws)
            Zero where the loss starts below, infinite where a level is not reached.
        ends : dict of array
            NaN there.
        """
        alive = np.arange(x.shape[1])
        losses = [self.shown("loss", x)] * 2
        times = np.where(losses[0] <= np.array(levels)[:, None], 0.0, np.inf)
        ends = {k: np.full(len(alive), np.nan) for k in self._shown}
        for n in range(1, most + 2):
            x = self.step(x)
            losses = [*losses[-3:], self.shown("loss", x)]
            for k, level in enumerate(levels if n > 1 else ()):
                hit = np.isinf(times[k, alive]) & (losses[2] <= level)
                if hit.any():
                    share = _crossed([of[hit] for of in losses], level)
                    times[k, alive[hit]] = self.eta * (n - 2 + share)
            done = np.isfinite(times[-1, alive])
            if done.any():
                for name, values in ends.items():
                    values[alive[done]] = self.shown(name, x[:, done])
                alive = alive[~done]
                x = x[:, ~done]
                losses = [of[~done] for of in losses]
            if not len(alive):
                break
        return times, ends


def falling(begun: float, floor: float) -> list[float]:
    """Losses at which shares of the fall are done."""
    return [begun - share * (begun - floor) for share in EVENTS.values()]


def _crossed(losses: Sequence[np.ndarray], level: float) -> np.ndarray:
    """Where between the second and third of four equidistant values a cubic crosses a
    level.
    """
    a, b, c, d = losses
    low, high = np.zeros_like(b), np.ones_like(b)
    for _ in range(HALVINGS):
        s = (low + high) / 2
        cubic = 3 * (b - c) + d - a
        square = 2 * a - 5 * b + 4 * c - d + s * cubic
        value = b + s * ((c - a) + s * square) / 2
        low = np.where(value > level, s, low)
        high = np.where(value > level, high, s)
    return (low + high) / 2


def times(
    made: Any, p: Any, draws: int, seed: int = 0, until: float | None = None
) -> xr.Dataset:
    """Emergence times of drawn starts: when the loss has done a tenth, half and nine
    tenths of its fall, from that of the mean weights to the least that is reached.

    Parameters
    ----------
    made : Derived
        At sizes, if sums have to be written out.
    p : Parameters
    draws, seed
        As of `starts`.
    until : float, optional
        Length of the run; by default until no draw's loss falls any more.

    Returns
    -------
    Dataset
        ``t_10``, ``t_50`` and ``t_90`` over ``draw``, infinite where the loss is not
        reached within the run (``run``, an attribute); the observables once ``t_90``
        has passed.

    Raises
    ------
    ParameterError
        As `starts`; if the descent diverges, or the loss does not fall.
    """
    most = None if until is None else max(round(until / p.eta), 1)
    bulk = Bulk(made.flow, p)
    x = ordered(made, starts(made, p, draws, seed))
    pilots = ordered(made, starts(made, p, PILOTS, seed + 1))
    floor, steps = bulk.fall(pilots, most)
    begun = float(bulk.shown("loss", middle(made, p))[0])
    require(floor < begun, f"statement {made.statement.name}: the loss does not fall")
    levels = falling(begun, floor)
    steps *= 1 if most else PATIENCE
    found, ends = bulk.crossings(x, levels, steps)
    data = {
        name: ("draw", values, {"long_name": f"loss below {level:.4g}"})
        for name, values, level in zip(EVENTS, found, levels, strict=True)
    }
    data |= {
        k: ("draw", v, {"long_name": f"{k} once t_90 has passed"})
        for k, v in ends.items()
    }
    return xr.Dataset(
        data,
        {"draw": range(draws)},
        {
            "kind": "theory",
            "run": p.eta * steps,
            "loss_start": begun,
            "loss_end": floor,
            "parameters": p.as_json(),
            "assumptions": ASSUMED,
        },
    )


def followed(
    made: Any, p: Any, runs: xr.Dataset | None, until: float | None, seeds: int | None
) -> xr.Dataset:
    """Curves of single students from their own class means, or of drawn starts.

    Raises
    ------
    ParameterError
        If there are neither runs nor seeds, the runs lack their start, their optimiser
        is not plain descent, or as `theory.dynamics.prediction.clock` and `starts`.
    """
    names = [x.name for x in made.flow.state]
    if runs is None:
        message = (
            "seeds: how many starts? predict(p, seeds=5); or predict(p, runs) for"
            " trained students"
        )
        require(seeds is not None, message)
        label, numbers = "draw", list(range(seeds or 0))
        x = ordered(made, starts(made, p, seeds or 0))
    else:
        require(seeds is None, f"seeds = {seeds}: not together with runs")
        prediction.check_runs(p, runs, [*names, "t", "step"])
        plain = prediction.optimiser(runs) in (None, Optimiser())
        require(
            plain,
            "runs: weights that start at random are followed under plain descent alone",
        )
        first = runs.isel(t=0)
        require(
            int(first.step) == 0,
            "runs: must begin with step 0, the start of every student",
        )
        label = "seed"
        numbers = np.atleast_1d(runs.seed.values).tolist()
        x = np.array([np.atleast_1d(first[name].values) for name in names], float)
    steps, times = prediction.clock(p, runs, until)
    curves = Bulk(made.flow, p).at(x, steps)
    variables = {name: ((label, "t"), curve) for name, curve in curves.items()}
    coordinates = {label: numbers, "t": times, "step": ("t", steps)}
    attributes = {
        "kind": "theory",
        "flow": made.flow.name,
        "reference": made.reference,
        "status": "leading order",
        "assumptions": ASSUMED,
        "parameters": p.as_json(),
    }
    return p.timed(xr.Dataset(variables, coordinates, attributes))


def middle(made: Any, p: Any) -> np.ndarray:
    """Order parameters at the mean of the start, shape ``(order parameters, 1)``."""
    data = arrays.Data(p.as_dict())
    return ordered(
        made, {c.symbol.name: data.scalar(c.weight.mean) for c in made.classes}
    )[:, None]
