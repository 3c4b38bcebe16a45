"""Result 5.1: closed form of the purely positional baseline, a dense linear layer (19-20)."""

from functools import cache

import sympy as sp

from theory import Equation, linear_root, symbol, table, written_as
from theory.positional_semantic.symbols import A_12, A_21, omega, ref, sigma

P_mean = symbol(
    "P_mean", r"\mathbb{E}[P]", "mean off-diagonal entry of the teacher's attention", positive=True
)
P_var = symbol("P_var", r"\mathrm{Var}[P]", "its variance", nonnegative=True)
W_12, W_21 = (
    symbol(f"W_{k}", rf"\hat{{W}}_{{{k}}}", "trained weight of the linear layer", real=True)
    for k in ("12", "21")
)
epsilon_lin = symbol(
    "epsilon_lin", r"\epsilon_{\mathrm{lin}}", "test error of the linear layer", nonnegative=True
)
ASSUMED = (
    "d to infinity: the empirical risk of L^2 parameters is the population risk",
    "two tokens",
)


@cache
def equations() -> dict[str, Equation]:
    """Best linear layer for the target (16), its error, and that of a purely positional target."""
    P, R, W1, W2 = sp.symbols("P R W1 W2", real=True)  # entries of softmax(h h^T) and of the layer
    T = sp.Matrix([[0, (1 - omega) * P + omega * A_12], [(1 - omega) * R + omega * A_21, 0]])
    T[0, 0], T[1, 1] = 1 - T[0, 1], 1 - T[1, 0]
    W = sp.Matrix([[1 - W1, W1], [W2, 1 - W2]])
    risk = sp.expand(sigma**2 * ((T - W) * (T - W).T).trace())

    def average(expr: sp.Expr) -> sp.Expr:
        # P and R have the same distribution, as the tokens are exchangeable.
        expr = sp.expand(expr).subs({P**2: P_var + P_mean**2, R**2: P_var + P_mean**2})
        return expr.subs({P: P_mean, R: P_mean})

    risk = average(risk)
    best = {
        x: linear_root(sp.diff(risk, x), x) for x in (W1, W2)
    }  # the two conditions are independent
    error = written_as(4 * sigma**2 * (1 - omega) ** 2 * P_var, sp.factor(risk.subs(best)))
    return table(
        ref,
        *ASSUMED,
        status="exact",
        W_12=(W_12, sp.collect(sp.expand(best[W1]), omega), "Eqs. (19), (140)"),
        W_21=(W_21, sp.collect(sp.expand(best[W2]), omega), "Eqs. (19), (140)"),
        linear_error=(epsilon_lin, error, "Eqs. (20), (142)"),
        linear_positional=(W_12, best[W1].subs(omega, 1), "App. D.1, Eq. (142)", "omega = 1"),
    )
