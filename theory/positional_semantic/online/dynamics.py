"""One-pass descent of the tied rank-one layer: population loss, rates of (q, m, theta), flows, and
their early stage.

Step of the weights on a fresh sentence: ``w -> w - (eta/d) (grad + kappa w)`` with ``w = Q /
sqrt(d)`` and ``grad = sum_l g_l (x_l + p_l)``, ``g_l`` the slope of the sentence loss in the field
``z_l``. Overlaps concentrate as ``d -> infinity`` at a given time ``t = eta steps / d``.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import sympy as sp
import xarray as xr

from theory import Equations, Flow, prediction, table, until
from theory import scope as theory_scope
from theory.catalogue import cache
from theory.notation import Forms, symbol
from theory.positional_semantic.definitions import S_12, S_21, off_diagonal
from theory.positional_semantic.definitions import equations as layer
from theory.positional_semantic.free_entropy import gaussian_moments
from theory.positional_semantic.online import parameters as scope
from theory.positional_semantic.online.means import (
    SLOPES,
    STUDENT,
    T_12,
    T_21,
    Mean,
    gathered,
    mean,
    student_fields,
)
from theory.positional_semantic.online.parameters import ANY, RUN, Parameters
from theory.positional_semantic.symbols import (
    A_12,
    A_21,
    Y_12,
    Y_21,
    d,
    h_1,
    h_2,
    m,
    omega,
    q,
    sigma,
    theta,
    z_1,
    z_2,
)
from theory.statement.overlaps import Overlaps

# Symbols of the online theory, in addition to those of the layer

t = symbol("t", means="time: learning rate times steps by d", nonnegative=True)
step = symbol("step", r"\eta", "learning rate by sentences of a step", nonnegative=True)
decay = symbol(
    "decay", r"\kappa", "weight decay by time; lambda / alpha of a full batch", nonnegative=True
)
population = symbol(
    "population_loss", r"\mathcal{L}", "population loss of a sentence by d", real=True
)
noise_symbol = symbol(
    "noise", r"\mathcal{N}", "mean squared slope of the loss in the fields", real=True
)
scale = symbol("scale", r"s", "norm of the initial weights by sqrt(d)", positive=True)
cos_p = symbol("cos_p", r"c_{p}", "cosine of the initial weights with the positions", real=True)
cos_teacher = symbol(
    "cos_teacher", r"c_{\star}", "cosine of the initial weights with the teacher", real=True
)
growth_q, growth_m, growth_theta = (
    symbol(
        f"growth_{x}", rf"\gamma_{{{tex}}}", f"growth rate of {what} at zero overlaps", real=True
    )
    for x, tex, what in (
        ("q", "q", "the norm"),
        ("m", "m", "the overlap with the positions"),
        ("theta", r"\theta", "the overlap with the teacher"),
    )
)
growth = symbol("growth", r"\gamma", "growth rate of an overlap at zero overlaps", real=True)
T_mean = symbol("T_mean", r"\bar{T}", "mean off-diagonal entry of softmax(h h^T)", positive=True)
T_slope = symbol(
    "T_slope",
    r"\bar{T}_{2}",
    "E[T_12 (h_1 h_2 - h_1^2)] / sigma^2 + T_mean, what the teacher's fields tell",
)
T_escape = symbol(
    "T_escape", r"t_{\mathrm{esc}}", "time at which an overlap of d^(-1/2) is of order one"
)


def ref(place: str) -> str:
    """Reference."""
    return f"beyond cui2024, {place}"


STATE = (q, m, theta)
LIMIT = ("d to infinity at a given time", "two tokens", "tied rank-one weights")
FRESH = "a fresh sentence at every step"
HELD = "the norm of the weights is restored after every step"
UNITS = Overlaps(hidden=1, teachers=2)  # the student; the teacher and the positions, orthonormal


def sentence_loss() -> sp.Expr:
    """Loss of a sentence in the entries of both attention matrices."""
    given = layer()["sentence_loss"]
    return given.rhs.subs({layer()[name].rhs: x for name, x in (("S_12", S_12), ("S_21", S_21))})


def target(expr: sp.Expr) -> sp.Expr:
    """Put in the target (16), in the entries of its semantic part."""
    return expr.subs(
        {y: (1 - omega) * of + omega * A for y, of, A in ((Y_12, T_12, A_12), (Y_21, T_21, A_21))}
    )


@cache
def population_loss() -> sp.Expr:
    """Mean loss of a sentence, in (q, m, theta)."""
    return mean(target(sentence_loss()))


@cache
def noise() -> sp.Expr:
    """Mean of ``g_1^2 + g_2^2``, by the chain rule through the attention."""
    plain = sentence_loss()
    d1S12, d2S12, d1S21, d2S21 = SLOPES
    of_12, of_21 = sp.diff(plain, S_12), sp.diff(plain, S_21)
    slopes = (of_12 * d1S12 + of_21 * d1S21, of_12 * d2S12 + of_21 * d2S21)
    return mean(target(sp.Add(*(g**2 for g in slopes))))


@cache
def drift() -> Forms:
    """Rates by gradient flow of all weights on the population loss."""
    w = UNITS.Q(1, 1)
    to_teacher = UNITS.R(1, 1)
    to_p = UNITS.R(1, 2)
    inner = {q: sigma**2 * w, m: to_p, theta: sigma**2 * to_teacher}
    rates = UNITS.rates(population_loss().subs(inner, simultaneous=True))
    orthonormal = {UNITS.T(1, 1): 1, UNITS.T(2, 2): 1, UNITS.T(1, 2): 0}
    outer = {w: q / sigma**2, to_teacher: theta / sigma**2, to_p: m}
    moved = {q: sigma**2 * rates[w], m: rates[to_p], theta: sigma**2 * rates[to_teacher]}
    return {
        x: gathered(r.doit().subs(orthonormal).subs(outer, simultaneous=True))
        for x, r in moved.items()
    }


@cache
def rates() -> Forms:
    """Rates of one-pass descent: drift, decay, and growth of the norm by the noise of a step."""
    decayed = {x: r - (2 if x is q else 1) * decay * x for x, r in drift().items()}
    return {**decayed, q: decayed[q] + step * sigma**4 * noise_symbol}


def held(of: Mapping[sp.Symbol, sp.Expr]) -> Forms:
    """The same if the norm is restored after every step: overlaps shrink as the norm would grow."""
    return {x: sp.S.Zero if x is q else gathered(r - x * of[q] / (2 * q)) for x, r in of.items()}


@cache
def equations() -> Equations:
    """Population loss, squared slopes of a sentence, rates of the overlaps."""
    names = {x: f"d{x.name}_dt" for x in STATE}
    free = {names[x]: (sp.Derivative(x, t), r, "one-pass descent") for x, r in rates().items()}
    sphere = {
        f"{names[x]}_held": (sp.Derivative(x, t), r, "one-pass descent, norm held", HELD)
        for x, r in held(rates()).items()
        if x is not q
    }
    return table(
        ref,
        *LIMIT,
        status="exact",
        population_loss=(population, population_loss(), "population loss"),
        noise=(noise_symbol, noise(), "noise of a step"),
        **{name: (*row, FRESH) for name, row in (free | sphere).items()},
    )


def _flow(name: str, of: Mapping[sp.Symbol, sp.Expr], *more: str) -> Flow:
    return Flow(
        name,
        t,
        of,
        {q: sigma**2 * scale**2, m: cos_p * scale, theta: sigma**2 * cos_teacher * scale},
        ref("one-pass descent"),
        "exact",
        (*LIMIT, FRESH, *more),
        where={noise_symbol: noise()},
        observables={
            "loss": population_loss(),
            "cosine_p": m * sigma / sp.sqrt(q),
            "cosine_teacher": theta / (sigma * sp.sqrt(q)),
        },
        scope=scope.HELD if more else scope.FREE,
    )


@cache
def flow() -> Flow:
    """Flow of (q, m, theta)."""
    return _flow("online", rates())


@cache
def held_flow() -> Flow:
    """Flow of (m, theta) at a given norm."""
    return _flow("online_held", held(rates()), HELD)


def flow_of(p: Parameters, zero: str | None = None) -> Flow:
    """The flow that describes these students; also with an overlap that stays zero."""
    return _described(held_flow if p.norm == "held" else flow, bool(p.batch), zero)


@cache
def _described(of: Callable[[], Flow], noisy: bool, zero: str | None) -> Flow:
    """Without batches there is no noise of steps: the flow is that of the population gradient."""
    found = of()
    if not noisy:
        found = replace(found, rhs={x: r.subs(step, 0) for x, r in found.rhs.items()}, where={})
    return found.held(**{zero: 0.0}) if zero else found


# Early stage: growth rates of the overlaps where both vanish, and escape

UNINFORMED = "m = theta = 0"
SMALL = "q to zero; without decay and noise of steps"
GROWTH = {q: growth_q, m: growth_m, theta: growth_theta}


def even() -> None:
    """Check that attention is even in its fields: means with odd Hermite polynomials vanish, so
    that the lowest order in either overlap is two.
    """
    for S in off_diagonal(z_1, z_2):
        if sp.expand(S.subs({z_1: -z_1, z_2: -z_2}, simultaneous=True) - S) != 0:
            raise ArithmeticError(f"{S} is not even")


@cache
def growth_rates(of_sphere: bool) -> Forms:
    """Rates of ``m`` and ``theta`` per overlap, at zero overlaps and any norm."""
    even()
    moved = held(rates()) if of_sphere else rates()
    return {
        x: gathered(
            sp.diff(moved[x], x)
            .doit()
            .replace(lambda e: isinstance(e, Mean), at_zero)
            .subs({m: 0, theta: 0})
        )
        for x in (m, theta)
    }


def at_zero(of: Mean) -> sp.Expr:
    """A mean at zero overlaps; zero where it is odd in one of them."""
    *orders, _ = of.args[2:4]
    if any(n % 2 for n in orders[0][1:]):
        return sp.S.Zero
    return of.subs({m: 0, theta: 0})


@cache
def small_loss() -> sp.Expr:
    """Population loss to second order in the weights, where ``q``, ``m^2`` and ``theta^2`` are of
    one order.
    """
    epsilon = sp.Symbol("epsilon", positive=True)
    loss = target(sentence_loss())
    fields = {
        x: f.subs({z_1: epsilon * z_1, z_2: epsilon * z_2})
        for x, f in zip(STUDENT[:2], student_fields()[:2], strict=True)
    }
    loss = loss.subs({x: sp.series(f, epsilon, 0, 3).removeO() for x, f in fields.items()})
    second = sp.expand(loss).coeff(epsilon, 2)
    # Given h, z = (m, -m) + theta/rho h + independent noise of variance q - theta^2/rho.
    zeta = sp.symbols("zeta_1 zeta_2")
    rho, left = sigma**2, q - theta**2 / sigma**2
    z = {
        x: sign * m + theta / rho * h + y
        for x, sign, h, y in zip((z_1, z_2), (1, -1), (h_1, h_2), zeta, strict=True)
    }
    averaged = gaussian_moments(sp.expand(second.subs(z)), dict.fromkeys(zeta, left))
    # Over the teacher's fields: odd terms vanish, and the tokens are exchangeable.
    total = sp.S.Zero
    for (i, j, *of_T), c in sp.Poly(sp.expand(averaged), h_1, h_2, T_12, T_21).terms():
        if (i + j) % 2 == 0:
            total += c * teacher_moment(i, j, *of_T)
    return sp.factor(sp.expand(total))


def teacher_moment(i: int, j: int, k: int, l: int) -> sp.Expr:
    """Mean of ``h_1^i h_2^j T_12^k T_21^l`` for ``i + j`` of 0 or 2 and ``k + l`` of 0 or 1."""
    if k + l == 0:
        return {(0, 0): sp.S.One, (1, 1): sp.S.Zero}.get((i, j), sigma**2)
    if l:
        i, j = j, i
    square = sp.Symbol("T_square")  # of T_12 h_1^2 and of T_12 h_1 h_2, tied by T_slope
    crossed = sigma**2 * (T_slope - T_mean) + square
    other = sp.Symbol("T_other")  # of T_12 h_2^2
    return {(0, 0): T_mean, (2, 0): square, (1, 1): crossed, (0, 2): other}[i, j]


@cache
def small_growth() -> Forms:
    """Growth rates of weights along a generic direction, the positions and the teacher, at
    vanishing norm, by gradient flow on the loss to second order.
    """
    curved = small_loss()
    # Weights w: q = sigma^2 |w|^2, m = w.p, theta = sigma^2 w.Q*/sqrt(d), all others alike.
    generic = -2 * sigma**2 * sp.diff(curved, q)
    along = {
        q: generic,
        m: generic - sp.diff(curved, m, 2),
        theta: generic - sigma**4 * sp.diff(curved, theta, 2),
    }
    return {x: sp.factor(r) for x, r in along.items()}


@cache
def early_equations() -> Equations:
    """Growth rates on the sphere and for free weights, at vanishing norm, and the escape time."""
    rows = {
        f"growth_{x.name}{end}": (GROWTH[x], rate, "growth at zero overlaps", UNINFORMED, *more)
        for end, of_sphere, more in (("", False, ()), ("_held", True, (HELD,)))
        for x, rate in growth_rates(of_sphere).items()
    }
    small = {
        f"growth_{x.name}_small": (GROWTH[x], r, "growth of small weights", "leading order", SMALL)
        for x, r in small_growth().items()
    }
    # m (or theta/sigma) grows from c / sqrt(d) to one like exp(growth t).
    escape = sp.solve(sp.Eq(sp.log(d) / 2, growth * T_escape), T_escape)[0]
    return table(
        ref,
        *LIMIT,
        status="exact",
        **rows,
        **small,
        T_escape=(T_escape, escape, "escape", "leading order", "starts at order 1/sqrt(d)"),
    )


# Prediction of one-pass students in the limit of many dimensions


@until("t")
@theory_scope.pointwise(ANY)
def predict(
    p: Parameters, runs: xr.Dataset | None = None, *, until: float | None = None
) -> xr.Dataset:
    """Curves of ``q``, ``m``, ``theta`` and the loss: all seeds have one.

    Parameters
    ----------
    p : Parameters
        Parameters of the training.
    runs : Dataset, optional
        Students, whose times are used; else those at which students with these parameters measure.
    until : float, optional
        Length of the curve without runs, in ``t`` (also ``t=``); by default that of ``p.steps``.

    Returns
    -------
    Dataset
        Over ``t``.
    """
    if runs is not None:
        prediction.check_runs(p, runs, ("t",), free=RUN)
        times = runs.t.values
    else:
        p = p.run_to(until)
        times = p.eta / p.d * prediction.evaluations(p.steps, p.eval_every)
    return flow_of(p).solve(p, at=times, t=float(times[-1]))
