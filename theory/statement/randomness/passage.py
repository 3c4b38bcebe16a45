"""Closed forms of emergence times from small random weights, with constants from
noiseless runs.

Where weights of mean size are no fixed point, times are normal: a linear response.
Where they are a saddle, the fastest directions grow from normal amplitudes until the
loss falls: first passage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special
import scipy.stats
import sympy as sp

from theory.equations.equation import Equation
from theory.statement.derivation import symmetry
from theory.statement.evaluation import arrays
from theory.statement.randomness import minibatches, random_starts
from theory.symbols import notation
from theory.symbols.fractions import factored

ALIKE = 1e-6  # relative difference of growth rates that are one
STILL = 1e-9  # rate of a fixed point
# amplitude that a noiseless run starts from, the fastest eigenvector of length one
SMALL = 1e-4
DIRECTIONS = 1024  # of several equally fast ones, as constants depend on the direction
# evaluations of the loss, times inputs, that slopes of all entries may cost: seconds
MOST = 4e6
SHIFT = 1e-4  # of an entry, in a difference of slopes
MEAN_LOG = math.exp(
    -(np.euler_gamma + math.log(2)) / 2
)  # mean of ln |z|, z normal, as a length
MOST_BESIDE = (
    10_000  # steps until the loss falls, where second moments are followed: seconds
)
SEED = 0  # of the directions

TIME = notation.symbol("t", means="time: learning rate times steps", real=True)
LENGTH = notation.symbol(
    "r", means="length of the amplitudes at the start", positive=True
)
RATE = notation.symbol(
    "Lambda", r"\Lambda", "growth rate of descent in steps", positive=True
)
CONSTANT = notation.symbol(
    "C", means="length at the start from which the loss falls at once", positive=True
)
SIGMA = notation.symbol(
    "sigma_a", r"\sigma_a", "standard deviation of the amplitudes", positive=True
)
GROWTH = notation.symbol("growth_1", means="growth rate at zero weights", positive=True)
ETA = notation.symbol("eta", r"\eta", "learning rate", positive=True)


@dataclass(frozen=True)
class Passage:
    """Law of the time at which the loss falls, in closed form.

    Attributes
    ----------
    saddle : bool
        Whether weights of mean size are a fixed point.
    many : int
        Number of directions that grow fastest; 0 if there is no saddle.
    rate : float
        Growth rate of descent in steps; of no saddle, the mean time.
    constants : array
        Per direction the length of the amplitudes, in their standard deviation, from
        which the loss falls at once; of no saddle, the standard deviation of the time.
    next : float
        Relative size of the next order: of no saddle how far the 5% and 95% quantiles
        are off along the most likely starts, else what the second fastest direction
        adds.
    power : float
        Of the size of weights, to which the next order is proportional.
    along : array, shape (order parameters, directions)
        By what a start differs from the mean that has these amplitudes, one standard
        deviation long; of no saddle, nothing.
    """

    saddle: bool
    many: int
    rate: float
    constants: np.ndarray
    next: float
    power: float
    along: np.ndarray

    def later(self, t: Any) -> np.ndarray:
        """Share of starts at which the loss has not fallen by a time."""
        t = np.asarray(t, float)
        if not self.saddle:
            return scipy.stats.norm.sf(t, self.rate, self.constants[0])
        lengths = self.constants * np.exp(-self.rate * t[..., None])
        return scipy.special.gammainc(self.many / 2, lengths**2 / 2).mean(-1)

    def quantile(self, q: float) -> float:
        """Time by which the loss has fallen in this share of starts."""
        if not self.saddle:
            return float(scipy.stats.norm.ppf(q, self.rate, self.constants[0]))
        ends = np.log(
            self.constants[[self.constants.argmin(), self.constants.argmax()]]
        )
        low, high = (ends + [-5.0, 30.0]) / self.rate
        return float(scipy.optimize.brentq(lambda t: 1 - self.later(t) - q, low, high))

    def equations(self, made: Any) -> list[Equation]:
        """The law, derived from that of the amplitudes, and of the times if there is no
        saddle.
        """
        assumed = (
            *made.assumptions,
            random_starts.ASSUMED,
            *["mean over directions"] * self.saddle,
        )
        about = (made.reference, "leading order", assumed)
        if not self.saddle:
            T = notation.symbol("T", means="time at which the loss falls")
            variances = []
            for c in made.classes:
                slope = notation.symbol(f"dT_d{c.label}")
                if c.weight in random_starts.laws(made):
                    variances.append((slope * c.weight.start.size) ** 2 / c.size)
            spread = sp.Function("sd")(T)
            return [
                Equation("time_spread", spread, sp.sqrt(sp.Add(*variances)), *about)
            ]
        (time,) = sp.solve(sp.log(LENGTH) + RATE * TIME - sp.log(CONSTANT), TIME)
        density = LENGTH ** (self.many - 1) * sp.exp(-(LENGTH**2) / (2 * SIGMA**2))
        norm = sp.integrate(density, (LENGTH, 0, sp.oo))
        below = sp.integrate(density, (LENGTH, 0, CONSTANT))
        late = factored(below / norm).subs(CONSTANT, CONSTANT * sp.exp(-RATE * TIME))
        T = notation.symbol("T")
        chance = sp.Function("P")(sp.Gt(T, TIME, evaluate=False))
        growth = sp.log(1 + ETA * GROWTH) / ETA
        return [
            Equation("growth_in_steps", RATE, growth, *about),
            Equation("time_of_start", T, time, *about),
            Equation("survival", chance, late, *about),
        ]


def passage(made: Any, p: Any, level: float, most: int) -> Passage | str:
    """Closed form at given parameters, or why there is none.

    Parameters
    ----------
    made : Derived
        At sizes, if sums have to be written out.
    p : Parameters
    level : float
        Of the loss.
    most : int
        Steps of a noiseless run.
    """
    for w, law in random_starts.laws(made).items():
        if law.kind != "gaussian":
            return f"weight {w.name} starts as {law}, and closed forms are for gaussian"
    bulk, mixed = random_starts.Bulk(made.flow, p), covariance(made, p)
    mean = random_starts.middle(made, p)
    moved = np.abs(bulk.rates(mean)).max()
    if moved > STILL:
        return _response(bulk, mean, mixed, level, most)
    free, _, slopes, _ = made.flow._compiled
    jacobian = np.array(
        slopes(0.0, *mean[:, 0], *[float(p.as_dict()[s.name]) for s in free]), float
    )
    values, vectors = np.linalg.eig(jacobian)
    order = np.argsort(-values.real)
    values, vectors = values.real[order], vectors.real[:, order]
    if not values[0] > STILL:
        return _slow(bulk, mean, mixed)
    many = int((values > values[0] * (1 - ALIKE)).sum())
    read = np.linalg.pinv(vectors)[:many]  # amplitudes of a state
    amplitudes = read @ mixed @ read.T
    if not np.linalg.eigvalsh(amplitudes).min() > 0:
        return "the fastest direction does not start at random"
    root = np.linalg.cholesky(amplitudes)  # from independent normal numbers
    u = np.array([[1.0, -1.0]])
    if many > 1:
        u = random_starts.keyed(SEED, random_starts.STREAM).normal(
            size=(many, DIRECTIONS)
        )
        u /= np.sqrt((u**2).sum(0))
    along = vectors[:, :many] @ root @ u
    scale = SMALL / np.abs(root).max()
    found, _ = bulk.crossings(mean + scale * along, [level], most)
    if not np.isfinite(found).all():
        return (
            "the fastest direction alone does not bring the loss half-way: plateaus"
            " follow"
        )
    rate = math.log(1 + p.eta * values[0]) / p.eta
    power = 1 - (max(values[many], 0) / values[0] if many < len(values) else 0.0)
    constants = scale * np.exp(rate * found[0])
    next_order = float(np.median(constants) ** -power)
    return Passage(True, many, rate, constants, next_order, power, along)


def covariance(made: Any, p: Any) -> np.ndarray:
    """Covariance of the order parameters at the start."""
    data, of_entry = arrays.Data(p.as_dict()), random_starts.variances(made, p)
    spread = [of_entry.get(c.weight, 0.0) / data.scalar(c.size) for c in made.classes]
    linear = random_starts.coefficients(made)
    return linear @ np.diag(spread) @ linear.T


def beside(made: Any, p: Any, found: Passage | str, level: float) -> float:
    """What the scatter of entries about the means of their classes adds to the mean
    time at which the loss falls to a level, in second order of their size. NaN where
    that is too large, and where several directions grow as fast, or none.

    Where one direction grows, the mean over both of its signs, at amplitudes whose time
    is the mean one: from student to student it differs in first order.
    """
    if isinstance(found, str) or found.many > 1:
        return np.nan
    starting = (random_starts.middle(made, p) + MEAN_LOG * found.along).T
    (times,), _ = random_starts.Bulk(made.flow, p).crossings(
        starting.T, [level], MOST_BESIDE
    )
    if not np.isfinite(times).all():
        return np.nan
    steps = [np.arange(round(2 * t / p.eta) + 2) for t in times]
    paths = [
        minibatches.path(made, p, n, x) for n, x in zip(steps, starting, strict=True)
    ]
    return float(np.mean([along.crossing("loss", level)[1] for along in paths]))


def _slow(bulk: Any, mean: np.ndarray, mixed: np.ndarray) -> str:
    """Why nothing grows exponentially: the lowest power of small weights in their
    rates.
    """
    x = np.linalg.cholesky(mixed + STILL * np.eye(len(mixed)))[:, -1:] + mixed.sum(
        1, keepdims=True
    )
    x = SMALL * x / np.abs(x).max()
    sizes = [np.abs(bulk.rates(mean + k * x)).max() for k in (1, 2)]
    if not sizes[0] > 0:
        return "nothing grows from the mean of the start"
    power = round(math.log2(sizes[1] / sizes[0])) - 1
    return (
        "nothing grows exponentially: times fall as the size of initial weights to the"
        f" power {-power}"
    )


def _response(
    bulk: Any, mean: np.ndarray, mixed: np.ndarray, level: float, most: int
) -> Passage:
    steps = SMALL * np.eye(len(mean))
    found, _ = bulk.crossings(
        np.hstack([mean, mean + steps, mean - steps]), [level], most
    )
    first, up, down = np.split(found[0], [1, 1 + len(mean)])
    slope = (up - down) / (2 * SMALL)
    spread = math.sqrt(slope @ mixed @ slope)
    z = scipy.stats.norm.ppf([0.05, 0.95])
    likely = (mixed @ slope / max(spread, STILL))[:, None] * z
    far, _ = bulk.crossings(mean + likely, [level], most)
    off = np.abs(far[0] - first - spread * z).max() / first[0]
    return Passage(
        False, 0, float(first[0]), np.array([spread]), float(off), 2.0, 0 * mean
    )


def outside(made: Any, p: Any) -> tuple[float, float] | None:
    """Largest growth rates at the mean weights, within the classes and outside of them,
    from slopes of all entries over all inputs; None where these are too many.
    """
    stated = made.statement
    rng = random_starts.keyed(SEED, random_starts.STREAM)
    try:
        data = arrays.every_input(stated, arrays.counted(p), rng)
    except arrays.Unlisted:
        return None
    members = made.members(data)
    start = {w: np.full(m.shape, data.scalar(w.mean)) for w, m in members.items()}
    ends = np.cumsum([0, *(m.size for m in members.values())])
    entries = int(ends[-1])
    if entries * (entries + 1) * len(data.chances) > MOST:
        return None

    def slope(shift: np.ndarray, along: np.ndarray) -> float:
        parts = np.split(shift + symmetry.STEP * along, ends[1:-1])
        weights = {
            w: x + part.reshape(x.shape)
            for (w, x), part in zip(start.items(), parts, strict=True)
        }
        value = arrays.mean(data, arrays.Evaluation(data, weights).value(stated.loss))
        return float(np.imag(value) / abs(symmetry.STEP))

    unit = np.eye(entries)
    hessian = np.zeros((entries, entries))
    for i in range(entries):
        for j in range(i + 1):
            change = slope(SHIFT * unit[i], unit[j]) - slope(-SHIFT * unit[i], unit[j])
            hessian[i, j] = hessian[j, i] = change / (2 * SHIFT)
    number = np.concatenate([m.ravel() for m in members.values()])
    inside = np.array(
        [
            (number == k) / math.sqrt((number == k).sum())
            for k in range(len(made.classes))
        ]
    )
    rest = scipy.linalg.null_space(inside)
    rates = [
        np.linalg.eigvalsh(-q.T @ hessian @ q).max(initial=-np.inf)
        for q in (inside.T, rest)
    ]
    return float(rates[0]), float(rates[1])
