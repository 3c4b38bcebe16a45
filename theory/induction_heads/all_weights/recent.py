"""All weights on contexts whose one right pair is recent: at a random place among the
last ``w N``.

On the plateau the network wants what it retrieves of the right label, S, and no other
token. For the last pair S = 0, so that gamma_4 = -1 drives alpha_3; later rows retrieve
an earlier pair, which makes gamma_4, and the drive, smaller. Recency helps.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import numpy as np
import sympy as sp
from scipy.special import digamma

from theory import (
    Allowed,
    Chapter,
    Equations,
    ParameterError,
    checked,
    symbol,
    written_as,
)
from theory.induction_heads.all_weights import descent, law, plateau
from theory.induction_heads.all_weights.plateau import FIVE, Gamma, gamma_4
from theory.induction_heads.all_weights.running import mean, with_gradient
from theory.induction_heads.all_weights.scores import PLACE, THETA
from theory.induction_heads.symbols import B, N, T_alpha, q, ref

w = symbol(
    "window", "w", "share of the context in which the right pair is", positive=True
)
S = symbol(
    "S_right", "S", "what is retrieved of the right label, times 2 N", nonnegative=True
)
HERE = f"{PLACE}: law, the right pair among the last w N, w below 1"
chapter = Chapter(ref(HERE), *law.LARGE, status="leading order")


@chapter.derives(S, name="recent_S")
def seen() -> sp.Expr:
    """Mean over places: rows after pair q retrieve 1/l of its label each, ln(N/q) in
    all.
    """
    x = sp.Symbol("x", positive=True)  # q/N
    return sp.expand(sp.integrate(-sp.log(x), (x, 1 - w, 1)) / w)


@chapter.derives(gamma_4, name="recent_gamma_4")
@cache
def output() -> sp.Expr:
    """Gamma_4 on the plateau, at rest."""
    form = plateau.quadratic(S)
    still = sp.solve([sp.diff(form, Gamma), sp.diff(form, gamma_4)], [Gamma, gamma_4])
    return written_as((1 - w) * sp.log(1 - w) / w, still[gamma_4].subs(S, seen()))


@chapter.derives(T_alpha, name="T_alpha_all_recent")
def time() -> sp.Expr:
    """Time of alpha_3 = 1/2: the drive goes as the square of gamma_4, which is 1 for
    the last.
    """
    return law.equations()["T_alpha_all_burst"].rhs.subs(B, 1) / output() ** 2


def equations() -> Equations:
    """What is seen of the right label, gamma_4, and the time of alpha_3 = 1/2."""
    return chapter.equations


# As numbers

Size = Annotated[int, Allowed(low=16, high=10**5)]
Window = Annotated[float, Allowed(above=0, high=0.5)]  # the drop comes 10% later at 3/4


@cache
def compiled() -> Callable:
    """Mean loss over places and its gradient by all nineteen pseudo-parameters; at N,
    places, and S of each.
    """
    chain = {sp.Symbol("loss"): mean(plateau.loss_of_place(S))}
    return with_gradient(chain, [*THETA.values()], (q, S), (N, q, S))


def places(size: int, window: float) -> np.ndarray:
    """Numbers of the last pairs.

    Raises
    ------
    ParameterError
        If there are none.
    """
    last = round(window * size)
    if not last:
        raise ParameterError(f"window = {window:g}: must hold a pair of N = {size}")
    return np.arange(size - last + 1.0, size + 1)


@checked
def predicted(size: Size, window: Window, **options: Any) -> dict[str, float]:
    """Emergence times by the flow of five numbers, strict mask; relative error of order
    1/N.

    Units and names as in `descent.times`, options those of `descent.descend`.
    """
    last = places(size, window)
    seen = digamma(size) - digamma(last)
    of = lambda theta: compiled()(theta, float(size), last, seen)
    run = descent.descend(of, size, FIVE, **options)
    return descent.crossings(run, size)


@checked
def exact(size: Size, window: Window, **options: Any) -> dict[str, float]:
    """The same by the flow of all weights on the mean loss over places; O(N^2) per
    step.
    """
    last = places(size, window)
    right = [(1.0, descent.loss_of(size, int(k), "strict")) for k in last]
    mean = descent.mean_loss(right)
    run = descent.descend(mean, size, descent.moving("strict"), **options)
    return descent.crossings(run, size)
