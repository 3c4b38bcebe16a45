"""Gaussian averages over the output channel, by a quadrature split where the minimiser
jumps.

Given the order parameters, a sentence is described by a teacher field ``h`` (two
independent N(0, rho)) and by ``w = (m, -m) + theta/rho h + s zeta`` with ``s^2 = q -
theta^2/rho``. The target attention Y depends on ``h`` only. For each ``h``, the plane
of ``w`` is scanned by lines parallel to the axis ``n`` that joins the two exact
solutions of S(z) = Y. On each line the global minimiser jumps at one value of ``w.n``,
found by Newton's method, and each side has its own Gauss-Legendre nodes. The local
branch of the proximal operator (``prox=local``) stays in the well on the side of the
mean field as long as that well exists; its lines are split where the well ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple, Self

import numpy as np
import scipy.special

from theory.positional_semantic import prox
from theory.positional_semantic.model import definitions
from theory.positional_semantic.model.parameters import Parameters
from theory.symbols.special import gauss_hermite, gauss_legendre

# cutoff of the normal axis in standard deviations; 4e-8 of the mass lies beyond
REACH = 5.5
JUMP_STEPS = 60  # bisection alone needs 25
CUT_FOUND = 1e-7
FARTHEST_CUT = 2.0  # wells are about 1 apart, with jumps between them
BISECTIONS = 10  # to 2e-3, then extrapolated
SAME_WELL = 1e-6  # distance below which two minimisers are the same


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


class State(NamedTuple):
    """Order parameters ``q, m, V, theta`` (6)."""

    q: float
    m: float
    V: float
    theta: float


@dataclass
class Averages:
    """Averages over the output channel that enter the state evolution, and stability
    measures.

    Attributes
    ----------
    numbers : dict
        ``E_gg, E_g, E_gxi, E_geta, E_M, E_loss`` by symbol name.
    replicon : float
        ``V^2 E |dg/dw|_F^2`` without the contribution of jumps. Message passing is
        stable if alpha times this is below one.
    jump : float
        Probability density of ``w`` on the surface where the minimiser jumps, weighted
        by the squared jump of g times V^2. If zero, the minimiser is continuous and
        `replicon` decides stability.
    cut, wells : ndarray
        Position of the jump, shape (lines,), and the minimisers at the nodes, used as
        starting points at a nearby state.
    """

    numbers: dict[str, float]
    replicon: float
    jump: float
    cut: np.ndarray = field(repr=False)
    wells: np.ndarray = field(repr=False)


def target(p: Parameters, h: np.ndarray) -> np.ndarray:
    """Entries (1,2) and (2,1) of the target attention for teacher fields ``h`` of shape
    ``(2, ...)``.
    """
    values = p.values() | {"h_1": h[0], "h_2": h[1]}
    entries = definitions.equations()
    first = entries["Y_12"].evaluate(values)
    second = entries["Y_21"].evaluate(values)
    return np.stack([first, second])


@cache
def teacher_nodes(
    task: Parameters, order: int, full_plane: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Nodes ``h``, weights, targets ``Y`` and axis ``z_0`` on the plane, or on its half
    ``h_1 > 0``.

    The half plane suffices if ``m = 0`` (with ``w -> -w``) or ``theta = 0``: all
    averaged functions are then even under ``h -> -h``.
    """
    x, weight = gauss_hermite(order)
    half = (x > 0) | full_plane
    grid = np.array(np.meshgrid(x[half], x, indexing="ij"))
    h = task.sigma * grid.reshape(2, -1)
    weights = np.outer(weight[half], weight).ravel()
    Y = target(task, h)
    return h, weights / weights.sum(), Y, prox.target_solution(Y)


def averages(p: Parameters, state: State, near: Averages | None = None) -> Averages:
    """Averages over the output channel at given order parameters.

    Parameters
    ----------
    p : Parameters
        Model, branch of the proximal operator (``prox``) and nodes per axis
        (``order``).
    state : State
        Order parameters. The cost doubles if both ``m`` and ``theta`` are nonzero.
    near : Averages, optional
        Result at a nearby state with the same number of nodes, to save Newton steps.
    """
    # The target depends on these fields only.
    task = Parameters(omega=p.omega, sigma=p.sigma, target=p.target)
    h, weights, Y, z_0 = teacher_nodes(task, p.order, bool(state.m and state.theta))
    rho = p.sigma**2
    mean = state.theta / rho * h + np.array([[state.m], [-state.m]])
    spread = np.sqrt(state.q - state.theta**2 / rho)
    # nothing jumps across the lines
    across, across_weight = gauss_hermite(p.order // 2 + 2)
    lines = Lines.through(p, state.V, Y, z_0, mean, spread * across)
    centre = lines.centre
    h = np.repeat(h, across.size, 1)[:, :, None]
    weights = np.outer(weights, across_weight).ravel()
    cut, plus, minus = lines.jump(None if near is None else near.cut)
    where = cut
    if p.prox == "local":
        where = lines.end_of_plus_well(cut, plus, minus, centre - REACH * spread)
    along, share, start = _two_sides(p.order, where, centre, spread, plus, minus)
    if near is not None:
        start = _from_nearby(lines, near.wells, start, plus, minus)
    z, value, hessian = lines.descend(start, along)
    total = weights[:, None] * share

    def average(values: np.ndarray) -> float:
        return float((total * values).sum())

    of_channel = integrands(p, state, h, lines.at(along), z, lines.Y[:, :, None])
    numbers = {name: average(values) for name, values in of_channel.items()}
    gaussian = np.exp(-(((where - centre) / spread) ** 2) / 2)
    density = gaussian / np.sqrt(2 * np.pi) / spread
    squared_jump = ((plus - minus) ** 2).sum(0)
    return Averages(
        {"E_M": average(value), **numbers},
        replicon=average(_response(state.V * hessian)),
        jump=float((weights * density * squared_jump).sum()),
        cut=cut,
        wells=z,
    )


def _from_nearby(
    lines: Lines,
    wells: np.ndarray,
    start: np.ndarray,
    plus: np.ndarray,
    minus: np.ndarray,
) -> np.ndarray:
    """Minimisers of a nearby state as starting points, if they lie on this side of the
    cut.
    """
    side = np.repeat([-1, 1], start.shape[2] // 2)
    between = ((plus + minus) * lines.normal).sum(0)[:, None] / 2
    distance = (wells * lines.normal[..., None]).sum(0) - between
    return np.where(side * distance > 0, wells, start)


def integrands(
    p: Parameters,
    state: State,
    h: np.ndarray,
    w: np.ndarray,
    z: np.ndarray,
    Y: np.ndarray,
) -> dict[str, np.ndarray]:
    """Integrands of the averages, from fields of shape ``(2, ...)``. Odd ones are set
    to zero, as on the half plane of h their cancellation would be missed.
    """
    g = (z - w) / state.V
    mean = np.reshape([state.m, -state.m], (2, *[1] * (w.ndim - 1)))
    xi = (w - mean) / np.sqrt(state.q)
    unexplained = np.sqrt(p.sigma**2 - state.theta**2 / state.q)
    eta = (h - state.theta / np.sqrt(state.q) * xi) / unexplained
    nothing = np.zeros(g.shape[1:])
    return {
        "E_gg": (g * g).sum(0),
        "E_g": g[0] - g[1] if state.m else nothing,
        "E_gxi": (g * xi).sum(0),
        "E_geta": (g * eta).sum(0) if state.theta else nothing,
        "E_loss": prox.loss(z, Y, p.sigma),
    }


def _response(hessian: np.ndarray) -> np.ndarray:
    """Squared norm of dz/dw - 1; dz/dw is the inverse of V times the Hessian, given as
    ``(3, ...)``.
    """
    a, b, c = hessian
    determinant = a * c - b * b
    diagonal = (c / determinant - 1) ** 2 + (a / determinant - 1) ** 2
    return diagonal + 2 * (b / determinant) ** 2


def _two_sides(
    order: int,
    cut: np.ndarray,
    centre: np.ndarray,
    spread: float,
    plus: np.ndarray,
    minus: np.ndarray,
) -> Arrays:
    """Nodes ``(line, node)`` and weights along the normal on both sides of ``cut``, and
    starting points for the minimiser.
    """
    x, weight = gauss_legendre(order)
    low = centre - REACH * spread
    high = centre + REACH * spread
    inside = np.clip(cut, low, high)  # nodes only where the Gaussian has weight
    sides = []
    for begin, end, well in ((low, inside, minus), (inside, high, plus)):
        length = (end - begin)[:, None]
        nodes = begin[:, None] + length * x
        density = np.exp(-(((nodes - centre[:, None]) / spread) ** 2) / 2)
        start = np.broadcast_to(well[..., None], (2, *nodes.shape))
        sides.append((nodes, length * weight * density, start))
    along, weights, starts = (
        np.concatenate(parts, -1) for parts in zip(*sides, strict=True)
    )
    return along, weights / weights.sum(-1, keepdims=True), starts


@dataclass(frozen=True)
class Lines:
    """Lines in the plane of ``w`` parallel to the axis between the two wells; several
    per target.

    Attributes
    ----------
    p, variance
        Model, and the order parameter V.
    Y, normal, far, base : ndarray, shape (2, lines)
        Target, direction of the line, exact solution on the + side, and point with
        coordinate zero.
    centre : ndarray, shape (lines,)
        Coordinate of the mean of ``w``.
    """

    p: Parameters
    variance: float
    Y: np.ndarray
    normal: np.ndarray
    far: np.ndarray
    base: np.ndarray
    centre: np.ndarray

    @classmethod
    def through(
        cls,
        p: Parameters,
        variance: float,
        Y: np.ndarray,
        z_0: np.ndarray,
        mean: np.ndarray,
        offsets: np.ndarray,
    ) -> Self:
        """Lines at the given offsets from the mean, for every target. The + side is the
        side of the mean.
        """
        z_0 = z_0 * np.where((z_0 * mean).sum(0) < 0, -1.0, 1.0)
        normal = z_0 / np.hypot(*z_0)
        tangent = np.stack([-normal[1], normal[0]])
        across = (tangent * mean).sum(0)[:, None] + offsets
        many = offsets.size
        return cls(
            p,
            variance,
            np.repeat(Y, many, 1),
            np.repeat(normal, many, 1),
            np.repeat(z_0, many, 1),
            (tangent[:, :, None] * across).reshape(2, -1),
            np.repeat((normal * mean).sum(0), many),
        )

    def at(self, along: np.ndarray) -> np.ndarray:
        """Points ``(2, line, node)`` with coordinates ``along`` of shape ``(line,
        node)``.
        """
        return self.base[..., None] + self.normal[..., None] * along

    def descend(self, start: np.ndarray, along: np.ndarray) -> Arrays:
        """Minimisers, values and Hessians at coordinates ``along``, started from
        ``(2, line, node)``.
        """
        shape = along.shape
        z, value, hessian = prox.descend(
            np.reshape(start, (2, -1)),
            self.at(along).reshape(2, -1),
            np.repeat(self.Y, shape[1], 1),
            self.variance,
            self.p.sigma,
        )
        return z.reshape(2, *shape), value.reshape(shape), hessian.reshape(3, *shape)

    def _of(self, active: np.ndarray) -> Lines:
        """Select lines."""
        return replace(
            self,
            Y=self.Y[:, active],
            normal=self.normal[:, active],
            far=self.far[:, active],
            base=self.base[:, active],
            centre=self.centre[active],
        )

    def _wells(self, start: np.ndarray, at: np.ndarray) -> Arrays:
        """Minimiser, value and Hessian at one coordinate of every line."""
        z, value, hessian = self.descend(start[..., None], at[:, None])
        return z[..., 0], value[..., 0], hessian[..., 0]

    def _both(self, at: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, ...]:
        """Wells reached from far on the + and the - side, their values, and the Hessian
        of the first.
        """
        lines = self._of(active)
        up, f_up, curvature = lines._wells(lines.far, at)
        down, f_down, _ = lines._wells(-lines.far, at)
        return up, f_up, down, f_down, curvature

    def jump(self, guess: np.ndarray | None) -> Arrays:
        """Coordinate at which the global minimiser changes sides, shape (lines,), and
        the two wells there, shape (2, lines).

        With two wells, both are equally deep at this point and the minimiser jumps.
        With one well, the minimiser crosses over within a short distance, which is also
        a good place to split. Found by Newton steps with bisection as fallback.
        """
        cut = np.zeros(self.centre.size) if guess is None else guess.copy()
        low = np.full(cut.size, -FARTHEST_CUT)
        high = np.full(cut.size, FARTHEST_CUT)
        plus = self.far.copy()
        minus = -self.far
        active = np.arange(cut.size)
        for _ in range(JUMP_STEPS):
            here = cut[active]
            n = self.normal[:, active]
            up, f_up, down, f_down, curvature = self._both(here, active)
            plus[:, active] = up
            minus[:, active] = down
            apart = ((up - down) * n).sum(0)
            two = apart > SAME_WELL
            # Two wells: d(f_down - f_up)/d(cut) = apart/V (envelope theorem). One:
            # d(z.n)/d(cut) = n.(V H)^-1 n.
            a, b, c = self.variance * curvature
            adjugate = c * n[0] ** 2 - 2 * b * n[0] * n[1] + a * n[1] ** 2
            slope = adjugate / (a * c - b * b)
            value = np.where(two, f_down - f_up, (up * n).sum(0))
            step = -value / np.where(two, apart / self.variance, slope)
            below = np.where(value < 0, here, low[active])
            above = np.where(value > 0, here, high[active])
            low[active] = below
            high[active] = above
            there = here + step
            outside = (there <= below) | (there >= above)
            there = np.where(outside, (below + above) / 2, there)
            cut[active] = there
            active = active[np.abs(there - here) > CUT_FOUND]
            if not active.size:
                break
        return cut, plus, minus

    def end_of_plus_well(
        self, cut: np.ndarray, plus: np.ndarray, minus: np.ndarray, lowest: np.ndarray
    ) -> np.ndarray:
        """Coordinate below which the + well does not exist, shape (lines,). ``plus``
        and ``minus`` are updated to the wells there.

        The local branch uses the + well wherever it exists. Lines without two wells
        keep ``cut``; coordinates below ``lowest`` are not searched. The well ends where
        it merges with the saddle: the determinant of the Hessian vanishes as a square
        root, which is used for the final extrapolation.
        """
        apart = ((plus - minus) * self.normal).sum(0)
        active = np.flatnonzero((apart > SAME_WELL) & (cut > lowest))
        if not active.size:
            return cut
        n = self.normal[:, active]
        between = ((plus + minus)[:, active] * n).sum(0) / 2
        low = np.maximum(cut[active] - FARTHEST_CUT, lowest[active])
        high = cut[active].copy()
        part = self._of(active)

        def there(at: np.ndarray) -> Arrays:
            z, _, (a, b, c) = part._wells(part.far, at)
            return (z * n).sum(0) > between, (a * c - b * b) ** 2, z

        _, squared, z = there(high)
        before = high
        squared_before = squared
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            exists, new, z_new = there(middle)
            before = np.where(exists, high, before)
            squared_before = np.where(exists, squared, squared_before)
            low = np.where(exists, low, middle)
            high = np.where(exists, middle, high)
            squared = np.where(exists, new, squared)
            z = np.where(exists, z_new, z)
        fall = np.where(squared_before > squared, squared_before - squared, np.inf)
        end = cut.copy()
        end[active] = np.maximum(high - squared * (before - high) / fall, low)
        plus[:, active] = z
        z, _, _ = part._wells(-part.far, end[active])
        minus[:, active] = z
        return end


def student_attention(z: np.ndarray) -> np.ndarray:
    """Entries (1,2) and (2,1) of the student's attention for fields ``z`` of shape
    ``(2, ...)``.
    """
    return scipy.special.expit(np.stack([z[0] * (z[1] - z[0]), z[1] * (z[0] - z[1])]))
