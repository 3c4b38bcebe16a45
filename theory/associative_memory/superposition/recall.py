"""Recall accuracy of a Hebbian memory, one output per key: with Gaussian scores, and with sphere
tails of wrong scores.
"""

from functools import cache

import sympy as sp

from theory import Equation, function, symbol, table
from theory.associative_memory.superposition import moments
from theory.associative_memory.superposition.moments import RANDOM, M
from theory.associative_memory.symbols import DERIVED, N, d, ref

accuracy = symbol("accuracy_recall", r"\mathrm{acc}", "probability of recall", positive=True)
z = symbol("z_normal", "z", "standard Gaussian", real=True)
c_leak = symbol("c_leak", "c", "overlap of the right output with a wrong one", real=True)
sigma_0 = symbol("sigma_0", means="deviation of the right score", positive=True)
sigma_1 = symbol("sigma_1", means="deviation of a wrong score", positive=True)
rho2 = symbol("rho2", r"\rho^{2}", "squared length of what is recalled", positive=True)
share = symbol("share_capacity", r"\nu", "N / d^2", positive=True)
INDEPENDENT = "wrong scores independent of one another"


def length_of_rest() -> sp.Expr:
    """Mean squared length of the recalled vector without the component along the correct output.

    The component along u_y is the correct score, 1 + sigma_0 z. Each of the N - 1 other pairs adds
    its output, weighted by the overlap of the keys (mean square 1/d); a fraction 1 - 1/d of it is
    perpendicular to u_y.
    """
    square = moments.squared_cosine()
    return (1 + sigma_0 * z) ** 2 + (N - 1) * square * (1 - square)


@cache
def equations() -> dict[str, Equation]:
    """Both accuracies, and the capacity law."""
    phi = sp.exp(-(z**2) / 2) / sp.sqrt(2 * sp.pi)
    below = (1 + sp.erf((1 + sigma_0 * z) / (sigma_1 * sp.sqrt(2)))) / 2
    gauss = sp.Integral(phi * below ** (N - 1), (z, -sp.oo, sp.oo))
    density = (
        sp.gamma(d / 2)
        / (sp.sqrt(sp.pi) * sp.gamma((d - 1) / 2))
        * (1 - c_leak**2) ** ((d - 3) / 2)
    )
    marginal = function("F_d", "distribution function of a coordinate on the sphere")
    wrong = sp.Integral(
        density * marginal((1 + sigma_0 * z - c_leak) / sp.sqrt(rho2)), (c_leak, -1, 1)
    )
    sphere = sp.Integral(phi * wrong ** (N - 1), (z, -sp.oo, sp.oo))
    # Half of the keys are recalled when the largest of N wrong scores, about sigma_1 sqrt(2 ln N),
    # equals the correct score 1. At fixed N/d^2 (up to logarithms) the leak 2/d is negligible
    # against N/d^2.
    scaled = moments.equations()["interference_wrong"].rhs.subs(N, share * d**2)
    needed = (
        2 * sp.limit(scaled, d, sp.oo) * d**2 / share * sp.log(N) * (N / d**2)
    )  # = d^2 for 2 sigma_1^2 ln N = 1
    # With few outputs the variance is dominated by the term of order 1/d.
    few = sp.expand(moments.equations()["classes_wrong"].rhs * d).coeff(d, 0).coeff(N, 1) * N / d
    of_scores = table(
        ref(DERIVED),
        RANDOM,
        status="exact",
        sigma_right=(sigma_0, sp.sqrt(moments.equations()["interference_right"].rhs)),
        sigma_wrong=(sigma_1, sp.sqrt(moments.equations()["interference_wrong"].rhs)),
        recall_gaussian=(accuracy, gauss, "closure", "Gaussian scores", INDEPENDENT),
        recalled_length=(rho2, length_of_rest(), "mean over embeddings, right score given"),
        recall_sphere=(
            accuracy,
            sphere,
            "closure",
            INDEPENDENT,
            "squared length of the recalled vector at its mean; right score Gaussian",
            "F_d: distribution function of one coordinate of a uniform unit vector",
        ),
    )
    return of_scores | table(
        ref,
        status="leading order",
        capacity_classes=(
            N,
            sp.solve(sp.Eq(2 * sp.log(M) * few, 1), N)[0],
            DERIVED,
            "M outputs, M well below d: keys of one output interfere at order 1/d",
            "half of the keys recalled",
        ),
        capacity=(
            d**2,
            sp.simplify(needed),
            "slides: capacity of the order of the parameters; law derived here",
            "half of the keys recalled",
            "N, d -> infinity: ln ln N neglected",
        ),
    )
