"""Numbers of the law of all weights at large N."""

from functools import cache

import scipy.integrate
import scipy.optimize

from theory import numeric
from theory.induction_heads.all_weights import descent, plateau
from theory.induction_heads.all_weights.plateau import e, phi
from theory.induction_heads.symbols import tau


@cache
def constants() -> dict[str, float]:
    """Mean and variance of phi(1/u) over u in (0, 1), and the time of gamma_3 = 1/2 divided by N,
    for the last pair.
    """
    of_e = numeric.function(plateau.sums()[phi], [e])
    moments = [
        scipy.integrate.quad(
            lambda v, n=n: float(of_e(1 / v)) ** n, 0, 1, epsabs=1e-12, epsrel=1e-12
        )[0]
        for n in (1, 2)
    ]
    path = numeric.function(
        plateau.layer()["last_Gamma"] / 2, [tau]
    )  # gamma_3 is half of Gamma until t = O(N^2 / ln N)
    first = scipy.optimize.brentq(lambda v: float(path(v)) - descent.HALF, 0.1, 10, xtol=1e-14)
    return {
        "mean_phi": moments[0],
        "variance_phi": moments[1] - moments[0] ** 2,
        "T_gamma_over_N": float(first),
    }
