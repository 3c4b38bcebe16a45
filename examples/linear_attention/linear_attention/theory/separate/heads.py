"""Times of the drops from any small start: every head by quadrature until one of them blows up.

Before a drop a head does not know of the others (`v_squared` in tau, where dtau = v dt); in a drop
one of them takes the largest eigenvalues that are left, and what is learned is frozen for the rest.
A head whose v^2 reaches zero on its way turns around: v changes sign, and tau comes back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.integrate
import scipy.optimize

from linear_attention.theory.separate import dynamics
from linear_attention.theory.symbols import lam, minus, plus, tau, v_0
from theory.numeric import function

TOLERANCE = dict(rtol=1e-10, atol=1e-14)


@dataclass(frozen=True)
class Head:
    """Value, and (k + q)/2 and (k - q)/2 of its rows, shape (R, D), in the eigenbasis of Lambda."""

    v: float
    plus: np.ndarray
    minus: np.ndarray

    def squared(self, at: float, x: np.ndarray) -> float:
        """v^2 at some tau; what is learned has the eigenvalue zero in ``x``."""
        rows = np.tile(x, len(self.plus))
        return float(_squared(at, self.v, self.plus.ravel(), self.minus.ravel(), rows))

    def turn(self, x: np.ndarray) -> float | None:
        """Where v^2 vanishes on the way that v takes, if it does: v^2 is convex in tau."""
        way, far = np.sign(self.v), 1.0
        found = scipy.optimize.minimize_scalar(
            lambda y: self.squared(way * y, x), bounds=(0, 40 / x.max() ** 2), method="bounded"
        )
        far = float(found.x)
        if self.squared(way * far, x) >= 0:
            return None
        return float(
            way * scipy.optimize.brentq(lambda y: self.squared(way * y, x), 0, far, xtol=1e-14)
        )

    def time(self, x: np.ndarray) -> float:
        """Time until it blows up, if nothing else is learned before."""
        way, turn = np.sign(self.v), self.turn(x)
        back = 0.0
        if turn is not None:  # there and back, dtau = 2 y dy at tau = turn -+ y^2
            inner = lambda y: 2 * y / np.sqrt(max(self.squared(turn - way * y**2, x), 1e-300))  # noqa: E731
            back = 2 * scipy.integrate.quad(inner, 0, np.sqrt(abs(turn)), limit=200)[0]
            way = -way
        speed = lambda y: 1 / np.sqrt(self.squared(way * y, x))  # noqa: E731
        knots = np.linspace(0, 40 / x.max() ** 2, 9)  # v grows as e^(lambda^2 |tau|) in the end
        return back + sum(
            scipy.integrate.quad(speed, *ends, limit=200)[0]
            for ends in zip(knots, knots[1:], strict=False)
        )

    def after(self, t: float, x: np.ndarray) -> Head:
        """The head a time later, before it blows up."""

        def rates(_: float, state: np.ndarray) -> list[float]:
            grown, gone = (
                self.plus * np.exp(x**2 * state[1]),
                self.minus * np.exp(-(x**2) * state[1]),
            )
            return [float((x**2 * (grown**2 - gone**2)).sum()), state[0]]

        v, at = scipy.integrate.solve_ivp(
            rates, (0, t), [self.v, 0.0], method="LSODA", **TOLERANCE
        ).y[:, -1]
        return Head(float(v), self.plus * np.exp(x**2 * at), self.minus * np.exp(-(x**2) * at))


_squared = function(dynamics.equations()["v_squared"].rhs, [tau, v_0, plus, minus, lam])


def drops(
    v: np.ndarray, K: np.ndarray, Q: np.ndarray, eigenvalues: np.ndarray, a: np.ndarray
) -> np.ndarray:
    """Times of all drops from a start, each R directions: the first of them half learned.

    Parameters
    ----------
    v, K, Q : ndarray, shapes (H,), (H, R, D), (H, R, D)
        Weights at t = 0, small.
    eigenvalues : ndarray, shape (D,)
        Of Lambda, falling, all different: equal ones are learned in combinations.
    a : ndarray, shape (D,)
        Of E beta beta^T.
    """
    left = [Head(float(x), (k + q) / 2, (k - q) / 2) for x, k, q in zip(v, K, Q, strict=True)]
    shift = dynamics.equations()["t_shift"]
    open_, now, found = eigenvalues.astype(float).copy(), 0.0, []
    while left and open_.any():
        times = [head.time(open_) for head in left]
        first = int(np.argmin(times))
        taken = np.flatnonzero(open_)[: K.shape[1]]
        short = shift.evaluate({"lambda_1": eigenvalues[taken[0]], "a_1": a[taken[0]]})
        time = max(times[first] + float(short), 0.0)
        now += time
        found.append(now)
        left = [head.after(time, open_) for k, head in enumerate(left) if k != first]
        open_[taken] = 0.0
    return np.array(found)
