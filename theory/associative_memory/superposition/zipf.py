"""Keys with Zipf frequencies: lost and unseen probability mass (few outputs; Cabannes et al.
2024).
"""

from functools import cache

import sympy as sp

from theory import Equation, symbol, table
from theory.associative_memory.symbols import T, ref

b = symbol("b_zipf", "b", "frequencies fall as rank to the power -(1 + b)", positive=True)
P = symbol("P_stored", "P", "stored keys, the most frequent ones", positive=True)
rank = symbol("x_rank", "x", "rank of a key", positive=True)
error = symbol(
    "zipf_error", r"\mathcal{E}", "probability of a key that is not recalled", positive=True
)
SCALING = ref("Cabannes et al. 2024, exponents by abstract; derivation here")
LAW = "frequencies x^-(1 + b) / zeta(1 + b)"


def unseen_mass() -> sp.Expr:
    """Probability mass of the keys that T samples miss: mean of (1 - p)^T, approximated by e^(-T
    p), with the sum replaced by an integral.
    """
    v, c = sp.symbols("v c", positive=True)
    a = 1 + b
    # v = T p(x): x = (T/zeta)^(1/a) v^(-1/a), so x^-a dx / zeta = (1/a) T^(1/a - 1) zeta^(-1/a)
    # v^(-1/a) dv.
    integral = sp.integrate(v ** (c - 1) * sp.exp(-v), (v, 0, sp.oo))
    return integral.subs(c, b / a) * T ** (-b / a) * sp.zeta(a) ** (-1 / a) / a


@cache
def equations() -> dict[str, Equation]:
    """Lost mass, unseen mass, and the exponent in d."""
    # Keys beyond rank P, with the sum replaced by an integral.
    lost = sp.simplify(sp.integrate(rank ** (-b - 1), (rank, P, sp.oo))) / sp.zeta(1 + b)
    exponent = sp.simplify(sp.diff(sp.log(lost), P) * P)
    slope = symbol("zipf_slope", r"d\ln\mathcal{E}/d\ln d", "exponent of the error in d")
    shared = "P proportional to d: few outputs, equal weights on the stored keys"
    return table(
        SCALING,
        LAW,
        status="leading order",
        zipf_lost=(error, lost, "the P most frequent keys are stored", "P large"),
        zipf_exponent=(slope, exponent, shared),
        zipf_unseen=(error, unseen_mass(), "T samples, T large"),
    )
