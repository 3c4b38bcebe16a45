"""Next-token and rollout accuracy (Eqs. 16-18, App. I, Eqs. 82-91)."""

from functools import cache

import sympy as sp

from theory import Equation, array, function, proved, symbol, table, vanishes, written_as
from theory.state_tracking.symbols import (
    L,
    N,
    accuracy,
    i,
    mu_k,
    mu_kbar,
    recovery,
    ref,
    rho,
    sigma_k,
    sigma_kbar,
    t,
)

right = array("step_accuracy", r"\mathcal{A}", "accuracy after a right state, by step")
wrong = array("step_recovery", r"\mathcal{B}", "accuracy after a wrong state, by step")
rho_t = array("rho", r"\varrho", "probability that a rolled-out state is right, by step")
GAUSSIAN = "logits independent and Gaussian"


def closed_form(steps: sp.Expr) -> sp.Expr:
    """Solution (85) of the recursion after ``steps`` steps, from rho_0 = 1."""
    gain = right[i] - wrong[i]
    later = sp.Product(gain, (i, t + 1, steps - 1))
    return right[0] * sp.Product(gain, (i, 1, steps - 1)) + sp.Sum(
        wrong[t] * later, (t, 1, steps - 1)
    )


def prove_closed_form() -> None:
    """Proof by induction: rho_1 = A_0, and one step of (84) turns the form for L into the form for
    L + 1.

    Raises
    ------
    ArithmeticError
        If either step fails.
    """
    last = (right[i] - wrong[i]).subs(i, L)

    def split(product: sp.Product) -> sp.Expr:
        """Split off the last factor of a product that ends at L."""
        ((index, low, high),) = product.limits
        return sp.Product(product.function, (index, low, high - 1)) * product.function.subs(
            index, high
        )

    following = closed_form(L + 1)
    (total,) = following.atoms(sp.Sum)
    at_end = total.function.subs(t, L).doit()  # empty product
    following = following.subs(total, sp.Sum(total.function, (t, 1, L - 1)) + at_end)
    following = following.replace(lambda e: isinstance(e, sp.Product), split)
    following = following.replace(
        lambda e: isinstance(e, sp.Sum), lambda e: sp.Sum(e.function / last, *e.limits) * last
    )
    step = closed_form(L) * last + wrong[L]
    proved(
        vanishes(following - step) and closed_form(sp.Integer(1)).doit() == right[0],
        "the closed form does not solve the recursion",
    )


UNIFORM = (1 - accuracy) / (N - 1)  # recovery with uniform transitions from wrong states
u = symbol("u", means="a logit in units of its deviation", real=True)
x = sp.Symbol("x", real=True)
NORMAL = sp.exp(-(u**2) / 2) / sp.sqrt(2 * sp.pi)
BELOW = function(r"\Phi", "standard normal distribution function")
LINE = (-sp.oo, sp.oo)


def constant_gain() -> sp.Expr:
    """Solution of the recursion with the same accuracy at all positions."""
    path = sp.Function("rho")
    solved = sp.rsolve(
        path(t + 1) - path(t) * (accuracy - UNIFORM) - UNIFORM, path(t), {path(0): 1}
    ).subs(t, L)
    return written_as((N - 1) / N * ((N * accuracy - 1) / (N - 1)) ** L + 1 / N, solved)


def density_of_right() -> sp.Expr:
    """Density of the correct logit times the probability that all wrong logits lie below it."""
    density = sp.exp(-((x - mu_k) ** 2) / (2 * sigma_k**2)) / (sp.sqrt(2 * sp.pi) * sigma_k)
    return density * BELOW((x - mu_kbar) / sigma_kbar) ** (N - 1)


def standardised() -> sp.Expr:
    """The same in the standard variable u, dx = sigma_k du."""
    standard = density_of_right().subs(x, mu_k + sigma_k * u) * sigma_k
    ratio = sigma_k / sigma_kbar * u + (mu_k - mu_kbar) / sigma_kbar
    (below,) = standard.atoms(BELOW)
    written_as(NORMAL, standard.subs(below, 1))
    return NORMAL * BELOW(written_as(ratio, below.args[0])) ** (N - 1)


@cache
def equations() -> dict[str, Equation]:
    """Recursion, its solutions, and the Gaussian one-step accuracy."""
    y = sp.Symbol("y", real=True)

    def closed() -> sp.Expr:
        prove_closed_form()
        return closed_form(L)

    by_density = sp.Integral(density_of_right(), (x, *LINE))
    below = sp.Integral(NORMAL.subs(u, y), (y, -sp.oo, u))
    one, alike = "one accuracy for all positions", "wrong states lead anywhere alike"
    return table(
        ref,
        status="closure",
        rollout_recursion=(
            rho_t[t + 1],
            rho_t[t] * (right[t] - wrong[t]) + wrong[t],
            "Eqs. (16), (82)-(84)",
            "a step is right or wrong whatever came before, given the state",
        ),
        rollout_closed=(rho_t[L], closed, "Eq. (85)", "exact", "proved by induction on L"),
        recovery=(recovery, UNIFORM, "Eq. (86)", alike),
        rollout_mean=(rho, constant_gain, "Eqs. (18), (87)", one, alike),
        normal_below=(BELOW(u), below, "Eq. (90)", "exact"),
        accuracy_density=(accuracy, by_density, "Eqs. (88)-(89)", GAUSSIAN),
        accuracy=(
            accuracy,
            lambda: sp.Integral(standardised(), (u, *LINE)),
            "Eqs. (17), (91)",
            GAUSSIAN,
        ),
    )
