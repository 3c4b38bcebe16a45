"""All weights on contexts whose one right pair is recent: at a random place among the last ``w N``.

On the plateau the network wants what it retrieves of the right label, S, and no other token. For
the last pair S = 0, so that gamma_4 = -1 drives alpha_3; later rows retrieve an earlier pair, which
makes gamma_4, and the drive, smaller. Recency helps.
"""

from functools import cache

import sympy as sp

from theory import Equation, symbol, table, written_as
from theory.induction_heads.all_weights import law, plateau
from theory.induction_heads.all_weights.plateau import Gamma, gamma_4
from theory.induction_heads.all_weights.scores import PLACE
from theory.induction_heads.symbols import B, T_alpha, ref

w = symbol("window", "w", "share of the context in which the right pair is", positive=True)
S = symbol("S_right", "S", "what is retrieved of the right label, times 2 N", nonnegative=True)
HERE = f"{PLACE}: law, the right pair among the last w N, w below 1"


def seen() -> sp.Expr:
    """Mean over places: rows after pair q retrieve 1/l of its label each, ln(N/q) in all."""
    x = sp.Symbol("x", positive=True)  # q/N
    return sp.expand(sp.integrate(-sp.log(x), (x, 1 - w, 1)) / w)


@cache
def output() -> sp.Expr:
    """Gamma_4 on the plateau, at rest."""
    form = plateau.quadratic(S)
    still = sp.solve([sp.diff(form, x) for x in (Gamma, gamma_4)], [Gamma, gamma_4])
    return written_as((1 - w) * sp.log(1 - w) / w, still[gamma_4].subs(S, seen()))


def time() -> sp.Expr:
    """Time of alpha_3 = 1/2: the drive goes as the square of gamma_4, which is 1 for the last."""
    last = law.equations()["T_alpha_all_burst"].rhs.subs(B, 1)
    return last / output() ** 2


@cache
def equations() -> dict[str, Equation]:
    """What is seen of the right label, gamma_4, and the time of alpha_3 = 1/2."""
    return table(
        ref(HERE),
        *law.LARGE,
        status="leading order",
        recent_S=(S, seen),
        recent_gamma_4=(gamma_4, output),
        T_alpha_all_recent=(T_alpha, time),
    )
