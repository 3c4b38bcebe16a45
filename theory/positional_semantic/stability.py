"""Which fixed points are minima that descent can stop in: the replicon as a trace over the Hessian.

Descent stops at a minimum of the risk whichever well each sentence lies in, as long as the Hessian
H has no spectral weight at zero. A ridge raised by s at fixed weights gives the resolvent of H; its
trace obeys the state evolution's equation for V with the wells held, so that its slope in s is the
trace of ``H^-2``. That trace diverges where the replicon reaches one: on the same line message
passing, which multiplies the squared distance of nearby iterates by the replicon at every step,
stops converging.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from theory.equation import Equation, table
from theory.notation import symbol
from theory.positional_semantic.free_entropy import RS
from theory.positional_semantic.symbols import V, lam, sigma

H_2 = symbol("H_2", r"\overline{H^{-2}}", "trace of the inverse squared Hessian", positive=True)
replicon = symbol("R", means="replicon: alpha V^2 times the mean squared slope of g", real=True)


@cache
def equations() -> dict[str, Equation]:
    """The replicon, from the Hessian of the risk at a student."""
    s = sp.Symbol("s")
    # V_hat = alpha E tr l''(1 + V l'')^-1; its slope in V is -alpha E|dg/dw|^2 = -R/V^2.
    V_hat = sp.Function("V_hat")
    zero = V * (lam + s + sigma**2 * V_hat(V)) - sigma**2
    slope = -sp.diff(zero, s) / sp.diff(zero, V)
    slope = slope.subs(sp.diff(V_hat(V), V), -replicon / V**2)
    slope = slope.subs(V_hat(V), sp.solve(zero, V_hat(V))[0])
    of_trace = sp.solve(slope + sigma**2 * H_2, replicon)[0]
    return table(
        "cui2024, beyond Eq. (43)",
        *RS,
        "no spectral weight of the Hessian at zero",
        status="closure",
        R=(replicon, sp.simplify(of_trace)),
    )
