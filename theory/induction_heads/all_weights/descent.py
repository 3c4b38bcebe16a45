"""Emergence times of the gradient flow of all weights by a stiff integrator.

Rates are of order 1 (gamma_1), 1/N (other gammas) and 1/N^2 (the rest), and the loss
drops within a time of order N after a time of order N^2. An implicit integrator in t/N
is used; its Jacobian is a central difference of the exact gradient.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated, Any

import numpy as np
import scipy.integrate
import scipy.optimize
import xarray as xr

from theory import Allowed, ParameterError, checked
from theory.induction_heads import structure
from theory.induction_heads.all_weights import burst, scores
from theory.induction_heads.all_weights.running import NAMES, loss_and_gradient
from theory.symbols.special import first_crossing

LossAndGradient = Callable[[np.ndarray], tuple[float, np.ndarray]]
LEVELS = {f"T_{short}": structure.HEAD[short] for short in ("gamma", "beta", "alpha")}
QUERIES = ("last", "uniform")
# beyond 10^6 pairs: more than a minute and 10 GB
Pairs = Annotated[int, Allowed(low=1, high=10**6)]
Query = Annotated[str, Allowed(choices=QUERIES)]
Mask = Annotated[str, Allowed(choices=("strict", "inclusive"))]
Right = Annotated[int, Allowed(low=1)]
# the gradient is exact to 1e-15 / N; a smaller tolerance only costs steps
RTOL = 1e-9
ATOL = 1e-11
# step of the Jacobian; its error 1e-8 does not slow Newton's iteration
DIFFERENCE = 1e-4
HORIZON = 40.0  # longest time in N^2
HALF = 0.5


def rates(data: str, D: float) -> tuple[dict[str, float] | None, float]:
    """Relative rates of the pseudo-parameters by name, and the rate of the gammas per
    unit of t.

    For orthonormal vectors all rates are equal. For Gaussian vectors of squared norm D
    the unit is such that gammas move at rate 1, while t counts unit-rate flow of
    normalised vectors (see `gaussian`).
    """
    if data == "orthonormal":
        return None, 1.0
    relative = dict.fromkeys(NAMES, float(D) ** 2)
    for name in NAMES:
        if name.startswith("gamma"):
            relative[name] = 1.0
    return relative, float(D)


@checked
def moving(mask: Mask) -> tuple[str, ...]:
    """Pseudo-parameters that can become nonzero with this mask."""
    still, _ = scores.redundant(mask)
    return tuple(name for name in structure.reachable() if name not in still)


def loss_of(size: int, query: int | str, mask: str, right: int = 1) -> LossAndGradient:
    """Loss and gradient as a function of the nineteen pseudo-parameters.

    Parameters
    ----------
    size : int
        Item-label pairs N.
    query : int or {'last', 'uniform'}
        Which pair is queried.
    mask : {'strict', 'inclusive'}
        Causal mask.
    right : int
        Right pairs B, at the end of the context.

    Raises
    ------
    ParameterError
        If there are several right pairs and another than the last is queried, or no
        other pairs.
    """
    pair = size if query == "last" else query
    if right == 1:
        return partial(loss_and_gradient, size=size, query=pair, mask=mask)
    if pair != size:
        raise ParameterError(
            f"right = {right}: must be 1 unless the last pair is queried"
        )
    if right >= size:
        raise ParameterError(f"right = {right}: must be below N = {size}")
    return partial(burst.loss_and_gradient, size=size, right=right, mask=mask)


def mean_loss(parts: Sequence[tuple[float, LossAndGradient]]) -> LossAndGradient:
    """Mean of losses, and its gradient, by weights."""
    weights = [weight for weight, _ in parts]

    def mean(theta: np.ndarray) -> tuple[float, np.ndarray]:
        losses, gradients = zip(*(of(theta) for _, of in parts), strict=True)
        loss = float(np.average(losses, 0, weights))
        return loss, np.average(gradients, 0, weights)

    return mean


def descend(
    of: LossAndGradient,
    size: float,
    names: Collection[str],
    until: Callable[[float, np.ndarray], bool] | None = None,
    rtol: float = RTOL,
    speed: Mapping[str, float] | None = None,
    horizon: float = HORIZON,
) -> Any:
    """Gradient flow from zero until the loss has dropped, in units t/N. Only ``names``
    are trained; the other pseudo-parameters stay zero.

    Parameters
    ----------
    of : callable
        Loss and gradient as a function of the nineteen pseudo-parameters.
    size : float
        Number of pairs N, which sets the scales.
    names : collection of str
        Trained pseudo-parameters.
    until : callable, optional
        Function of the loss and all pseudo-parameters that decides when to stop; by
        default at loss 1/2.
    rtol : float
        Tolerance of the integrator.
    speed : mapping of str to float, optional
        Rates other than 1, by name.
    horizon : float
        Longest time, in N^2.

    Returns
    -------
    object
        SciPy's solution; ``sol(t / N)`` gives all nineteen pseudo-parameters.
    """
    speed = speed or {}
    index = np.array([k for k, name in enumerate(NAMES) if name in names])
    pace = np.array([speed.get(NAMES[k], 1.0) for k in index])

    def all_nineteen(state: np.ndarray) -> np.ndarray:
        theta = np.zeros((len(NAMES), *np.shape(state)[1:]))
        theta[index] = state
        return theta

    def rate(_: float, state: np.ndarray) -> np.ndarray:
        return -size * pace * of(all_nineteen(state))[1][index]

    def jacobian(at: float, state: np.ndarray) -> np.ndarray:
        columns = []
        for shift in DIFFERENCE * np.eye(len(index)):
            change = rate(at, state + shift) - rate(at, state - shift)
            columns.append(change / (2 * DIFFERENCE))
        return np.stack(columns, 1)

    def dropped(_: float, state: np.ndarray) -> float:
        theta = all_nineteen(state)
        loss = of(theta)[0]
        if until is None:
            return loss - HALF
        return HALF - float(until(loss, theta))

    dropped.terminal = True  # type: ignore[attr-defined]
    run = scipy.integrate.solve_ivp(
        rate,
        (0, horizon * size),
        np.zeros(len(index)),
        method="BDF",
        rtol=rtol,
        atol=ATOL,
        jac=jacobian,
        events=dropped,
        dense_output=True,
    )
    if not run.success:
        raise ArithmeticError(
            f"N = {size}: the integration stopped at t = {size * run.t[-1]:g}:"
            f" {run.message}"
        )
    trained = run.sol
    run.sol = lambda tau: all_nineteen(trained(tau))
    run.y = all_nineteen(run.y)
    return run


def crossings(
    run: Any, size: float, levels: Mapping[str, str] = LEVELS
) -> dict[str, float]:
    """First times at which pseudo-parameters, and the loss, reach 1/2; infinite if they
    do not.
    """
    times = {}
    for label, name in levels.items():
        times[label] = size * first_crossing(run, NAMES.index(name), HALF)
    drops = run.t_events[0]
    times["T_drop"] = size * float(drops[0]) if drops.size else np.inf
    return times


@checked
def flow_of(
    size: Pairs,
    query: Query = "last",
    mask: Mask = "strict",
    names: Collection[str] | None = None,
    right: Right = 1,
    **options: Any,
) -> Any:
    """Integrate the flow of all weights for the last pair (of ``right`` right ones) or
    a uniform query; see `descend`.

    Raises
    ------
    ParameterError
        If query, mask or names are not known.
    """
    trained = set(moving(mask) if names is None else map(str, names))
    unknown = trained - {*NAMES}
    if unknown or not trained:
        refused = ", ".join(sorted(unknown)) or "nothing"
        raise ParameterError(
            f"names: must be some of {', '.join(NAMES)}, not {refused}"
        )
    speed = options.pop("speed", None)
    if speed:
        options["speed"] = tuple(speed.items())
    return _flow(size, query, mask, frozenset(trained), right, **options)


@lru_cache(16)
def _flow(
    size: int,
    query: str,
    mask: str,
    names: frozenset[str],
    right: int,
    speed: tuple[tuple[str, float], ...] = (),
    **options: Any,
) -> Any:
    """The same flow is integrated once for times and curves, and for learning rates and
    sizes of vectors that it does not depend on.
    """
    of = loss_of(size, query, mask, right)
    return descend(of, size, names, speed=dict(speed), **options)


def times(
    size: Pairs,
    query: Query = "last",
    mask: Mask = "strict",
    names: Collection[str] | None = None,
    right: Right = 1,
    **options: Any,
) -> dict[str, float]:
    """Emergence times under gradient flow of all weights on orthonormal data.

    Parameters
    ----------
    size : int
        Item-label pairs N.
    query : {'last', 'uniform'}
        Which pair is queried.
    mask : {'strict', 'inclusive'}
        Causal mask.
    names : collection of str, optional
        Trained pseudo-parameters; all by default.
    right : int
        Right pairs B, at the end of the context.
    **options
        Of `descend`.

    Returns
    -------
    dict
        ``T_gamma``, ``T_beta``, ``T_alpha`` (gamma_3, beta_2, alpha_3 at 1/2; infinite
        if not before the drop) and ``T_drop`` (loss at 1/2), in the time t of unit-rate
        flow of the pseudo-parameters on the loss summed over D.
    """
    return crossings(flow_of(size, query, mask, names, right, **options), size)


@checked
def curve(
    size: Pairs,
    query: Query = "last",
    mask: Mask = "strict",
    points: Annotated[int, Allowed(low=2, high=10**6)] = 400,
    right: Right = 1,
    **options: Any,
) -> xr.Dataset:
    """All nineteen pseudo-parameters and the loss over t, up to the drop, at points
    spread evenly over the integrator's steps.
    """
    run = flow_of(size, query, mask, right=right, **options)
    of = loss_of(size, query, mask, right)
    taus = np.interp(np.linspace(0, 1, points), np.linspace(0, 1, len(run.t)), run.t)
    theta = run.sol(taus)
    data = {name: ("t", values) for name, values in zip(NAMES, theta, strict=True)}
    data["loss"] = ("t", [of(x)[0] for x in theta.T])
    return xr.Dataset(data, coords={"t": size * taus})


def euler(
    size: int, query: str, mask: str, step: float, steps: int, right: int = 1
) -> np.ndarray:
    """Gradient descent with a finite step in t; for a uniform query every pair is
    queried once per step. Shape (steps + 1, 19).
    """
    path = np.zeros((steps + 1, len(NAMES)))
    of = loss_of(size, query, mask, right)
    for i in range(steps):
        path[i + 1] = path[i] - step * of(path[i])[1]
    return path
