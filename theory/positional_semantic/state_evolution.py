"""State evolution (7): stationarity conditions of the free entropy, with Gaussian
identities for the energetic part.

The average of the envelope depends on the order parameters through the distribution of
its arguments. Differentiation under the average gives derivatives of the envelope M(w,
h). The envelope theorem expresses those with respect to w and V by g = (z* - w)/V, and
integration by parts (Stein's lemma) removes those with respect to h. The result
contains g but none of its derivatives, so that jumps of g need no separate treatment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any, TypeVar

import numpy as np
import sympy as sp

from theory import (
    Allowed,
    Chapter,
    Equation,
    Equations,
    linear_root,
    proved,
    symbol,
    vanishes,
)
from theory.numbers import numeric
from theory.positional_semantic import free_entropy
from theory.positional_semantic.channel import Averages, State
from theory.positional_semantic.free_entropy import RS, TWO
from theory.positional_semantic.model.parameters import Parameters
from theory.positional_semantic.model.symbols import (
    CONJUGATE,
    MOMENTS,
    ORDER,
    E_g,
    E_geta,
    E_gg,
    E_gxi,
    V,
    V_hat,
    alpha,
    lam,
    m,
    m_hat,
    nu,
    q,
    q_hat,
    ref,
    rho,
    sigma,
    theta,
    theta_hat,
)
from theory.positional_semantic.prox import NotConverged
from theory.symbols.fractions import shortest
from theory.symbols.notation import Forms

xi, eta, w, h, z, sign = sp.symbols("xi eta w h z s", real=True)
envelope = sp.Function("M")(w, h)
FIELDS = {w: sign * m + sp.sqrt(q) * xi, h: theta / sp.sqrt(q) * xi + sp.sqrt(nu) * eta}
NU = rho - theta**2 / q


def by_envelope_theorem() -> Forms:
    """Derivatives of the envelope with respect to ``w`` and ``V`` as functions of
    ``g``, i.e. those of its objective at the minimiser.
    """
    g = sp.Symbol("g", real=True)
    objective = (z - w) ** 2 / (2 * V) + sp.Function("l")(z, h)
    return {x: sp.expand(sp.diff(objective, x).subs(z, w + V * g)) for x in (w, V)}


def stein(expr: sp.Expr) -> sp.Expr:
    """Remove ``xi`` and ``eta`` from an average by parts: ``E[xi F] = E[dF/dxi]``,
    through ``w`` and ``h``.
    """
    total = sp.S.Zero
    for (i, j), coefficient in sp.Poly(sp.expand(expr), xi, eta).terms():
        if i + j > 1:
            raise ValueError("at most one Gaussian factor")
        term = coefficient
        for power, by in ((i, xi), (j, eta)):
            if power:
                slopes = {x: sp.diff(form, by) for x, form in FIELDS.items()}
                term = sum(sp.diff(term, x) * slope for x, slope in slopes.items())
        total += term
    return sp.expand(total)


@cache
def envelope_gradient() -> Forms:
    """Derivatives of ``E_M`` with respect to q, m, V and theta as averages of ``g``,
    each proved by integration by parts.

    Raises
    ------
    ArithmeticError
        If a printed form does not equal the derivative.
    """
    g = -sp.diff(envelope, w)  # envelope theorem
    proved(by_envelope_theorem()[w] == -sp.Symbol("g", real=True), "dM/dw is not -g")
    integrands = {E_g: sign * g, E_geta: g * eta, E_gxi: g * xi}
    forms = {
        q: theta / (2 * q * sp.sqrt(nu)) * E_geta - E_gxi / (2 * sp.sqrt(q)),
        m: -E_g,
        theta: -E_geta / sp.sqrt(nu),
    }
    for x, form in forms.items():
        of_nu = sp.diff(NU, x)
        derivative = sp.S.Zero
        for y, f in FIELDS.items():
            slope = sp.diff(f, x) + sp.diff(f, nu) * of_nu
            derivative += sp.diff(envelope, y) * slope
        if not vanishes(stein(derivative) - stein(form.subs(integrands))):
            raise ArithmeticError(f"{form} is not the derivative in {x}")
    forms[V] = by_envelope_theorem()[V].subs(sp.Symbol("g", real=True) ** 2, E_gg)
    return forms


@cache
def equations() -> dict[str, Equation]:
    """The eight equations (7)-(8), solved from the stationarity of the free entropy,
    and their abbreviation nu.
    """
    law = Chapter(ref("Eq. (7)"), status="exact")
    law.state("nu", nu, NU, "law of the teacher field given the student's")
    chapter = Chapter(ref("Eqs. (7), (109)"), *RS, *TWO, status="closure")
    conditions = free_entropy.gradient(envelope_gradient())
    # The derivative with respect to an order parameter determines its conjugate, and
    # vice versa.
    partner = {q: V_hat, V: q_hat, m: m_hat, theta: theta_hat}
    for x in ORDER:
        y = partner[x]
        solution = linear_root(conditions[x], y)
        if x is q:
            # E_geta enters through theta_hat only.
            drive = linear_root(conditions[theta], theta_hat)
            moment = linear_root(theta_hat - drive, E_geta)
            solution = sp.expand(sp.expand(solution).subs(E_geta, moment))
        chapter.state(y.name, y, solution)
    for x, y in partner.items():
        chapter.state(x.name, x, sp.factor(linear_root(conditions[y], x)))
    return law.equations | chapter.equations


NORM = symbol(
    "norm",
    r"\lVert\hat{Q}\rVert^{2}/d",
    "squared norm of the weights",
    nonnegative=True,
)
NORM_EQUATION = Equation("norm", NORM, q / sigma**2, ref("Eq. (6)"), "exact", TWO)


# Which fixed points are minima that descent can stop in

H_2 = symbol(
    "H_2", r"\overline{H^{-2}}", "trace of the inverse squared Hessian", positive=True
)
replicon = symbol(
    "R", means="replicon: alpha V^2 times the mean squared slope of g", real=True
)


@cache
def stability() -> Equations:
    """The replicon as a trace over the Hessian of the risk at a student.

    Descent stops at a minimum of the risk whichever well each sentence lies in, as long
    as the Hessian H has no spectral weight at zero. A ridge raised by s at fixed
    weights gives the resolvent of H; its trace obeys the state evolution's equation for
    V with the wells held, so that its slope in s is the trace of ``H^-2``. That trace
    diverges where the replicon reaches one: on the same line message passing, which
    multiplies the squared distance of nearby iterates by the replicon at every step,
    stops converging.
    """
    s = sp.Symbol("s")
    # V_hat = alpha E tr l''(1 + V l'')^-1; its slope in V is -alpha E|dg/dw|^2 =
    # -R/V^2.
    V_hat = sp.Function("V_hat")
    zero = V * (lam + s + sigma**2 * V_hat(V)) - sigma**2
    slope = -sp.diff(zero, s) / sp.diff(zero, V)
    slope = slope.subs(sp.diff(V_hat(V), V), -replicon / V**2)
    slope = slope.subs(V_hat(V), sp.solve(zero, V_hat(V))[0])
    solution = shortest(sp.solve(slope + sigma**2 * H_2, replicon)[0])
    chapter = Chapter("cui2024, beyond Eq. (43)", *RS, status="closure")
    chapter.state("R", replicon, solution, "no spectral weight of the Hessian at zero")
    return chapter.equations


# The map of the state evolution (7), compiled from its equations, and damped steps of
# it

OVERLAP = {"positional": "m", "semantic": "theta"}  # that is not zero on a branch
BRANCHES = (*OVERLAP, "agnostic")
Branch = Annotated[str, Allowed(choices=BRANCHES)]
# Default starting points, near the solutions at omega = 0.3, alpha = 2, sigma = 0.5;
# scaled with sigma.
STARTS = {
    "positional": State(0.05, 0.26, 11.0, 0.0),
    "semantic": State(0.115, 0.0, 12.5, 0.158),
    "agnostic": State(0.1, 0.0, 15.0, 0.0),
}
Found = TypeVar("Found")


@cache
def _compiled() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compiled equations (7): conjugates from averages, and order parameters from
    conjugates.
    """
    rhs = {equation.lhs: equation.rhs for equation in equations().values()}
    inner = [(x, rhs[x]) for x in (theta_hat, nu)]  # theta_hat contains nu
    hats = [rhs[x].subs(inner) for x in CONJUGATE]
    order = [rhs[x] for x in ORDER]
    of_moments = numeric.function(hats, (alpha, rho, q, theta, *MOMENTS))
    return of_moments, numeric.function(order, (lam, sigma, rho, *CONJUGATE))


def conjugates(p: Parameters, state: State, averages: Averages) -> dict[str, float]:
    """Conjugates by the first half of (7), from averages taken at ``state``."""
    of_moments, _ = _compiled()
    moments = [averages.numbers[x.name] for x in MOMENTS]
    hats = of_moments(p.alpha, p.sigma**2, state.q, state.theta, *moments)
    return {x.name: float(hat) for x, hat in zip(CONJUGATE, hats, strict=True)}


def input_channel(p: Parameters, hats: dict[str, float]) -> State:
    """Order parameters by the second half of (7)."""
    if p.lam + p.sigma**2 * hats["V_hat"] <= 0:
        raise NotConverged("left its domain, D <= 0")
    _, of_hats = _compiled()
    conjugate = [hats[x.name] for x in CONJUGATE]
    return State(*map(float, of_hats(p.lam, p.sigma, p.sigma**2, *conjugate)))


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
        ``step(state, before)``: the new state, and what was computed on the way;
        ``before`` is what the last step computed.
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
    state = start or STARTS[branch]
    computed = None
    vanishing = {overlap: 0.0 for kind, overlap in OVERLAP.items() if kind != branch}
    for _ in range(steps):
        new, computed = step(state, computed)
        new = new._replace(**vanishing)
        change = max(abs(a - b) for a, b in zip(new, state, strict=True))
        if change < tolerance * max(1.0, state.V):
            return state, computed, change
        pairs = zip(state, new, strict=True)
        state = State(*(share * old + (1 - share) * b for old, b in pairs))
    raise NotConverged(
        f"no fixed point on the {branch} branch after {steps} damped steps"
    )


@contextlib.contextmanager
def in_range(p: Parameters) -> Iterator[None]:
    """Context manager: turn overflow and linear-algebra failures into a one-line error.

    Raises
    ------
    NotConverged
        Naming parameters that may be too extreme.
    """
    where = (
        f"omega = {p.omega:g}, alpha = {p.complexity:g}, lam = {p.lam:g}, sigma ="
        f" {p.sigma:g}"
    )
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            yield
    except (
        FloatingPointError,
        ZeroDivisionError,
        OverflowError,
        np.linalg.LinAlgError,
    ) as error:
        why = f"leaves double precision ({error}); take them less extreme"
        raise NotConverged(f"state evolution at {where}: {why}") from None
    except NotConverged as error:
        raise NotConverged(f"state evolution at {where}: {error}") from None
