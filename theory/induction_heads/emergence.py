"""Emergence times of the three-parameter flow for N = 1 to 10^7 in a second: beta is
the independent variable, and nothing cancels.

The time is of order N^2 while the flow is stiff on the scale N, so that the O(1) terms
of the emergence times would be lost to rounding. Therefore alpha is eliminated by the
invariant, gamma is stored as gamma - 1, and time as its excess over the leading law,
``excess = (t - 2 N^2 I(beta)) / N``.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.special
import xarray as xr

from theory import Allowed, ParameterError, checked
from theory.induction_heads.parameters import LARGEST_N
from theory.symbols.special import log_linear

TIGHT = {"rtol": 1e-12, "atol": 1e-16}  # gamma - 1 is of order 1/N
LAYER = 1.0  # length of the initial layer in t/N; gamma passes 1/2 near ln 2
NEWTON = 3  # Newton steps; they make alpha exact to rounding
FARTHEST = 60.0  # beta; the loss drops before beta = 15 for every N allowed
HALF = 0.5
Level = Annotated[float, Allowed(low=1e-6, high=5)]  # largest level; beta = 13 at N = 2
# gamma ends the layer above 0.628
LevelGamma = Annotated[float, Allowed(low=1e-6, high=0.62)]


def gaussian(beta: Any) -> Any:
    """I(beta), the integral of exp(-u^2/2) from 0 to beta."""
    return math.sqrt(math.pi / 2) * scipy.special.erf(np.asarray(beta) / math.sqrt(2))


def alpha_of(beta: Any, N: int) -> Any:
    """Alpha from beta by the invariant (equation ``alpha_of_beta``, with an
    overflow-free Lambert function).
    """
    if N == 1:
        return np.zeros_like(np.asarray(beta, float))
    n = 2 * N - 2
    half_square = np.square(beta) / 2
    alpha = log_linear(half_square + 1 / n, n)
    for _ in range(NEWTON):  # restores the relative accuracy at small beta
        gap = alpha + np.expm1(alpha) / n - half_square
        slope = 1 + np.exp(alpha) / n
        alpha = alpha - gap / slope
    return alpha


def beta_of(alpha: float, N: int) -> float:
    """Beta from alpha by the invariant; infinite for N = 1, where alpha stays 0."""
    if N == 1:
        return math.inf
    return math.sqrt(2 * alpha + math.expm1(alpha) / (N - 1))


def rates(beta: Any, g: Any, N: int) -> tuple[Any, Any, Any]:
    """Flow on the invariant at beta and gamma = 1 + g, written without cancellation.

    Returns
    -------
    tuple
        ``ln(2 N^2 dbeta/dt exp(-beta^2/2))``, ``dgamma/dt`` and the loss.
    """
    rows = 2 * N
    x = 1 / rows
    F = rows - 1
    alpha = alpha_of(beta, N)
    rise = np.expm1(alpha)
    in_G = np.log1p(x * (rise - 1))  # ln(G / 2N)
    exponent = beta * np.exp(alpha - math.log(rows) - in_G)  # beta p
    sigma = np.expm1(exponent)  # s - 1
    r = rows + sigma
    square = rows + sigma * (2 + sigma)  # s^2 + F
    if N > 1:
        shift = -rise / (rows - 2)  # alpha - beta^2 / 2
    else:
        shift = -np.square(beta) / 2
    gamma = 1 + g
    # gamma = 0 at the start: the rate of beta is zero
    with np.errstate(divide="ignore"):
        log_rate = math.log1p(-x) + shift - in_G - 2 * np.log1p(x * sigma) + exponent
        log_rate = log_rate + np.log1p(g) + np.log1p(-gamma * sigma / r)
    dgamma_dt = 2 * (F * sigma - g * square) / r**2
    loss = 1 - 2 * gamma * (1 + sigma) / r + gamma**2 * square / r**2
    return log_rate, dgamma_dt, loss


@dataclass(frozen=True)
class Path:
    """Solution at one N: initial layer in t/N, then excess and gamma - 1 as functions
    of beta.
    """

    N: int

    def _early(self, tau: float, state: np.ndarray) -> list[float]:
        log_rate, dgamma_dt, _ = rates(state[0], state[1] - 1, self.N)
        dbeta_dtau = math.exp(log_rate + state[0] ** 2 / 2) / (2 * self.N)
        return [dbeta_dtau, self.N * dgamma_dt]

    def _late(self, beta: float, state: np.ndarray) -> list[float]:
        log_rate, dgamma_dt, _ = rates(beta, state[1], self.N)
        gauss = math.exp(-beta * beta / 2)
        slowness = 2.0 * self.N**2 * gauss * math.exp(-log_rate)  # dt/dbeta
        return [2.0 * self.N * gauss * math.expm1(-log_rate), dgamma_dt * slowness]

    def layer(self, *tau: float) -> np.ndarray:
        """Beta and gamma at times t = tau N inside the layer, up to the last one."""
        return scipy.integrate.solve_ivp(
            self._early, (0, tau[-1]), [0.0, 0.0], "DOP853", tau, rtol=1e-13, atol=1e-18
        ).y

    @cached_property
    def handover(self) -> tuple[float, np.ndarray]:
        """Beta at the end of the layer, and (excess, gamma - 1) there."""
        ((beta,), (gamma,)) = self.layer(LAYER)
        excess = LAYER - 2.0 * self.N * gaussian(beta)
        return beta, np.array([excess, gamma - 1])

    def integrate(
        self, start: tuple[float, np.ndarray], end: float, **options: Any
    ) -> Any:
        """Continue from (beta, state) to a larger beta."""
        solution = scipy.integrate.solve_ivp(
            self._late, (start[0], end), start[1], method="LSODA", **TIGHT, **options
        )
        if not solution.success:
            raise ArithmeticError(
                f"N = {self.N}: the integration stopped at beta = {solution.t[-1]:g}:"
                f" {solution.message}"
            )
        return solution

    def excess(self, beta: float) -> float:
        """(t - 2 N^2 I(beta)) / N at the time when beta is reached, after the layer."""
        return float(self.integrate(self.handover, beta).y[0, -1])

    def time(self, beta: Any, excess: Any) -> Any:
        """Time from beta and excess."""
        return 2.0 * self.N**2 * gaussian(beta) + self.N * np.asarray(excess)

    def in_layer(self, k: int, level: float) -> float:
        """First time at which beta (0) or gamma (1) reaches a level in the layer."""
        missing = lambda tau: self.layer(tau)[k, 0] - level
        return self.N * scipy.optimize.brentq(missing, 1e-9, LAYER, xtol=1e-15)

    def of_gamma(self, level: float = HALF) -> float:
        """First time at which gamma reaches a level below its value at the end of the
        layer.
        """
        return self.in_layer(1, level)

    def of_beta(self, level: float = HALF) -> float:
        """First time at which beta reaches a level."""
        if not math.isfinite(level):
            return math.inf
        if level <= self.handover[0]:
            return self.in_layer(0, level)
        return float(self.time(level, self.excess(level)))

    def of_alpha(self, level: float = HALF) -> float:
        """First time at which alpha reaches a level; infinite at N = 1."""
        return self.of_beta(beta_of(level, self.N))

    def of_loss(self) -> float:
        """First time at which the loss falls below 1/2."""

        def above(beta: float, state: np.ndarray) -> float:
            return rates(beta, state[1], self.N)[2] - HALF

        above.terminal = True  # type: ignore[attr-defined]
        run = self.integrate(self.handover, FARTHEST, events=above)
        # last integrator step with the loss above 1/2
        low = run.t[-2]
        state = run.y[:, -2]

        def at(beta: float) -> np.ndarray:
            if beta > low:
                return self.integrate((low, state), beta).y[:, -1]
            return state

        high = run.t[-1] * (1 + 1e-9)
        missing = lambda beta: above(beta, at(beta))
        beta = scipy.optimize.brentq(missing, low, high, xtol=1e-14)
        return float(self.time(beta, at(beta)[0]))

    def curve(self, end: float, points: int = 600) -> xr.Dataset:
        """Alpha, beta, gamma and loss over t, up to t = ``end``, with more points where
        they change fast.

        Returns
        -------
        Dataset
            Over ``t`` in three-parameter flow time.

        Raises
        ------
        ParameterError
            If ``end`` is not above 1e-290.
        """
        if not end > 1e-290:  # subnormal numbers lack the digits for integration
            raise ParameterError(f"t = {end:g}: must be above 1e-290")
        tau = np.linspace(0, min(LAYER, end / self.N), 60)
        t = self.N * tau
        beta, g = self.layer(*tau) - np.array([[0], [1]])
        if end > LAYER * self.N:

            def arrived(b: float, state: np.ndarray) -> float:
                return self.time(b, state[0]) - end

            arrived.terminal = True  # type: ignore[attr-defined]
            run = self.integrate(
                self.handover, FARTHEST, events=arrived, dense_output=True
            )
            # Points even in time, in its logarithm and in beta: smooth on the plateau,
            # after the layer and in the drop.
            ends = run.t[0], run.t[-1], 10 * points
            grid = np.unique(np.append(np.geomspace(*ends), np.linspace(*ends)))
            times = self.time(grid, run.sol(grid)[0])
            scales = (grid, times, np.log(times))
            spread = sum((v - v[0]) / (v[-1] - v[0]) for v in scales)
            grid = np.interp(np.linspace(0, 3, points), spread, grid)[1:]
            excess, slow = run.sol(grid)
            t = np.append(t, self.time(grid, excess))
            beta = np.append(beta, grid)
            g = np.append(g, slow)
        curves = {
            "alpha": ("t", alpha_of(beta, self.N)),
            "beta": ("t", beta),
            "gamma": ("t", 1 + g),
            "loss": ("t", rates(beta, g, self.N)[2]),
        }
        return xr.Dataset(curves, {"t": t}, {"kind": "theory", "N": self.N})


@checked
def times(
    N: Annotated[int, Allowed(low=1, high=LARGEST_N)],
    level: Level = HALF,
    level_gamma: LevelGamma = HALF,
) -> dict[str, float]:
    """Emergence times in three-parameter flow time (unit rate, loss summed over D).

    Parameters
    ----------
    N : int
        Item-label pairs.
    level : float
        Threshold of alpha and beta (Definition 1: 1/2; Fig. 5: 0.1), from 1e-6 to 5.
    level_gamma : float
        Threshold of gamma, from 1e-6 to 0.62 (gamma reaches it in the initial layer).

    Returns
    -------
    dict
        ``T_gamma``, ``T_beta``, ``T_alpha`` and ``T_drop``, the first time of loss <
        1/2; infinite if never reached.
    """
    path = Path(N)
    return {
        "T_gamma": path.of_gamma(level_gamma),
        "T_beta": path.of_beta(level),
        "T_alpha": path.of_alpha(level),
        "T_drop": path.of_loss(),
    }
