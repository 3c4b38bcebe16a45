"""The map of the state evolution (7), compiled from its equations, and damped steps of it."""

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any, TypeVar

import numpy as np

from theory import Allowed, numeric
from theory.positional_semantic import state_evolution
from theory.positional_semantic.numbers.channel import Averages, State
from theory.positional_semantic.numbers.prox import NotConverged
from theory.positional_semantic.parameters import Parameters
from theory.positional_semantic.symbols import (
    CONJUGATE,
    MOMENTS,
    ORDER,
    alpha,
    lam,
    nu,
    q,
    rho,
    sigma,
    theta,
    theta_hat,
)

OVERLAP = {"positional": "m", "semantic": "theta"}  # that is not zero on a branch
BRANCHES = (*OVERLAP, "agnostic")
Branch = Annotated[str, Allowed(choices=BRANCHES)]
# Default starting points, near the solutions at omega = 0.3, alpha = 2, sigma = 0.5; scaled with
# sigma.
STARTS = {
    "positional": State(0.05, 0.26, 11.0, 0.0),
    "semantic": State(0.115, 0.0, 12.5, 0.158),
    "agnostic": State(0.1, 0.0, 15.0, 0.0),
}
Found = TypeVar("Found")


@cache
def _compiled() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compiled equations (7): conjugates from averages, and order parameters from conjugates."""
    eq = state_evolution.equations()
    inner = [(x, eq[x.name].rhs) for x in (theta_hat, nu)]  # theta_hat contains nu
    hats = [eq[x.name].rhs.subs(inner) for x in CONJUGATE]
    out = numeric.function(hats, (alpha, rho, q, theta, *MOMENTS))
    into = numeric.function([eq[x.name].rhs for x in ORDER], (lam, sigma, rho, *CONJUGATE))
    return out, into


def conjugates(p: Parameters, state: State, averages: Averages) -> dict[str, float]:
    """Conjugates by the first half of (7), from averages taken at ``state``."""
    moments = [averages.numbers[x.name] for x in MOMENTS]
    hats = _compiled()[0](p.alpha, p.sigma**2, state.q, state.theta, *moments)
    return dict(zip((x.name for x in CONJUGATE), map(float, hats), strict=True))


def input_channel(p: Parameters, hats: dict[str, float]) -> State:
    """Order parameters by the second half of (7)."""
    if p.lam + p.sigma**2 * hats["V_hat"] <= 0:
        raise NotConverged("left its domain, D <= 0")
    new = _compiled()[1](p.lam, p.sigma, p.sigma**2, *(hats[x.name] for x in CONJUGATE))
    return State(*map(float, new))


def update(p: Parameters, state: State, averages: Averages) -> State:
    """One undamped step of (7) from averages taken at ``state``."""
    return input_channel(p, conjugates(p, state, averages))


def damped(
    step: Callable[[State, Found | None], tuple[State, Found]],
    branch: str,
    start: State | None,
    share: float,
    tolerance: float,
    steps: int,
) -> tuple[State, Found, float]:
    """State on a branch that a step changes by less than a tolerance.

    Parameters
    ----------
    step : callable
        ``step(state, before)``: the new state, and what was computed on the way; ``before`` is
        what the last step computed.
    start : State or None
        Starting point, or None for the one in `STARTS`.
    share : float
        Weight of the old state.
    tolerance : float
        Of the largest change, or relative to V if V is above one.
    steps : int
        Largest number of steps.

    Returns
    -------
    tuple
        State, what its step computed, and the largest change.

    Raises
    ------
    NotConverged
        If the state still changes after all steps.
    """
    state, computed = start or STARTS[branch], None
    vanishing = {overlap: 0.0 for kind, overlap in OVERLAP.items() if kind != branch}
    for _ in range(steps):
        new, computed = step(state, computed)
        new = new._replace(**vanishing)
        change = max(abs(a - b) for a, b in zip(new, state, strict=True))
        if change < tolerance * max(1.0, state.V):
            return state, computed, change
        state = State(*(share * a + (1 - share) * b for a, b in zip(state, new, strict=True)))
    raise NotConverged(f"no fixed point on the {branch} branch after {steps} damped steps")


@contextlib.contextmanager
def in_range(p: Parameters) -> Iterator[None]:
    """Context manager: turn overflow and linear-algebra failures into a one-line error.

    Raises
    ------
    NotConverged
        Naming parameters that may be too extreme.
    """
    where = f"omega = {p.omega:g}, alpha = {p.complexity:g}, lam = {p.lam:g}, sigma = {p.sigma:g}"
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            yield
    except (FloatingPointError, ZeroDivisionError, OverflowError, np.linalg.LinAlgError) as error:
        why = f"leaves double precision ({error}); take them less extreme"
        raise NotConverged(f"state evolution at {where}: {why}") from None
    except NotConverged as error:
        raise NotConverged(f"state evolution at {where}: {error}") from None
