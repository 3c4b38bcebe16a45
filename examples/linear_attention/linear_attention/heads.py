"""Times of the drops from any small initial weights: heads evolve independently until one of them
blows up.

Before a drop the heads are independent. In tau, with dtau = v dt, a head moves like a particle in
the potential -v^2/2 (`v_squared`), with a turning point where v^2 vanishes. In a drop one head
learns the largest remaining eigenvalues, which are then removed for the other heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import numpy as np
import scipy.integrate
import scipy.optimize

from linear_attention import separate
from linear_attention import statement as S
from theory.arguments import checked
from theory.numeric import function
from theory.parameters import ANYTHING, Allowed, ParameterError

Weights = Annotated[np.ndarray, ANYTHING]
FAR = 60.0  # lambda^2 times the integration length: up to 1/v = e^-40


@cache
def _pull() -> Callable[..., np.ndarray]:
    """Early force on v by every entry of a head."""
    return function(separate.early_pull(), [S.plus[S.i], S.minus[S.i], S.lam[S.i]])


@dataclass(frozen=True)
class Head:
    """Value, and (k + q)/2 and (k - q)/2 of its rows, shape (R, D), in the eigenbasis of Lambda."""

    v: float
    plus: np.ndarray
    minus: np.ndarray

    def at(self, v: float, tau: float, x: np.ndarray) -> Head:
        """The head at a given tau; learned directions have eigenvalue zero in ``x``."""
        return Head(v, self.plus * np.exp(x**2 * tau), self.minus * np.exp(-(x**2) * tau))

    def course(self, x: np.ndarray) -> tuple[float, Callable[[float], Head]]:
        """Time at which the head diverges if nothing else is learned before, and the head at
        earlier times.

        Integrated in s with dt = ds / size, so that the blow-up at finite t lies at infinite s.
        """
        pull = _pull()

        def rates(_: float, state: np.ndarray) -> np.ndarray:
            v, tau, _ = state
            here = self.at(v, tau, x)
            size = np.sqrt(v**2 + (here.plus**2 + here.minus**2).sum())
            return np.array([pull(here.plus, here.minus, x).sum(), v, 1.0]) / size

        end, options = FAR / x.max() ** 2, dict(rtol=1e-12, atol=1e-18, dense_output=True)
        run = scipy.integrate.solve_ivp(rates, (0, end), [self.v, 0, 0], "DOP853", **options).sol

        def after(t: float) -> Head:
            v, tau, _ = run(scipy.optimize.brentq(lambda s: run(s)[2] - t, 0, end, xtol=1e-14))
            return self.at(float(v), tau, x)

        return float(run(end)[2]), after


@checked
def drops(
    v: Weights,
    K: Weights,
    Q: Weights,
    eigenvalues: Annotated[np.ndarray, Allowed(above=0)],
    a: Annotated[np.ndarray, Allowed(above=0)],
    eta: Annotated[float, Allowed(low=0, high=1)] = 0.0,
) -> Iterator[float]:
    """Times of all drops from given initial weights. Every drop learns R directions; its time is
    that at which the first is half learned.

    Parameters
    ----------
    v, K, Q : ndarray, shapes (H,), (H, R, D), (H, R, D)
        Weights at t = 0, small.
    eigenvalues : ndarray, shape (D,)
        Eigenvalues of Lambda, decreasing and distinct (equal ones would be learned in
        combinations).
    a : ndarray, shape (D,)
        Eigenvalues of E beta beta^T.
    eta : float
        Step of gradient descent: a head is delayed like the aligned head that blows up at the same
        time.

    Raises
    ------
    ParameterError
        For inconsistent shapes, or weights that are not small.
    """
    if eigenvalues.ndim != 1:
        raise ParameterError(f"eigenvalues: has shape {eigenvalues.shape}, must be (D,)")
    if K.ndim != 3 or K.shape[2] != eigenvalues.size:
        raise ParameterError(f"K: has shape {K.shape}, must be (H, R, D), D = {eigenvalues.size}")
    shapes = {"v": K.shape[:1], "Q": K.shape, "a": eigenvalues.shape}
    for name, value in (("v", v), ("Q", Q), ("a", a)):
        if value.shape != shapes[name]:
            raise ParameterError(f"{name}: has shape {value.shape}, must be {shapes[name]}")
    return _drops(v, K, Q, eigenvalues, a, eta)


def _drops(
    v: np.ndarray, K: np.ndarray, Q: np.ndarray, eigenvalues: np.ndarray, a: np.ndarray, eta: float
) -> Iterator[float]:
    left = [Head(float(x), (k + q) / 2, (k - q) / 2) for x, k, q in zip(v, K, Q, strict=True)]
    known = separate.dynamics()
    open_, now = eigenvalues.astype(float).copy(), 0.0
    while left and open_.any():
        courses = [head.course(open_) for head in left]
        first = int(np.argmin([blown for blown, _ in courses]))
        blown, _ = courses.pop(first)
        taken = np.flatnonzero(open_)[: K.shape[1]]
        here = {"lambda_1": eigenvalues[taken[0]], "a_1": a[taken[0]], "eta": eta}
        here["u_0"] = 1 / (here["lambda_1"] ** 2 * blown)
        shift, exact, stepped = (
            known[n].evaluate(here) for n in ("t_shift", "t_aligned", "t_step")
        )
        time = max(blown + float(shift + stepped - exact), 0.0)
        now += time
        yield now
        left = [after(time) for _, after in courses]
        open_[taken] = 0.0
