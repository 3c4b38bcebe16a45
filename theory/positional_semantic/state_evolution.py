"""State evolution (7): stationarity conditions of the free entropy, with Gaussian identities for
the energetic part.

The average of the envelope depends on the order parameters through the distribution of its
arguments. Differentiation under the average gives derivatives of the envelope M(w, h). The envelope
theorem expresses those with respect to w and V by g = (z* - w)/V, and integration by parts (Stein's
lemma) removes those with respect to h. The result contains g but none of its derivatives, so that
jumps of g need no separate treatment.
"""

from functools import cache

import sympy as sp

from theory import Equation, linear_root, proved, symbol, table, vanishes
from theory.positional_semantic import free_entropy
from theory.positional_semantic.free_entropy import RS, TWO
from theory.positional_semantic.symbols import (
    CONJUGATE,
    ORDER,
    E_g,
    E_geta,
    E_gg,
    E_gxi,
    V,
    V_hat,
    m,
    nu,
    q,
    q_hat,
    ref,
    rho,
    sigma,
    theta,
)

xi, eta, w, h, z, sign = sp.symbols("xi eta w h z s", real=True)
envelope = sp.Function("M")(w, h)
FIELDS = {w: sign * m + sp.sqrt(q) * xi, h: theta / sp.sqrt(q) * xi + sp.sqrt(nu) * eta}
NU = rho - theta**2 / q


def by_envelope_theorem() -> dict[sp.Symbol, sp.Expr]:
    """Derivatives of the envelope with respect to ``w`` and ``V`` as functions of ``g``, i.e. those
    of its objective at the minimiser.
    """
    g = sp.Symbol("g", real=True)
    objective = (z - w) ** 2 / (2 * V) + sp.Function("l")(z, h)
    return {x: sp.expand(sp.diff(objective, x).subs(z, w + V * g)) for x in (w, V)}


def stein(expr: sp.Expr) -> sp.Expr:
    """Remove ``xi`` and ``eta`` from an average by parts: ``E[xi F] = E[dF/dxi]``, through ``w``
    and ``h``.
    """
    total = sp.S.Zero
    for (i, j), coefficient in sp.Poly(sp.expand(expr), xi, eta).terms():
        if i + j > 1:
            raise ValueError("at most one Gaussian factor")
        term = coefficient
        for power, by in ((i, xi), (j, eta)):
            if power:
                term = sum(sp.diff(term, x) * sp.diff(form, by) for x, form in FIELDS.items())
        total += term
    return sp.expand(total)


@cache
def envelope_gradient() -> dict[sp.Symbol, sp.Expr]:
    """Derivatives of ``E_M`` with respect to q, m, V and theta as averages of ``g``, each proved by
    integration by parts.

    Raises
    ------
    ArithmeticError
        If a printed form does not equal the derivative.
    """
    g = -sp.diff(envelope, w)  # envelope theorem
    proved(by_envelope_theorem()[w] == -sp.Symbol("g", real=True), "dM/dw is not -g")
    claimed = {
        q: (
            theta / (2 * q * sp.sqrt(nu)) * E_geta - E_gxi / (2 * sp.sqrt(q)),
            {E_geta: g * eta, E_gxi: g * xi},
        ),
        m: (-E_g, {E_g: sign * g}),
        theta: (-E_geta / sp.sqrt(nu), {E_geta: g * eta}),
    }
    result = {}
    for x, (form, meaning) in claimed.items():
        of_nu = sp.diff(NU, x)
        derivative = sum(
            sp.diff(envelope, y) * (sp.diff(f, x) + sp.diff(f, nu) * of_nu)
            for y, f in FIELDS.items()
        )
        if not vanishes(stein(derivative) - stein(form.subs(meaning))):
            raise ArithmeticError(f"{form} is not the derivative in {x}")
        result[x] = form
    result[V] = by_envelope_theorem()[V].subs(sp.Symbol("g", real=True) ** 2, E_gg)
    return result


@cache
def equations() -> dict[str, Equation]:
    """The eight equations (7)-(8), solved from the stationarity of the free entropy, and their
    abbreviation nu.
    """
    conditions = free_entropy.gradient(envelope_gradient())
    rows = {}
    # The derivative with respect to an order parameter determines its conjugate, and vice versa.
    partner = {q: V_hat, V: q_hat, m: CONJUGATE[1], theta: CONJUGATE[3]}
    for x in ORDER:
        y = partner[x]
        solution = linear_root(conditions[x], y)
        if x is q:
            theta_hat_form = linear_root(conditions[theta], CONJUGATE[3])
            solution = sp.expand(solution)
            # E_geta enters through theta_hat only.
            moment = linear_root(CONJUGATE[3] - theta_hat_form, E_geta)
            solution = sp.expand(solution.subs(E_geta, moment))
        rows[y.name] = (y, solution)
    inverse = {V_hat: q, q_hat: V, CONJUGATE[1]: m, CONJUGATE[3]: theta}
    for y, x in inverse.items():
        rows[x.name] = (x, sp.factor(linear_root(conditions[y], x)))
    return table(
        ref("Eq. (7)"), "law of the teacher field given the student's", status="exact", nu=(nu, NU)
    ) | table(ref("Eqs. (7), (109)"), *RS, *TWO, status="closure", **rows)


NORM = symbol("norm", r"\lVert\hat{Q}\rVert^{2}/d", "squared norm of the weights", nonnegative=True)
NORM_EQUATION = Equation("norm", NORM, q / sigma**2, ref("Eq. (6)"), "exact", TWO)
