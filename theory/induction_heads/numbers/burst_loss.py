"""Loss of all weights on a context that ends in a burst, and its gradient, in O(N)."""

from collections.abc import Callable
from functools import cache

import numpy as np
import sympy as sp

from theory.induction_heads.all_weights import burst
from theory.induction_heads.all_weights.loss import gamma
from theory.induction_heads.all_weights.scores import THETA, H, g, x_first, x_self
from theory.induction_heads.network import MASKS
from theory.induction_heads.numbers.all_weights_loss import (
    first_layer,
    is_first,
    row_weights,
    rows,
    rows_before,
)
from theory.induction_heads.numbers.running import after, real, total, with_gradient
from theory.induction_heads.symbols import B, N, k, l
from theory.parameters import ParameterError


@cache
def compiled(mask: str) -> Callable:
    """Equation ``burst_loss`` and those before it, with their gradient; pairs before the burst are
    numbered by l, those in it by k.
    """
    to_itself = MASKS[mask]
    first, second, third, fourth = gamma
    item_self, item_other, label_item, label_self, label_other = row_weights(l)
    right = {real(f"right_{name}"): form for name, form in burst.right_weights().items()}
    by_item, by_label = [*right][:3], [*right][3:]
    scores = burst.score_forms(mask)
    on_item, on_query, later, of_item, of_label, others = real(
        "on_item on_query later of_item of_label others"
    )
    on_right = real("on_right_item on_right_label")
    items, labels, all_on_item = real("items labels all_on_item")
    from_burst = real("item_from_burst label_from_burst other_from_burst")
    query = (H, B * g, g)
    Z = all_on_item + N - B + items + labels + on_query
    item = third * (items + on_query) + fourth * (from_burst[0] + on_query * query[0])
    label = third * labels + fourth * (from_burst[1] + on_query * query[1])
    common = later + from_burst[2] + on_query * query[2]
    chain = {
        **first_layer(mask, B),
        burst.E_1: sp.exp(THETA["alpha_1"]),
        **row_weights(l),
        **right,
        on_item: sp.exp(x_first * is_first),
        on_query: to_itself * sp.exp(x_self if to_itself else 0),
        on_right[0]: sp.exp(scores["right_item"]),
        on_right[1]: sp.exp(scores["right_label"]),
        items: total(on_right[0]),
        labels: total(on_right[1]),
        all_on_item: total(on_item),
        **{
            name: total(on_right[0] * of_item + on_right[1] * of_label)
            for name, of_item, of_label in zip(from_burst, by_item, by_label, strict=True)
        },
        later: after(on_item * item_other + label_other),
        of_item: third * on_item + fourth * (common + on_item * item_self + label_item),
        of_label: third + fourth * (common + label_self),
        others: total((second * g + of_item / Z) ** 2 + (second * g + of_label / Z) ** 2),
        real("loss"): (1 - second * B * g - label / Z) ** 2
        + (first + second * H + item / Z) ** 2
        + others,
    }
    arrays = (l, rows_before, is_first, k)
    return with_gradient(chain, [*THETA.values()], arrays, [*arrays, N, B])


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
    places = np.arange(1.0, right + 1)
    return compiled(mask)(theta, *rows(size - right, mask), places, float(size), float(right))
