"""Theory of the extensions of App. E.3 of Cui et al. (arXiv:2402.03902): correlated tokens, a
trained full value matrix, two columns of queries. Fixed points of the extended layer: branches,
losses, and where they cross.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import xarray as xr

from theory import Allowed, ParameterError, scope
from theory.positional_semantic import general
from theory.positional_semantic.branches import Missing, crossing
from theory.positional_semantic.channel import State
from theory.positional_semantic.extensions.layer import (
    Extended,
    Values,
    compiled,
    equations,
    extended,
    output_channel,
)
from theory.positional_semantic.fixed_point import VANISHED
from theory.positional_semantic.onset import SHARED, over_alpha
from theory.positional_semantic.parameters import FREE, HOW, TO_MINIMUM, Parameters
from theory.positional_semantic.prox import NotConverged
from theory.positional_semantic.state_evolution import STARTS, in_range
from theory.scope import Limit, Scope, only

__all__ = ["Point", "critical", "equations", "predict", "solve"]

# Which students the theory of the extensions describes

OPEN = Limit("correlation", "between -1 and 1, exclusively", lambda p, runs: abs(p.correlation) < 1)
LAYER = (only("tied", True), OPEN)
DIVIDED = Limit(
    "start",
    "mixed where columns are heads (from another start both may end with both overlaps)",
    lambda p, runs: not p.heads or p.start == "mixed",
)
EXTENDED = Scope(
    "state evolution with extensions",
    "minima from informed starts: correlated tokens, values of full or low rank, two columns of Q "
    "or two heads",
    (*LAYER, only("start", "positional", "semantic", "mixed"), *TO_MINIMUM, DIVIDED),
    FREE,
    remedy="untied keys: theory.positional_semantic.general.System",
)
CROSSING = Scope(
    "alpha_c with extensions",
    "the crossing of the two minima of a layer of rank one",
    (*LAYER, only("rank", 1)),
    (*HOW, "polish", "start"),
    remedy="two columns of Q have one minimum with both overlaps, and two heads one that divides them",
)


POINTS = 2048
DAMPING, ITERATIONS, TOLERANCE = 0.7, 600, 1e-6
SLOWER, SLOWEST = 0.8, 0.95  # where residuals grow steps are shortened, to a twentieth at most
VALUES = State(0.9, 0.0, 1.0, 0.9)  # starting point of low-rank values, in units of sigma^2
CLOSE = 0.01  # in alpha; the error is of second order in the last step
SAME = ("start", "rank", "heads", "value", "value_rank")  # of a solution to start from
Points = Annotated[int, Allowed(low=64, high=2**20)]


@dataclass(frozen=True)
class Point:
    """A fixed point, with averages over the output channel.

    Attributes
    ----------
    p : Parameters
        Model, with ``alpha``; ``p.start`` is the branch.
    order, values : Order, Values
        Order parameters of queries, for fields of uncorrelated tokens, and of values.
    hats, value_hats : dict
        Conjugates.
    envelope, test_mse_half : float
        Mean Moreau envelope, and half of ``E|y - f|^2/d``.
    norm, residual : float
        ``|Q|^2/d``, and the largest change under one undamped step.
    """

    p: Parameters
    order: general.Order
    values: Values
    hats: dict[str, np.ndarray]
    value_hats: dict[str, float]
    envelope: float
    test_mse_half: float
    norm: float
    residual: float

    def summary(self) -> dict[str, float]:
        """Numbers under the names of the students' measurements."""
        q, m, theta = _queries(self.p, self.order)
        return {
            "q": float(np.trace(q)),
            # The field of p is sqrt(1 - c) times that of the encoding of uncorrelated tokens.
            "m": float(np.linalg.norm(m) * np.sqrt(1 - self.p.correlation)),
            "theta": float(np.linalg.norm(theta)),
            "train_loss": self.train_loss,
            "test_mse_half": self.test_mse_half,
        }

    @property
    def exists(self) -> bool:
        """Whether the overlaps of the branch are nonzero."""
        return _left(self.p, self.order) > VANISHED

    @property
    def slope(self) -> float:
        """Derivative of the training loss in alpha along the branch: the mean envelope."""
        return self.envelope

    @property
    def train_loss(self) -> float:
        """Training loss per dimension."""
        given = self.p.values() | {
            "E_M": self.envelope,
            "q": self.p.sigma**2 * self.norm,
            # Of several columns the product is a trace.
            "q_hat": float(np.einsum("lcab,lcba->", self.hats["q"], self.order.V)),
            "V": 1.0,
            **self.values._asdict(),
            **self.value_hats,
        }
        loss = equations()["extended_training_loss"].number(given)
        # The identity has no ridge, and values of low rank are among the columns of norm.
        return loss if self.p.value else loss - self.p.lam * self.values.q_W / 2


def _left(p: Parameters, x: general.Order) -> float:
    """Smallest overlap of the branch relative to the weights."""
    q, m, theta = _queries(p, x)
    scale = np.sqrt(np.trace(q))
    overlaps = {"positional": np.linalg.norm(m), "semantic": np.linalg.norm(theta) / p.sigma}
    names = [p.start] if p.start in overlaps else list(overlaps)
    return float(min(overlaps[name] for name in names) / scale)


def _queries(p: Parameters, x: general.Order) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, m and theta of the columns of Q, of the first token; q and theta of both are the same."""
    r = p.rank
    return x.q[0, 0, :r, :r], x.m[0, 0, :r], x.theta[0, 0, :r, 0]


def kinds(p: Parameters) -> list[str]:
    """What each column of Q overlaps with, then those of low-rank values. Of two columns one takes
    the positions and the other the teacher, from any informed start: the branches with one overlap
    only are saddles.
    """
    return ([p.start] if p.rank == 1 else ["semantic", "positional"]) + ["values"] * p.value_rank


def _values(p: Parameters, x: general.Order) -> Values:
    """Order parameters of low-rank values, per column."""
    parts = (a[0, 0, p.rank :, start:] for a, start in ((x.q, p.rank), (x.theta, 1), (x.V, p.rank)))
    return Values(*(float(np.trace(part)) / (p.value_rank * p.sigma**2) for part in parts))


def step(system: Extended, x: general.Order, values: Values) -> tuple[general.Order, Values, Point]:
    """One undamped step, and the point it starts from."""
    p = system.p
    hats, value_hats, envelope, test = output_channel(system, x, values)
    # Exact symmetries keep these zero, up to rounding: a column and its teacher change sign, or the
    # encoding does.
    columns = kinds(p)
    for k, kind in enumerate(columns):
        if kind != "positional":
            hats["m"][:, :, k] = 0
        teacher = {"semantic": 0, "values": 1 + k - p.rank}.get(kind, -1)
        hats["theta"][:, :, k, np.arange(1 + p.value_rank) != teacher] = 0
    for name in ("q", "V"):
        hats[name] = hats[name] * np.eye(len(columns))
    new, norm, _ = general.input_channel(system, hats)
    moved = values
    if p.value:
        moved = Values(*map(float, compiled()[2](p.lam, p.sigma, *value_hats.values())))
    change = max(new.distance(x), *(abs(a - b) for a, b in zip(moved, values, strict=True)))
    if p.value_rank:
        values = moved = _values(p, x)
    here = np.trace(x.q[0, 0]) / p.sigma**2
    return new, moved, Point(p, x, values, hats, value_hats, envelope, test, here, change)


def starting(system: Extended) -> tuple[general.Order, Values]:
    """Starting values near the solutions of the figures; further columns begin without overlaps."""
    p = system.p
    q, m, V, theta = np.array([STARTS.get(k, VALUES) for k in kinds(p)]).T
    q, V = (x * np.where(np.arange(len(x)) < p.rank, 1, p.sigma**2) for x in (q, V))
    overlaps = np.zeros((len(q), 1 + p.value_rank))
    overlaps[: p.rank, 0] = theta[: p.rank]
    overlaps[p.rank :, 1:] = np.diag(theta[p.rank :] * p.sigma**2)
    signs = np.array([1.0, -1.0])[:, None, None] / np.sqrt(1 - p.correlation)
    both = np.ones((2, 1, 1, 1))
    order = general.Order(both * np.diag(q), signs * m, both * np.diag(V), both * overlaps)
    return order, Values(0.9, 0.9, 0.3) if p.value else Values()


@scope.pointwise(EXTENDED)
def solve(p: Parameters, near: Point | None = None, points: Points = POINTS) -> Point:
    """Fixed point by damped steps, on the branch of ``p.start``.

    Parameters
    ----------
    p : Parameters
        Model with ``alpha``. The local selection is used for any ``p.prox``.
    near : Point, optional
        Nearby solution with the same extensions and start.
    points : int
        Sobol points, a power of two. The default knows overlaps to half a percent.

    Raises
    ------
    ParameterError
        For students that the theory does not describe, a solution of another branch or layer as
        ``near``, or no convergence.
    """
    if near is not None:
        for name in SAME:
            wanted = getattr(p, name)
            if getattr(near.p, name) != wanted:
                raise ParameterError(f"near: is for another {name}; must have {name} = {wanted!r}")
    with in_range(p):
        system = extended(p, points)
        x, values = starting(system) if near is None else (near.order, near.values)
        share, before = DAMPING, np.inf
        for _ in range(ITERATIONS):
            new, moved, point = step(system, x, values)
            if point.residual < TOLERANCE or not point.exists:
                return point
            if point.residual > before:  # too long for the most negative eigenvalue of the map
                share = min(1 - SLOWER * (1 - share), SLOWEST)
            before = point.residual
            x = x.mixed(new, share)
            values = Values(
                *(share * a + (1 - share) * b for a, b in zip(values, moved, strict=True))
            )
        raise NotConverged(f"did not settle in {ITERATIONS} steps ({point.residual:.1e})")


@scope.pointwise(EXTENDED)
def predict(p: Parameters, runs: xr.Dataset | None = None, points: Points = POINTS) -> xr.Dataset:
    """Predict order parameters, training loss and test error at the end of informed descent, in
    the limit of infinite d.

    Parameters
    ----------
    p : Parameters
        Parameters of the training; ``p.start`` is its initial condition.
    runs : Dataset, optional
        Students with the same parameters. If they have the sample complexity ``alpha`` as a
        dimension, so has the result.
    points : int
        Sobol points, a power of two.

    Returns
    -------
    Dataset
        ``q``, ``m``, ``theta`` (absolute values), ``train_loss`` and ``test_mse_half``; NaN if the
        branch does not exist.
    """

    def ends(alphas: list[float]) -> xr.Dataset:
        solutions = [solve(p.replace(alpha=alpha), points=points) for alpha in alphas]
        rows = xr.Dataset(
            {x: ("alpha", [point.summary()[x] for point in solutions]) for x in SHARED},
            {"alpha": alphas},
        )
        return rows.where(xr.DataArray([point.exists for point in solutions], dims="alpha"))

    return over_alpha(p, runs, ends)


@scope.pointwise(CROSSING)
def critical(p: Parameters, points: Points = POINTS) -> float:
    """alpha_c: where the training losses of both branches are equal.

    Parameters
    ----------
    p : Parameters
        Model; its alpha and start are ignored.
    points : int
        Sobol points, a power of two.

    Raises
    ------
    ParameterError
        If no crossing is found.
    """

    def at(alpha: float, branch: str, start: Point | None) -> Point:
        return solve(p.replace(alpha=alpha, start=branch, polish=True), start, points)

    try:
        return crossing(at, close=CLOSE)[0]
    except Missing as error:
        raise ParameterError(f"alpha_c: {error}") from None
