"""State tracking with a bypass, one step from the solvable student towards standard transformers:
logits also have a table of the state alone; derived from a statement (`theory.statement`).
"""

from functools import cache
from typing import Any

import numpy as np
import sympy as sp
from scipy.integrate import solve_ivp

from theory import Equations, Limit, ParameterError, Scope, numeric, scope, sweep, symbol, table
from theory.algebra import replaced
from theory.notation import Forms
from theory.state_tracking.symbols import PAPER, ref
from theory.statement import (
    draw,
    exp,
    kept,
    log,
    number,
    sample,
    sizes,
    sort,
    statement,
    total,
    weight,
)
from theory.statement.model import package_theory

__all__ = [
    "Parameters",
    "applies",
    "derived",
    "emergence_time",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "guess_time",
    "onset",
    "predict",
    "sections",
    "stated",
]


# State tracking with a bypass
#
# From every state the d_g actions lead to different states; N - d_g states are never reached. A
# state that is reached is named by the action that leads there. Attention is one trained
# number, the score of the right action. Time is t = eta * steps, eta d_g N times the paper's
# alpha.

LENGTH = 6  # actions of a sequence
N, d_g = sizes("N d_g")
b = number("b", "strength of the table of the state alone")
state = sort("state", N)
action = sort("action", d_g)
nobody = sort("nobody", N - d_g)
place = sort("place", LENGTH - 1)  # of the other actions of the sequence
other = sample("other", (place,), action)
now, right = draw(state), draw(action)
M = weight("M", state, action, action)
M_none = weight("M_none", state, action, nobody)
U = weight("U", state, action)
U_none = weight("U_none", state, nobody)
score = weight("theta")[()]
mass = exp(score) + LENGTH - 1


def logit(of: Any, alone: Any, then: Any) -> Any:
    """Logit of a state: logic of the retrieved action, plus the table of the current state."""
    others = total(lambda p: of[now, other(p), then], place)
    return (exp(score) * of[now, right, then] + others) / mass + b * alone[now, then]


every = total(lambda c: exp(logit(M, U, c)), action)
none = total(lambda n: exp(logit(M_none, U_none, n)), nobody)
stated = statement(
    log(every + none) - logit(M, U, right),
    name="bypass",
    title="State tracking with a bypass: a table of the state alone beside logic",
    paper=PAPER,
    observables={"A": exp(score) / mass, "possible": every / (every + none)},
    values=dict(N=12, d_g=6, b=1.0, eta=0.5, steps=600, eval_every=4, batch_size=256),
    bounds=dict(b=(0, 100)),
)


# Stages of learning with a bypass
#
# First a guess from the state alone, which delays attention only little. Logits depend on two
# numbers: D, an action's own state above those of other actions, and h, reached states above
# the others; the bypass feeds h alone.

D = symbol("D_bypass", "D", "own state of an action above those of others, in M", real=True)
h = symbol("h_bypass", "h", "states that are led to above the others, in logits", real=True)
D_rate = symbol("D_bypass_rate", r"\dot D(0)", "rate of D at the start", real=True)
h_rate = symbol("h_bypass_rate", r"\dot h(0)", "rate of h at the start", real=True)
specific = symbol("specificity", r"1-S/R", "specificity of logic, by intervention", real=True)
plateau = symbol("bypass_plateau", r"\ell_{1}", "loss of the guess from the state alone", real=True)
START = "zero weights, attention uniform"
POINT = {"theta": sp.Rational(3, 10), "D": sp.Rational(7, 10), "h": sp.Rational(2, 5)}


def by_two(expr: sp.Expr) -> sp.Expr:
    """An expression in the statement's order parameters as one in theta, D and h.

    Raises
    ------
    ArithmeticError
        If it depends on more: on how much of h is in M.
    """
    theta, to_own, other, alone = (
        order_parameters()[x] for x in ("theta", "delta_M_1", "delta_M_0", "delta_U")
    )

    def split(share: sp.Expr) -> Forms:
        return {to_own: D + (1 - share) * h, other: (1 - share) * h, alone: share * h / b}

    point = {theta: POINT["theta"], D: POINT["D"], h: POINT["h"], b: sp.Rational(4, 5)}
    point |= {N: sp.Integer(9), d_g: sp.Integer(7)}
    numbers = []
    for share in (sp.S.Zero, sp.Rational(1, 3)):
        at = point | {x: form.subs(point) for x, form in split(share).items()}
        numbers.append(replaced(expr, {x: value.evalf(40) for x, value in at.items()}))
    if abs(numbers[0] - numbers[1]) > 1e-25:
        raise ArithmeticError(
            f"{numbers[0]} at one point, {numbers[1]} at another with the same D, h"
        )
    return replaced(expr, split(sp.S.Zero))


def order_parameters() -> dict[str, sp.Symbol]:
    """Order parameters of the statement by name."""
    return {q.name: q for q in kept.derived(stated).flow.state}


@cache
def rates() -> dict[str, sp.Expr]:
    """Rates of theta, D and h, which close."""
    rhs, of = kept.derived(stated).flow.rhs, order_parameters()
    to_own, other, alone = (rhs[of[n]] for n in ("delta_M_1", "delta_M_0", "delta_U"))
    whole = {"theta": rhs[of["theta"]], "D": to_own - other, "h": other + b * alone}
    return {name: by_two(expr) for name, expr in whole.items()}


def start(name: str) -> sp.Expr:
    """Rate at zero weights."""
    return sp.factor(
        rates()[name].xreplace(dict.fromkeys((D, h, order_parameters()["theta"]), sp.S.Zero))
    )


def specific_at() -> sp.Expr:
    """1 - S/R by intervention, at D and h: R is the logit of the right state less the mean over
    states, with attention moved to the right action, and S with attention moved to another one.
    """
    led = h * (N - d_g) / N  # above the mean, wherever attention is
    R, S = D - D / N + led, -D / N + led
    return 1 - S / R


def specificity() -> sp.Expr:
    """That at the start, where D and h are as their rates."""
    return sp.factor(specific_at().subs({D: start("D"), h: start("h")}))


def guess() -> sp.Expr:
    """Loss of the best guess from the state alone: D = 0, h to infinity.

    Raises
    ------
    ArithmeticError
        If the loss at D = 0 is another one.
    """
    x = sp.Symbol("x", positive=True)
    loss = sp.log(d_g + (N - d_g) * x)  # x = exp(-h)
    of_flow = by_two(kept.derived(stated).flow.observables["loss"]).subs(D, 0)
    point = {order_parameters()["theta"]: POINT["theta"], h: POINT["h"], N: 9, d_g: 7}
    if abs((of_flow - loss.subs(x, sp.exp(-h))).subs(point).evalf(30)) > 1e-25:
        raise ArithmeticError("not the loss of a guess from the state")
    return sp.limit(loss, x, 0)


@cache
def stage_equations() -> Equations:
    """Rates and specificity at the start; loss of the first stage."""
    return table(
        ref("beyond the paper: a bypass"),
        status="exact",
        bypass_rate_D=(D_rate, lambda: start("D"), START),
        bypass_rate_h=(h_rate, lambda: start("h"), START),
        bypass_specificity=(specific, specificity, START),
        bypass_guess=(plateau, guess, "the state known, the actions not"),
    )


# Times of the two stages as numbers, along the exact flow

HALF = 0.5  # of attention; of the way of the guess
RUNS = 100.0, 1e3, 1e4  # lengths of runs that look for their end, in units of N d_g
LARGEST_N = 10**5  # where they find it in seconds
ACCURACY = 1e-9

SCOPE = Scope(
    "the flow with a bypass",
    "gradient descent in small steps from zero, teachers that lead to different states",
    (
        Limit("N", "at most 10^5 states", lambda p, runs: p.N <= LARGEST_N),
        Limit("d_g", "at least 2 and below N", lambda p, runs: 2 <= p.d_g < p.N, reads=("N",)),
    ),
    free=("eta", "steps", "eval_every", "batch_size"),
    enters=("b",),
)  # fmt: skip
applies = scope.applies({"emergence": SCOPE})


@cache
def compiled() -> Any:
    """Rates of the order parameters, then attention and the mass on states that are led to."""
    flow = kept.derived(stated).flow
    shown = [*flow.rhs.values(), flow.observables["A"], flow.observables["possible"]]
    return numeric.function(shown, [*flow.state, N, d_g, b])


def crossing(p: Any, shown: int, level: float) -> float:
    """First time at which what `compiled` shows last (-1) or last but one (-2) is at a level."""
    number = len(kept.derived(stated).flow.state)

    def event(t: float, y: np.ndarray) -> float:
        return float(compiled()(*y, p.N, p.d_g, p.b)[shown]) - level

    event.terminal = True  # type: ignore[attr-defined]
    for end in np.multiply(RUNS, p.N * p.d_g):
        path = solve_ivp(
            lambda t, y: compiled()(*y, p.N, p.d_g, p.b)[:number],
            (0, end),
            np.zeros(number),
            method="LSODA",
            events=event,
            rtol=ACCURACY,
            atol=ACCURACY / p.N,
        )
        if path.t_events[0].size:
            return float(path.t_events[0][0])
    raise ParameterError(f"N = {p.N}, d_g = {p.d_g}, b = {p.b:g}: not reached by t = {end:g}")


@scope.guard(SCOPE)
@sweep.over_fields
def emergence_time(p: Any) -> float:
    """Time at which half of the attention is on the right action.

    In time of the flow, at any learning rate; `emergence_times` refuses those with few steps.
    """
    return crossing(p, -2, HALF)


@scope.guard(SCOPE)
@sweep.over_fields
def guess_time(p: Any) -> float:
    """Time at which the mass on states that are led to has gone half of its way, from d_g/N to
    1.
    """
    return crossing(p, -1, (1 + p.d_g / p.N) * HALF)


TIMES = {
    "T_guess": (guess_time, "time at which the guess from the state is half made"),
    "T_A": (emergence_time, "time at which A is 1/2"),
}


Parameters, derived, flow, flows, sections, equations, onset, emergence_times, predict = (
    package_theory(stated, {"State tracking with a bypass: stages": [stage_equations]}, TIMES)
)
