"""Loss of all weights on a context that ends in a burst, and its gradient, in O(N).

The gradient is taken by complex steps in the few quantities on which scores and outputs depend.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import sympy as sp

from theory.induction_heads.all_weights import burst
from theory.induction_heads.all_weights.loss import gamma, o_item, o_other
from theory.induction_heads.all_weights.scores import H, context_weights, g, x_first, x_self
from theory.induction_heads.numbers.all_weights_loss import EFFECTIVE, NAMES, TINY, effective
from theory.induction_heads.symbols import B, N, k
from theory.parameters import ParameterError

QUANTITIES = (*EFFECTIVE, burst.E_1)


@cache
def of_rows() -> tuple[Callable, Callable]:
    """Attention of the rows of pair k, before the burst and in it, with their scores."""
    before = list(context_weights().values())
    scores = burst.score_forms("strict")
    inside = [scores["right_item"], scores["right_label"], *burst.right_weights().values()]
    return (
        sp.lambdify([*QUANTITIES, k], before, "numpy", cse=True),
        sp.lambdify([*QUANTITIES, N, B, k], inside, "numpy", cse=True),
    )


def after_each(x: np.ndarray) -> np.ndarray:
    """Sum over the entries after each entry of the last axis."""
    return np.cumsum(x[:, ::-1], 1)[:, ::-1] - x


def loss_of(values: list[np.ndarray], size: int, right: int, strict: bool) -> np.ndarray:
    """Loss at quantities of shape (points, 1): equation ``burst_loss`` and those before it."""
    v = dict(zip(QUANTITIES, values, strict=True))
    of_pair, of_burst = of_rows()
    pairs, places = np.arange(1.0, size - right + 1), np.arange(1.0, right + 1)
    shape = (len(values[0]), len(pairs))
    with np.errstate(divide="ignore", invalid="ignore"):
        before = [np.array(np.broadcast_to(x, shape)) for x in of_pair(*values, pairs)]
    item_self, item_other, label_item, label_self, label_other = before
    on_item, on_query = np.ones(shape, complex), np.zeros(1)
    if strict:  # the first row retrieves nothing, nor does a row retrieve itself
        item_self[:], item_other[:, 0] = 0, 0
        on_item[:, :1] = np.exp(v[x_first])
    else:
        on_query = np.exp(v[x_self])[:, 0]
    *scores, a_item, b_item, other_item, a_label, b_label, other_label = of_burst(
        *values, size, right, places
    )
    on_right_item, on_right_label = (np.exp(x) for x in scores)

    def from_burst(item: np.ndarray, label: np.ndarray, query: np.ndarray) -> np.ndarray:
        return (on_right_item * item + on_right_label * label).sum(1) + on_query * query[:, 0]

    items, labels = on_right_item.sum(1) + on_query, on_right_label.sum(1)
    every = on_item.sum(1) + shape[1] + items + labels
    third, fourth, label_given = v[gamma[2]], v[gamma[3]], right * v[o_other]
    common = after_each(on_item * item_other + label_other)
    common = common + from_burst(other_item, other_label, v[g])[:, None]
    seen = third * on_item + fourth * (common + on_item * item_self + label_item)
    told = third + fourth * (common + label_self)
    others = sum((v[o_other] + x / every[:, None]) ** 2 for x in (seen, told)).sum(1)
    third, fourth = third[:, 0], fourth[:, 0]
    item = third * items + fourth * from_burst(a_item, a_label, v[H])
    label = third * labels + fourth * from_burst(b_item, b_label, right * v[g])
    on_label = label_given[:, 0] + label / every
    return (1 - on_label) ** 2 + (v[o_item][:, 0] + item / every) ** 2 + others


def loss_and_gradient(
    theta: np.ndarray, size: int, right: int, mask: str = "strict"
) -> tuple[float, np.ndarray]:
    """Loss and its gradient in O(N) for the last of ``right`` right pairs.

    Parameters
    ----------
    theta : array
        The nineteen pseudo-parameters in the order of `NAMES`.
    size : int
        Item-label pairs N.
    right : int
        Right pairs B, at the end.
    mask : {'strict', 'inclusive'}
        Causal mask.

    Returns
    -------
    tuple
        Loss summed over the D coordinates, and its gradient, shape (19,).

    Raises
    ------
    ParameterError
        Unless some pair is not a right one.
    """
    if right not in range(1, size):
        raise ParameterError(f"B = {right}: must lie in 1..{size - 1}, below N = {size}")
    shifted = np.asarray(theta, float)[:, None] + 1j * TINY * np.eye(len(NAMES))
    found = [*effective(mask, B)(*shifted, size, right), np.exp(shifted[NAMES.index("alpha_1")])]
    both = np.array([np.broadcast_to(x, len(NAMES)) for x in found])
    moved = both.real[:, :1] + 1j * TINY * np.eye(len(QUANTITIES))
    values = loss_of(list(moved[:, :, None]), size, right, mask == "strict")
    return float(values[0].real), values.imag / TINY @ both.imag / TINY
