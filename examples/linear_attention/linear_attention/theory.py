"""In-context linear regression by linear attention (Zhang et al., arXiv:2501.16265):
one drop if key and query are merged, a staircase if not. Times of the drops, of aligned
starts and of any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import numpy as np
import scipy.integrate
import scipy.optimize
import xarray as xr

from linear_attention import merged, separate
from linear_attention import statement as S
from linear_attention.parameters import DROPS, Parameters, applies
from theory import (
    Allowed,
    Equation,
    Flow,
    Onset,
    ParameterError,
    checked,
    of_onset,
    until,
)
from theory.call import scope
from theory.call.refusal import ANYTHING
from theory.dynamics.catalogue import called, family
from theory.dynamics.onset import tabulated
from theory.numbers.numeric import function

__all__ = [
    "Parameters",
    "applies",
    "drops",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "merged",
    "onset",
    "sections",
    "separate",
]
sections, equations = family([merged, separate])
flow = merged.flow  # the headline's


@called
def flows() -> dict[str, Flow]:
    """Flows of both models by name."""
    return merged.flows() | separate.flows()


BEYOND = "start = {start:g}: lies beyond the drop of {name}; take it smaller"
SHARE = 0.75  # fraction of a drop of the loss at W_dd equal to half its final value
FAR = 60.0  # lambda^2 times the integration length: up to 1/v = e^-40
Weights = Annotated[np.ndarray, ANYTHING]
Positive = Annotated[np.ndarray, Allowed(above=0)]


@until("t")
@scope.pointwise(DROPS)
def onset(p: Parameters, until: float | None = None) -> Onset:
    """Times of the drops from an aligned start, by the scalar equations at any Lambda.

    Parameters
    ----------
    p : Parameters
        Only spectrum, N and the size of the initial weights enter.
    until : float, optional
        Length of the curves (also ``t=``); 1.2 times the last drop by default.

    Returns
    -------
    Onset
        ``T_drop`` (merged; ``T_white`` in closed form where Lambda = I), ``t_1``, ...
        (separate) in time of unit-rate flow on half the loss, and the plateaus ``L_0``,
        ... of the loss.
    """
    whole = merged.flow(p.eigenvalues.size)
    logistic = merged.equations()["T_drop"]
    t_d = separate.equations()["t_aligned"]
    text = "merged: time at which three quarters of the drop are gone"
    rows = {"T_drop": (merged_time(p), text, "t")}
    if (p.eigenvalues == 1).all():
        text = "merged: the same in closed form, Lambda = I"
        rows["T_white"] = _ahead(p, "T_white", logistic, p.values()), text, "t"
    for n, mode in enumerate(p.modes, 1):
        text = f"separate: drop {n}, an aligned head, lambda = {mode['lambda_1']:g}"
        rows[f"t_{n}"] = (last := _ahead(p, f"t_{n}", t_d, mode)), text, "t"
    for n in range(len(p.modes) + 1):
        rows[f"L_{n}"] = plateau(p, n), f"loss after {n} drops"

    def curves() -> dict[str, xr.Dataset]:
        """Loss for both, to four times the drop and beyond the last: each with its
        drops and plateaus.
        """
        one = whole.solve(p, t=4 * rows["T_drop"][0])[["loss"]]
        end = until or 1.2 * last
        gained = sum(separate.flow().solve(mode, t=end).gained for mode in p.modes)
        steps = (p.values()["tr_Lambda"] - gained).to_dataset(name="loss")
        marks = {x: [n for n in rows if n[0] in (x, "L")] for x in "Tt"}
        return {
            "merged": one.assign_attrs(marks=marks["T"]),
            "separate": steps.assign_attrs(marks=marks["t"]),
        }

    return tabulated(
        rows,
        curves,
        equations=lambda: [logistic, t_d, S.equations()["plateau"]],
        notes=["aligned starts of size `start`; heads from any start: theory.drops"],
        setting={"spectrum": p.spectrum, "N": p.N, "start": p.start},
        crossings={"T_drop": (whole, p, whole.observables["loss"] - level(p))},
    )


emergence_times = of_onset(onset)


def _ahead(p: Parameters, name: str, law: Equation, values: dict[str, Any]) -> float:
    """Time from its formula; refused if the start lies beyond the event."""
    with np.errstate(invalid="ignore"):  # beyond the end of the drop
        time = law.number(values)
    if not time > 0:
        raise ParameterError(BEYOND.format(start=p.start, name=name))
    return time


def plateau(p: Parameters, drops: int) -> float:
    """Loss after a number of drops."""
    return S.equations()["plateau"].number(p.learned(drops))


def level(p: Parameters) -> float:
    """Loss at three quarters of a drop."""
    return SHARE * plateau(p, p.eigenvalues.size) + (1 - SHARE) * plateau(p, 0)


def merged_time(p: Parameters) -> float:
    """Time at which one effective head has completed three quarters of its drop.

    Raises
    ------
    ParameterError
        If it starts beyond this point, or does not reach it.
    """
    x, flow = p.eigenvalues, merged.flow(p.eigenvalues.size)
    end = 3 * np.log(10 / p.start) / p.values()["gamma"] * (1 + x[0] / x[-1])
    curve = flow.solve(
        p, at=[0], events={"drop": flow.observables["loss"] - level(p)}, t=end
    )
    if curve.loss[0] <= level(p):
        raise ParameterError(BEYOND.format(start=p.start, name="T_drop"))
    if np.isnan(time := float(curve["drop"])):
        raise ParameterError(f"T_drop: the loss does not drop before t = {end:g}")
    return time


@cache
def _pull() -> Callable[..., np.ndarray]:
    """Early force on v by every entry of a head."""
    return function(separate.early_pull(), [S.plus[S.i], S.minus[S.i], S.lam[S.i]])


@dataclass(frozen=True)
class Head:
    """Value, and (k + q)/2 and (k - q)/2 of its rows, shape (R, D), in the eigenbasis
    of Lambda.

    Before a drop heads are independent. In tau, with dtau = v dt, a head moves like a
    particle in the potential -v^2/2 (`v_squared`), with a turning point where v^2
    vanishes.
    """

    v: float
    plus: np.ndarray
    minus: np.ndarray

    def at(self, v: float, tau: float, x: np.ndarray) -> Head:
        """The head at a given tau; learned directions have eigenvalue zero in ``x``."""
        return Head(
            v, self.plus * np.exp(x**2 * tau), self.minus * np.exp(-(x**2) * tau)
        )

    def course(self, x: np.ndarray) -> tuple[float, Callable[[float], Head]]:
        """Time at which the head diverges if nothing else is learned before, and the
        head at earlier times.

        Integrated in s with dt = ds / size, so that the blow-up at finite t lies at
        infinite s.
        """

        def rates(_: float, state: np.ndarray) -> np.ndarray:
            v, tau, _ = state
            here = self.at(v, tau, x)
            size = np.sqrt(v**2 + (here.plus**2 + here.minus**2).sum())
            return np.array([_pull()(here.plus, here.minus, x).sum(), v, 1.0]) / size

        end = FAR / x.max() ** 2
        options = dict(rtol=1e-12, atol=1e-18, dense_output=True)
        run = scipy.integrate.solve_ivp(
            rates, (0, end), [self.v, 0, 0], "DOP853", **options
        ).sol

        def after(t: float) -> Head:
            v, tau, _ = run(
                scipy.optimize.brentq(lambda s: run(s)[2] - t, 0, end, xtol=1e-14)
            )
            return self.at(v, tau, x)

        return float(run(end)[2]), after


@checked
def drops(
    v: Weights,
    K: Weights,
    Q: Weights,
    eigenvalues: Positive,
    a: Positive,
    eta: Annotated[float, Allowed(low=0, high=1)] = 0.0,
) -> Iterator[float]:
    """Times of all drops from given initial weights. In a drop one head learns the R
    largest eigenvalues that are left, which the other heads then lack; its time is that
    at which the first is half learned.

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
        Step of gradient descent: a head is delayed like the aligned head that blows up
        at the same time.

    Raises
    ------
    ParameterError
        For inconsistent shapes; while times are taken, if a start is beyond the drop.
    """
    D = eigenvalues.size
    given = dict(eigenvalues=eigenvalues, a=a, K=K, v=v, Q=Q)
    shapes = dict(
        eigenvalues=(D,), a=(D,), K=(*K.shape[:2], D), v=K.shape[:1], Q=K.shape
    )
    for name, shape in shapes.items():
        if given[name].shape != shape:
            raise ParameterError(
                f"{name}: has shape {given[name].shape}, must be {shape}"
            )
    return _drops(v, K, Q, eigenvalues, a, eta)


def _drops(
    v: np.ndarray,
    K: np.ndarray,
    Q: np.ndarray,
    eigenvalues: np.ndarray,
    a: np.ndarray,
    eta: float,
) -> Iterator[float]:
    left = [Head(x, (k + q) / 2, (k - q) / 2) for x, k, q in zip(v, K, Q, strict=True)]
    known = separate.dynamics()
    open_, now = eigenvalues.astype(float).copy(), 0.0
    while left and open_.any():
        courses = [head.course(open_) for head in left]
        blown, _ = courses.pop(int(np.argmin([blown for blown, _ in courses])))
        taken = np.flatnonzero(open_)[: K.shape[1]]
        here = {"lambda_1": eigenvalues[taken[0]], "a_1": a[taken[0]], "eta": eta}
        here["u_0"] = 1 / (here["lambda_1"] ** 2 * blown)
        with np.errstate(invalid="ignore", divide="ignore"):
            shift, exact, stepped = (
                known[n].evaluate(here) for n in ("t_shift", "t_aligned", "t_step")
            )
        if not np.isfinite(shift + stepped - exact):
            raise ParameterError("v, K, Q: start beyond the drop; take them smaller")
        time = max(blown + float(shift + stepped - exact), 0.0)
        now += time
        yield now
        left = [after(time) for _, after in courses]
        open_[taken] = 0.0
