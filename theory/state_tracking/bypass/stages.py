"""Stages of learning with a bypass: first a guess from the state alone, which delays attention only
little.

``D``, by which an action's own state is above those of other actions, and ``h``, by which states
that are led to are above the others, are all that logits depend on; the bypass feeds ``h`` alone.
"""

from functools import cache

import sympy as sp

from theory import Equation, symbol, table
from theory.algebra import replaced
from theory.state_tracking.bypass.statement import N, b, d_g, stated
from theory.state_tracking.symbols import ref
from theory.statement import kept

D, h = (
    symbol("D_bypass", "D", "own state of an action above those of others, in M", real=True),
    symbol("h_bypass", "h", "states that are led to above the others, in logits", real=True),
)
D_rate, h_rate, specific, plateau = (
    symbol("D_bypass_rate", r"\dot D(0)", "rate of D at the start", real=True),
    symbol("h_bypass_rate", r"\dot h(0)", "rate of h at the start", real=True),
    symbol("specificity", r"1-S/R", "specificity of logic, by intervention", real=True),
    symbol("bypass_plateau", r"\ell_{1}", "loss of the guess from the state alone", real=True),
)
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
        state()[x] for x in ("theta", "delta_M_1", "delta_M_0", "delta_U")
    )

    def split(share: sp.Expr) -> dict[sp.Symbol, sp.Expr]:
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


def state() -> dict[str, sp.Symbol]:
    """Order parameters of the statement by name."""
    return {q.name: q for q in kept.derived(stated).flow.state}


@cache
def rates() -> dict[str, sp.Expr]:
    """Rates of theta, D and h, which close."""
    rhs, of = kept.derived(stated).flow.rhs, state()
    to_own, other, alone = (rhs[of[n]] for n in ("delta_M_1", "delta_M_0", "delta_U"))
    whole = {"theta": rhs[of["theta"]], "D": to_own - other, "h": other + b * alone}
    return {name: by_two(expr) for name, expr in whole.items()}


def start(name: str) -> sp.Expr:
    """Rate at zero weights."""
    return sp.factor(rates()[name].xreplace(dict.fromkeys((D, h, state()["theta"]), sp.S.Zero)))


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
    point = {state()["theta"]: POINT["theta"], h: POINT["h"], N: 9, d_g: 7}
    if abs((of_flow - loss.subs(x, sp.exp(-h))).subs(point).evalf(30)) > 1e-25:
        raise ArithmeticError("not the loss of a guess from the state")
    return sp.limit(loss, x, 0)


@cache
def equations() -> dict[str, Equation]:
    """Rates and specificity at the start; loss of the first stage."""
    return table(
        ref("beyond the paper: a bypass"),
        status="exact",
        bypass_rate_D=(D_rate, lambda: start("D"), START),
        bypass_rate_h=(h_rate, lambda: start("h"), START),
        bypass_specificity=(specific, specificity, START),
        bypass_guess=(plateau, guess, "the state known, the actions not"),
    )
