r"""Numerical exact solution at many parameter points at once: coordinate charts,
quadrature panels and event times.

With :math:`E = -\ln(1-A) = \varepsilon + \kappa D^2/2`, both integrals of the solution
run over dD/A. A chart D(s) makes the integrand analytic in a strip of half-width pi/4
about the real axis, however sharp the onset: D = delta sinh(s), E = epsilon cosh(s)^2
with delta = sqrt(2 |epsilon|/kappa); where epsilon < 0, D = +-delta sqrt(1 + q),
E = |epsilon| q with q = exp(+-2s).
Gauss-Legendre panels of bounded width in s then give digits at a fixed rate per node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from theory import Allowed, ParameterError, by_dimension
from theory.call import arrays, scope, sweep
from theory.state_tracking import exact
from theory.state_tracking.model import symbols
from theory.state_tracking.model.parameters import Parameters
from theory.state_tracking.model.scope import FLOW, STEPS, steps_to_emergence
from theory.state_tracking.model.symbols import N, c_omega, d_g, tau, zeta

NODES = 20
X, WEIGHTS = np.polynomial.legendre.leggauss(NODES)
# Rows: Legendre coefficients of the interpolant through the nodes.
_WEIGHTED = np.polynomial.legendre.legvander(X, NODES - 1) * WEIGHTS[:, None]
TO_LEGENDRE = _WEIGHTED.T * (np.arange(NODES)[:, None] + 0.5)
# Legendre coefficients of its integral from -1, and that integral at the nodes.
TO_INTEGRAL = np.polynomial.legendre.legint(TO_LEGENDRE, lbnd=-1)
AT_NODES = np.polynomial.legendre.legvander(X, NODES) @ TO_INTEGRAL
# of a panel in s: Bernstein ellipse 4.2, interpolation error 4.2^-20 = 4e-13
WIDTH = 0.8
# if only panel ends count: ellipse 2.4, error 2.4^-40 = 1e-15 (order 2 NODES)
EVENT_WIDTH = 1.6
# growth of the margin allowed on one such panel: exp(16 t) is integrated to 1e-13
GROWTH = 16.0
LOCKED = 40.0  # E at which 1 - A = e^-40 is below machine precision
CHUNK = 2**15  # nodes evaluated at a time, so that arrays stay in the cache
FIELDS = ("N", "L", "d_g", "eta", "zeta", "A_0", "R_0", "S_0")
ALLOWED = {
    **{name: Parameters._allowed(name) for name in FIELDS},
    "c_omega": Allowed(low=0),
    "tau": Allowed(low=0, high=1),
}
NAMES = ("N", "L", "d_g", "eta", "c_omega", "tau", "zeta", "A_0", "R_0", "S_0")


class Panels(NamedTuple):
    """Cumulative integrals over the panels of some parameter points; times in alpha."""

    edge: np.ndarray  # s, shape (points, panels + 1)
    alpha: np.ndarray  # training time at the edges
    T: np.ndarray  # proper time at the edges
    # d alpha/ds and dT/ds at the nodes, shape (points, panels, NODES)
    alpha_rate: np.ndarray
    T_rate: np.ndarray


@dataclass(frozen=True)
class Points:
    """Constants of the solution, one array entry per parameter point (see
    `theory.state_tracking.exact`).
    """

    N: np.ndarray
    d_g: np.ndarray
    eta: np.ndarray
    zeta: np.ndarray
    A_0: np.ndarray
    S_0: np.ndarray
    D_0: np.ndarray
    kappa: np.ndarray
    pace: np.ndarray
    drift: np.ndarray
    E_0: np.ndarray
    epsilon: np.ndarray
    delta: np.ndarray
    side: np.ndarray  # chart: 0 where epsilon > 0, else the sign of D

    @classmethod
    def of(cls, values: Any) -> Points:
        """Read Parameters, or numbers by symbol name, broadcast to one dimension.

        Raises
        ------
        KeyError
            If a name is missing.
        ParameterError
            For a value that is not allowed, or if (R_0 - S_0)^2 overflows.
        """
        values = sweep.numbers(values, NAMES)
        read = [arrays.array(n, values[n], ALLOWED[n]).astype(float) for n in NAMES]
        flat = map(np.ravel, np.broadcast_arrays(*read))
        v = dict(zip(NAMES, flat, strict=True))
        v["D_0"] = v["R_0"] - v["S_0"]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            sizes = [v[n] for n in ("N", "L", "d_g", "c_omega", "tau")]
            arguments = (N, symbols.L, d_g, c_omega, tau)
            kappa, pace, drift = (
                exact.equations()[name].lambdify(*arguments)(*sizes)
                for name in ("kappa", "pace", "off_target_drift")
            )
            started = -np.log1p(-v["A_0"])
            depth = kappa * v["D_0"] ** 2 / 2
            epsilon = started - depth  # infinite at A_0 = 1
            beyond = ~np.isfinite(depth) & (kappa > 0)
            if beyond.any():
                raise ParameterError(
                    f"R_0 - S_0 = {v['D_0'][beyond][0]:g}: its square is beyond the"
                    " largest number, 1.8e308"
                )
            # on the separatrix A dies, too
            epsilon = np.where(epsilon == 0, -np.finfo(float).tiny, epsilon)
            delta = np.sqrt(2 * np.abs(epsilon) / kappa)
        return cls(
            **{n: v[n] for n in ("N", "d_g", "eta", "zeta", "A_0", "S_0", "D_0")},
            kappa=kappa,
            pace=pace,
            drift=drift,
            E_0=started,
            epsilon=epsilon,
            delta=delta,
            side=np.where(epsilon > 0, 0.0, np.sign(v["D_0"])),
        )

    def __getitem__(self, which: Any) -> Points:
        """Select points, or append axes (``points[:, None]``)."""
        names = self.__dataclass_fields__
        return Points(**{name: getattr(self, name)[which] for name in names})

    @property
    def moving(self) -> np.ndarray:
        """Points at which attention changes at all."""
        return (self.kappa > 0) & (self.A_0 < 1)

    @property
    def dying(self) -> np.ndarray:
        """Points with D_0 at or below the separatrix."""
        return self.moving & (self.side < 0)

    def chart(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """D, E = -ln(1-A) and (dD/ds)/E."""
        size = np.abs(self.epsilon)
        if not self.side.any():
            up = np.exp(s)
            cosh = (up + 1 / up) / 2
            D = self.delta * (up - 1 / up) / 2
            return D, size * cosh**2, self.delta / size / cosh
        with np.errstate(over="ignore", invalid="ignore"):
            q = np.exp(2 * self.side * s)
            root = np.sqrt(1 + q)
            cosh = np.cosh(s)
            bent = self.side == 0
            D = self.delta * np.where(bent, np.sinh(s), self.side * root)
            E = size * np.where(bent, cosh**2, q)
            # If attention dies, E underflows; only E/A -> 1 is needed there.
            E = np.maximum(E, np.finfo(float).tiny)
            return D, E, self.delta / size / np.where(bent, cosh, root)

    def s_of(self, D: np.ndarray, E: np.ndarray) -> np.ndarray:
        """Chart coordinate s of a point (D, E) of the solution."""
        with np.errstate(divide="ignore", invalid="ignore"):
            bent = np.arcsinh(D / self.delta)
            straight = self.side * np.log(E / np.abs(self.epsilon)) / 2
        return np.where(self.side == 0, bent, straight)

    def locked(self, depth: float = LOCKED) -> np.ndarray:
        """Chart coordinate s at which 1 - A = e^-depth; infinite if attention dies."""
        size = np.abs(self.epsilon)
        with np.errstate(divide="ignore", over="ignore"):
            bent = np.arccosh(np.sqrt(np.maximum(depth / size, 1)))
            reached = np.where(self.side == 0, bent, np.log(depth / size) / 2)
        reached = np.maximum(reached, self.s_of(self.D_0, self.E_0))
        return np.where(self.side < 0, np.inf, reached)

    def plateau(self, s: np.ndarray) -> np.ndarray:
        """Integral of dD/E up to a constant, in closed form. It is a lower bound of T,
        and T exceeds D by at most this.
        """
        with np.errstate(over="ignore"):
            bent = np.arctan(np.sinh(np.clip(s, -700, 700)))
            root = np.exp(np.clip(-self.side * s, None, 700))
        shape = np.where(self.side == 0, bent, -self.side * np.arcsinh(root))
        return self.delta / np.abs(self.epsilon) * shape

    def off_target(self, D: np.ndarray, T: np.ndarray) -> np.ndarray:
        """Off-target overlap S."""
        return self.S_0 + (1 / self.d_g + self.drift) * T - (D - self.D_0) / self.d_g

    def margin(self, A: np.ndarray, D: np.ndarray, S: np.ndarray) -> np.ndarray:
        """Logit margin."""
        arguments = (symbols.A, exact.D, symbols.S, N, d_g, zeta)
        of_state = exact.equations()["margin_of_D"].lambdify(*arguments)
        return of_state(A, D, S, self.N, self.d_g, self.zeta)

    def panels(
        self,
        start: np.ndarray,
        stop: np.ndarray,
        width: float = WIDTH,
        most: int = 2**14,
    ) -> np.ndarray:
        """Number of panels each point needs between two values of s."""
        D, E, _ = self.chart(np.stack([start, stop]))
        waiting = self.plateau(stop) - self.plateau(start) + D[1] - D[0]
        # bound on the variation of S + c_R D
        swing = np.abs(D).sum(0) + np.abs(1 / self.d_g + self.drift) * waiting
        wanted = (stop - start) / width * (1 + self.N / (self.N - 1) * swing / GROWTH)
        wanted = np.ceil(np.nan_to_num(wanted, nan=most, posinf=most))
        return np.clip(wanted, 1, most).astype(int)

    def integrate(self, start: np.ndarray, stop: np.ndarray, panels: int) -> Panels:
        """Proper time and training time from ``start`` on, in panels of equal width in
        s.
        """
        edge = start[:, None] + (stop - start)[:, None] * np.linspace(0, 1, panels + 1)
        half = np.diff(edge)[..., None] / 2
        c = self[:, None, None]
        D, E, stretch = c.chart((edge[:, :-1, None] + half) + half * X)
        A = -np.expm1(-E)
        weights = WEIGHTS[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            # on overflow, times are infinite or NaN
            T_rate = stretch * (E / A)
            T = cumulate((half * (T_rate @ weights))[..., 0])
            inside = T[:, :-1, None] + half * (T_rate @ AT_NODES.T)
            margin = c.margin(A, D, c.off_target(D, inside))
            inverse_g = 1 + np.exp(margin) / (c.N - 1)
            alpha_rate = T_rate * inverse_g / (c.eta * c.pace)
            alpha = cumulate((half * (alpha_rate @ weights))[..., 0])
        return Panels(edge, alpha, T, alpha_rate, T_rate)


def cumulate(parts: np.ndarray) -> np.ndarray:
    """Cumulative sum along the last axis, starting at 0."""
    return np.concatenate([np.zeros_like(parts[..., :1]), np.cumsum(parts, -1)], -1)


@by_dimension()
@scope.guard(FLOW)
@np.errstate(over="ignore", invalid="ignore")  # overflow is detected at the end
def emergence_time(p: Any, level: Any = 0.5, **swept: Any) -> np.ndarray:
    """Training time at which attention reaches ``A = level``, by quadrature of the
    exact solution.

    Parameters
    ----------
    p : Parameters or mapping
        Parameters; or N, L, d_g, eta, c_omega, tau, zeta, A_0, R_0, S_0 as numbers or
        arrays that broadcast, taken as independent.
    level : array_like
        Value of A, inside (0, 1); broadcast with the rest.
    **swept
        Arrays of fields of the parameters, which broadcast: ``emergence_time(p, L=[3,
        10, 22])``.

    Returns
    -------
    ndarray
        Time in alpha: 0 if A starts at or above the level; NaN if A never reaches it
        (attention dies or is constant); infinite if it overflows.

    Raises
    ------
    ParameterError
        If a level lies outside (0, 1) or A_0 outside (0, 1]; if numbers over- or
        underflow; or if c_omega, tau or A_0 were derived from other values of the
        fields than those given.
    KeyError
        If a name is missing.
    """
    values = sweep.numbers(p, NAMES, **swept)
    if swept and isinstance(p, Parameters):
        eta, steps = np.broadcast_arrays(values["eta"], steps_to_emergence(values))
        few = steps < scope.FEWEST
        if few.any():
            words = f"eta = {eta[few][0]:g} ({steps[few][0]:.2g} steps)"
            scope.refuse([f"{words}: must be {STEPS.words} for {FLOW.theory}"])
    level = arrays.array("level", level, Allowed(above=0, below=1))
    shape = np.broadcast_shapes(level.shape, *(np.shape(values[n]) for n in NAMES))
    target = np.broadcast_to(level, shape).ravel()
    points = Points.of({n: np.broadcast_to(values[n], shape) for n in NAMES})
    times = np.where(points.A_0 >= target, 0.0, np.nan)
    open_ = np.flatnonzero((points.A_0 < target) & points.moving & ~points.dying)
    points = points[open_]
    target = target[open_]
    last = -np.log1p(-target)
    to = np.sqrt(points.D_0**2 + 2 * (last - points.E_0) / points.kappa)
    start = points.s_of(points.D_0, points.E_0)
    stop = points.s_of(to, last)
    panels = points.panels(start, stop, EVENT_WIDTH)
    order = np.argsort(panels)
    while order.size:
        # Process as many points as fill a chunk, with the number of panels of the most
        # demanding one.
        nodes = panels[order] * np.arange(1, order.size + 1) * NODES
        chunk = order[: np.searchsorted(nodes, CHUNK) + 1]
        order = order[chunk.size :]
        run = points[chunk].integrate(start[chunk], stop[chunk], panels[chunk[-1]])
        times[open_[chunk]] = run.alpha[:, -1]
    lost = np.isnan(times[open_])
    if lost.any():
        first_lost = np.flatnonzero(lost)[0]
        raise ParameterError(
            f"A_0 = {points.A_0[first_lost]:g}, R_0 - S_0 = {points.D_0[first_lost]:g}:"
            f" the time of A = {target[first_lost]:g} is lost in double precision"
        )
    return times.reshape(shape)[()]
