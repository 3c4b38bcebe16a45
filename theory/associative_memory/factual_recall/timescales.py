"""When the relation and the subject are learned: growth rates and hitting times."""

import math
from functools import cache, partial
from typing import Annotated

import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.special
import sympy as sp

from theory import (
    Allowed,
    Chapter,
    Equation,
    ParameterError,
    linear_root,
    proved,
    symbol,
    vanishes,
    written_as,
)
from theory.associative_memory.factual_recall import dynamics
from theory.associative_memory.factual_recall.dynamics import (
    PARTS,
    RECALL,
    RELATION,
    SUBJECT,
    SYMMETRIC,
    D,
    Parameters,
    Part,
    R,
    S,
    epsilon,
)
from theory.associative_memory.symbols import DERIVED, ref, t
from theory.call import scope
from theory.symbols.fractions import factored

rate = symbol(
    "lambda_recall",
    r"\lambda",
    "initial growth rate: lambda_r or lambda_s",
    positive=True,
)
K = symbol("K", means="choices: R or D", integer=True, positive=True)
c = dynamics.INVARIANT
gain = symbol("X_gain", "X", "logit gained: X or Y", positive=True)
angle = symbol("theta", means="angle: attention is epsilon cosh(theta)", positive=True)
share = symbol(
    "share_left", r"\varphi", "part of the initial loss that is left", positive=True
)
hitting = symbol("T_hit", "T(X)", "time at which X is reached", positive=True)
OF_RELATION = "initial growth rate of the relation"
OF_SUBJECT = "initial growth rate of the subject"
rates = {
    "relation": symbol("lambda_r", means=OF_RELATION, positive=True),
    "subject": symbol("lambda_s", means=OF_SUBJECT, positive=True),
}
SMALL = "epsilon -> 0"
LINEAR = "linear in the weights"


@cache
def growth(part: Part) -> sp.Expr:
    """Growth rate of the linearised pair; other modes decay."""
    flow = dynamics.flow()
    modes = flow.linearised(at=dict.fromkeys(flow.state, 0))
    return next(mode.rate for mode in modes if part.w in mode.direction)


@cache
def speed() -> sp.Expr:
    """Rate of theta along w = epsilon cosh(theta), delta = epsilon sinh(theta)/sqrt(c),
    for K choices.

    Exact because of ``w^2 - c delta^2 = epsilon^2``; both parts have this form.
    """
    forms = set()
    for part in PARTS:
        choices = part.choices
        eq = dynamics.equations()
        path = epsilon * sp.sinh(angle) / sp.sqrt(eq[f"ratio_{part.name}"].rhs)
        rate_of_delta = dynamics.flow().rhs[part.delta]
        rate_of_delta = rate_of_delta.subs(part.w, epsilon * sp.cosh(angle))
        rate_of_angle = (rate_of_delta / sp.diff(path, angle)).subs(part.wrong, 1)
        # 1: theta grows at the rate lambda
        linear = factored(rate_of_angle / growth(part)) * (choices - 1) / choices
        proved(factored(linear) == 1, "theta does not start at the growth rate")
        mass = eq[f"wrong_{part.name}"].rhs.subs({part.gain: gain, choices: K})
        forms.add(sp.factor(rate * K / (K - 1) * mass))
    (form,) = forms
    return form


@cache
def growth_rate(part: Part) -> sp.Expr:
    """Growth rate of a part in its printed form."""
    rows = {RELATION: R, SUBJECT: S}[part]
    return written_as(sp.sqrt((part.choices - 1) / (R * D)) / rows, growth(part))


def ratio_of_rates() -> sp.Expr:
    """Ratio of the growth rates of relation and subject."""
    return sp.sqrt(sp.factor(growth_rate(RELATION) ** 2 / growth_rate(SUBJECT) ** 2))


@cache
def exact_gain() -> sp.Expr:
    """Gain X = w delta as a function of theta."""
    form = epsilon**2 * sp.sinh(2 * angle) / (2 * sp.sqrt(c))
    w = epsilon * sp.cosh(angle)
    return written_as(form, w * epsilon * sp.sinh(angle) / sp.sqrt(c))


def exact_hitting() -> sp.Expr:
    """Time at which theta is reached, as an integral."""
    inner = symbol("theta_inner", r"\theta'", positive=True)
    integrand = sp.expand(1 / speed().subs(gain, exact_gain().subs(angle, inner)))
    return sp.Integral(factored(integrand), (inner, 0, angle))


def hitting_time() -> sp.Expr:
    """Time at which a gain is reached, for a small start.

    e^theta is large unless X is small; hence X = epsilon^2 e^{2 theta} / (4 sqrt c) and
    dX/dt = 2 X d(theta)/dt. Up to a gain x -> 0 the growth is exponential.

    Raises
    ------
    ArithmeticError
        If the matching point x does not cancel, or the printed form is not the derived
        one.
    """
    leading = epsilon**2 * sp.exp(2 * angle) / (4 * sp.sqrt(c))
    slope = 2 * gain * speed()
    x = symbol("x_match", "x", positive=True)
    until = sp.solve(sp.Eq(leading, x), angle)[0] / rate
    later = sp.integrate(sp.expand(1 / slope), gain)
    total = sp.expand(until - later.subs(gain, x) + later)
    # Ei(x) = gamma + ln x + O(x)
    limit = total.subs(sp.Ei(x), sp.EulerGamma + sp.log(x))
    limit = factored(sp.expand_log(sp.expand(limit), force=True))
    proved(not limit.has(x), "the matching point does not drop out")
    saturation = (sp.Ei(gain) - sp.EulerGamma - sp.log(gain)) / K
    form = (sp.log(4 * sp.sqrt(c) * gain / epsilon**2) + saturation) / (2 * rate)
    gap = sp.expand_log(sp.expand(form - limit), force=True)
    proved(vanishes(gap), "the hitting time is not the derived one")
    return form


def gain_at_share() -> sp.Expr:
    """Gain at which a part of the loss is a given share of its initial value ln K: (e^X
    + K - 1) e^-X = K^share.
    """
    grown = symbol("grown", positive=True)  # e^X
    root = linear_root(grown + K - 1 - K**share * grown, grown)
    return sp.log(written_as((K - 1) / (K**share - 1), root))


def level(part: Part, of: float) -> sp.Expr:
    """Expression that crosses zero when a part of the loss reaches a share of its
    initial value.
    """
    gain = equations()["gain_at_share"].rhs.subs({share: of, K: part.choices})
    return part.w * part.delta - gain


@cache
def equations() -> dict[str, Equation]:
    """Growth rates, hitting times (exact and for a small start), late decay, and length
    of the plateau.
    """
    rate_relation = rates["relation"]
    rate_subject = rates["subject"]
    exact = Chapter(ref(DERIVED), status="exact")
    exact.state(
        "growth_relation", rate_relation, partial(growth_rate, RELATION), LINEAR
    )
    exact.state("growth_subject", rate_subject, partial(growth_rate, SUBJECT), LINEAR)
    ratio = rate_relation / rate_subject
    flat = "a plateau at ln D where this is well above 1"
    exact.state("growth_ratio", ratio, ratio_of_rates, flat)
    same = "w = epsilon cosh(theta), K = R for the relation and D for the subject"
    exact.state("recall_angle", sp.Derivative(angle, t), speed, SYMMETRIC, same)
    exact.state("gain_of_angle", gain, exact_gain, SYMMETRIC)
    reached = symbol("T_exact", r"T(\theta)", "time at which theta is reached")
    exact.state("hitting_time_exact", reached, exact_hitting, SYMMETRIC)
    goal = "gain at which a part of the loss is a given share of its initial ln K"
    exact.state("gain_at_share", gain, gain_at_share, goal)
    leading = Chapter(ref(DERIVED), status="leading order")
    leading.state("hitting_time", hitting, hitting_time, SMALL)
    # e^X = 2 lambda K X t to leading order; X grows logarithmically
    grown = 2 * rate * K * t
    late_loss = (K - 1) / (grown * sp.log(grown))
    loss_late = symbol(
        "loss_late", r"\mathcal{L}_{\mathrm{late}}", "part of the loss at late times"
    )
    logarithms = "t large, corrections of order ln ln t / ln t"
    leading.state("late_loss", loss_late, late_loss, logarithms)
    length = symbol("T_plateau", r"T_{\mathrm{plateau}}", "length of the plateau")
    between = sp.log(1 / epsilon) * (1 / rate_subject - 1 / rate_relation)
    leading.state("plateau_length", length, between, SMALL, "leading logarithm")
    return exact.equations | leading.equations


# Numerical hitting times

Share = Annotated[float, Allowed(low=1e-300, below=1)]


def constants(p: Parameters, part: Part) -> dict[str, float]:
    """Growth rate, ratio c and number of choices of a part, as numbers."""
    numbers = p.values()
    return {
        "lambda_recall": equations()[f"growth_{part.name}"].number(numbers),
        "c_recall": dynamics.equations()[f"ratio_{part.name}"].number(numbers),
        "K": numbers[part.choices.name],
        "epsilon": p.epsilon,
    }


def angle_of_share(p: Parameters, part: Part, share: float) -> float:
    """Angle theta at which a part of the loss has fallen to a share of its initial
    value.
    """
    numbers = constants(p, part)
    goal = gain_of_share(share, numbers["K"])
    return 0.5 * np.arcsinh(2 * np.sqrt(numbers["c_recall"]) * goal / p.epsilon**2)


def gain_of_share(share: float, choices: float) -> float:
    """Equation ``gain_at_share``, evaluated without cancellation in K^share - 1 and 1 -
    share.
    """
    grown = math.expm1(share * math.log(choices))
    return math.log1p(-math.expm1((share - 1) * math.log(choices)) * choices / grown)


@scope.pointwise(RECALL)
def time_of_share(p: Parameters, part: Part, share: Share) -> float:
    """Flow time at which a part of the loss has decreased to a share of its initial
    value, at any epsilon.

    Parameters
    ----------
    p : Parameters
        Sizes and start.
    part : Part
        `dynamics.RELATION` or `dynamics.SUBJECT`.
    share : float
        Strictly between 0 and 1, and at least 1e-300. The share at time 0 lies below 1
        by a term that vanishes with epsilon; for larger values the time is 0.

    Returns
    -------
    float
        In units of ``t = eta * steps``, by quadrature of ``hitting_time_exact``.
    """
    numbers = constants(p, part)
    end = angle_of_share(p, part, share)
    choices = numbers["K"]
    # Integral of e^X over theta, with X = X_end sinh(2 theta)/sinh(2 theta_end); for X
    # > 0 only the last 40 units contribute.
    amplitude = p.epsilon**2 / (2 * np.sqrt(numbers["c_recall"]))
    excess = lambda q: np.expm1(amplitude * np.sinh(2 * q))
    start = max(0.0, end - 20)
    area, _ = scipy.integrate.quad(excess, start, end, epsabs=0, epsrel=1e-12)
    return float((choices * end + area) / (numbers["lambda_recall"] * choices))


@scope.pointwise(RECALL)
def closed_form(p: Parameters, part: Part, share: Share) -> float:
    """Flow time by the closed form for a small start (`hitting_time`).

    Raises
    ------
    ParameterError
        For a share so close to 1 that the start is not small compared with its gain.
    """
    numbers = constants(p, part)
    numbers["X_gain"] = gain_of_share(share, numbers["K"])
    time = equations()["hitting_time"].number(numbers)
    if time < 0:
        raise ParameterError(
            f"share = {share:.17g}: reached while weights are still at their start,"
            f" epsilon = {p.epsilon:g}, where the closed form does not hold; see"
            " time_of_share"
        )
    return time
