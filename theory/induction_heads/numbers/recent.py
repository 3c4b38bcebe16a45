"""Times of all weights where the right pair is at a random place among the last ``window * N``: by
the flow of five numbers, and by the exact one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import numpy as np
import sympy as sp
from scipy.special import digamma

from theory.arguments import checked
from theory.induction_heads.all_weights import plateau
from theory.induction_heads.all_weights.plateau import FIVE, delta, e
from theory.induction_heads.all_weights.recent import S
from theory.induction_heads.all_weights.scores import THETA
from theory.induction_heads.numbers import all_weights as times
from theory.induction_heads.numbers.all_weights_loss import NAMES
from theory.induction_heads.symbols import N, q
from theory.parameters import Allowed, ParameterError

Size = Annotated[int, Allowed(low=16, high=10**5)]
Window = Annotated[float, Allowed(above=0, high=0.5)]  # the drop comes 10% later at 3/4


@cache
def compiled() -> Callable:
    """Loss of one place and its gradient, at the five numbers, N, q and S."""
    state = [THETA[n] for n in FIVE]
    own = plateau.sums()[delta].subs(e, sp.exp(plateau.alpha_3))
    uniform = plateau.quadratic(S, own).subs(plateau.Gamma, plateau.gamma_2 + plateau.gamma_3)
    loss = 1 + uniform / (2 * N) + plateau.right_label()
    slopes = [sp.diff(loss, x) for x in state]
    return sp.lambdify([*state, N, q, S], [loss, *slopes], ["scipy", "numpy"], cse=True)


def places(size: int, window: float) -> np.ndarray:
    """Numbers of the last pairs.

    Raises
    ------
    ParameterError
        If there are none.
    """
    if not (last := round(window * size)):
        raise ParameterError(f"window = {window:g}: must hold a pair of N = {size}")
    return np.arange(size - last + 1.0, size + 1)


@checked
def predicted(size: Size, window: Window, **options: Any) -> dict[str, float]:
    """Emergence times by the flow of five numbers, strict mask; relative error of order 1/N.

    Units and names as in `all_weights.times`, options those of `all_weights.descend`.
    """
    at = places(size, window)
    index = [NAMES.index(n) for n in FIVE]

    def mean(theta: np.ndarray) -> tuple[float, np.ndarray]:
        parts = compiled()(*theta[index], size, at, digamma(size) - digamma(at))
        loss, *slopes = (float(np.mean(np.broadcast_to(x, at.shape))) for x in parts)
        gradient = np.zeros(len(NAMES))
        gradient[index] = slopes
        return loss, gradient

    return times.crossings(times.descend(mean, size, FIVE, **options), size)


@checked
def exact(size: Size, window: Window, **options: Any) -> dict[str, float]:
    """The same by the flow of all weights on the mean loss over places; O(N^2) per step."""
    each = [times.loss_of(size, int(k), "strict") for k in places(size, window)]

    def mean(theta: np.ndarray) -> tuple[float, np.ndarray]:
        losses, slopes = zip(*(of(theta) for of in each), strict=True)
        return float(np.mean(losses)), np.mean(slopes, 0)

    return times.crossings(times.descend(mean, size, times.moving("strict"), **options), size)
