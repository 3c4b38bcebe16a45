"""Times of all weights where the right pair is at a random place among the last ``window * N``: by
the flow of five numbers, and by the exact one.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import numpy as np
import sympy as sp
from scipy.special import digamma

from theory import Allowed, ParameterError, checked
from theory.induction_heads.all_weights import plateau
from theory.induction_heads.all_weights.plateau import FIVE
from theory.induction_heads.all_weights.recent import S
from theory.induction_heads.all_weights.scores import THETA
from theory.induction_heads.numbers import all_weights as times
from theory.induction_heads.numbers.running import mean, with_gradient
from theory.induction_heads.symbols import N, q

Size = Annotated[int, Allowed(low=16, high=10**5)]
Window = Annotated[float, Allowed(above=0, high=0.5)]  # the drop comes 10% later at 3/4


@cache
def compiled() -> Callable:
    """Mean loss over places and its gradient by all nineteen pseudo-parameters; at N, places, and S
    of each.
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
    if not (last := round(window * size)):
        raise ParameterError(f"window = {window:g}: must hold a pair of N = {size}")
    return np.arange(size - last + 1.0, size + 1)


@checked
def predicted(size: Size, window: Window, **options: Any) -> dict[str, float]:
    """Emergence times by the flow of five numbers, strict mask; relative error of order 1/N.

    Units and names as in `all_weights.times`, options those of `all_weights.descend`.
    """
    last = places(size, window)
    seen = digamma(size) - digamma(last)
    run = times.descend(lambda x: compiled()(x, float(size), last, seen), size, FIVE, **options)
    return times.crossings(run, size)


@checked
def exact(size: Size, window: Window, **options: Any) -> dict[str, float]:
    """The same by the flow of all weights on the mean loss over places; O(N^2) per step."""
    right = [(1.0, times.loss_of(size, int(k), "strict")) for k in places(size, window)]
    run = times.descend(times.mean_loss(right), size, times.moving("strict"), **options)
    return times.crossings(run, size)
