"""Loss of all weights and its gradient in O(N), by running sums over rows."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import sympy as sp

from theory.induction_heads.all_weights import scores
from theory.induction_heads.all_weights.loss import gamma, o_item, o_other, on_self
from theory.induction_heads.all_weights.scores import (
    THETA,
    E,
    H,
    b_item,
    b_label,
    e,
    g,
    x_first,
    x_item,
    x_label,
    x_self,
)
from theory.induction_heads.symbols import N
from theory.parameters import ParameterError

NAMES = tuple(THETA)


TINY = 1e-30  # step of complex-step differentiation, free of cancellation


class Sums(NamedTuple):
    """Sums on which the loss of one queried pair depends, in addition to the quantities in
    `EFFECTIVE`.

    Unnormalised attention of the query on the rows of the queried pair; over later pairs: sums of
    what their rows retrieve of one earlier token, of attention, of coefficients and of their
    squares; over earlier pairs: sums of first and second powers of the excess of their tokens over
    a common share; the excess of the first pair; first-layer weights of the rows of the queried
    pair.
    """

    on_item: np.ndarray
    on_label: np.ndarray
    later_share: np.ndarray
    later_weight: np.ndarray
    later_first: np.ndarray
    later_second: np.ndarray
    earlier_first: np.ndarray
    earlier_second: np.ndarray
    between: np.ndarray
    first_extra: np.ndarray
    item_self: np.ndarray
    item_other: np.ndarray
    label_item: np.ndarray
    label_self: np.ndarray
    label_other: np.ndarray


EFFECTIVE = (
    e,
    E,
    x_item,
    x_first,
    x_label,
    x_self,
    b_item,
    b_label,
    o_item,
    o_other,
    gamma[2],
    gamma[3],
    g,
    H,
)


OUTER = (
    on_self,
    x_first,
    o_item,
    o_other,
    gamma[2],
    gamma[3],
    g,
    H,
)  # those that enter the loss directly


@cache
def loss_of_sums() -> Callable:
    """Compiled loss of one queried pair and its gradient as functions of `Sums`, `OUTER` and the
    counts of earlier and later pairs.
    """
    s = Sums(*(sp.Symbol(name, real=True) for name in Sums._fields))  # type: ignore[arg-type]
    before, after, has_first = sp.symbols(
        "before after has_first"
    )  # the first row is a separate kind unless it is the queried item
    third, fourth = gamma[2], gamma[3]
    extra = has_first * (sp.exp(x_first) - 1)
    Z = s.later_weight + s.on_item + s.on_label + on_self + 2 * before + extra
    by_self = fourth * on_self * g  # coefficient common to every token but the queried item
    item = (
        o_item
        + (
            third * (s.on_item + on_self)
            + fourth
            * (s.later_share + s.on_item * s.item_self + s.on_label * s.label_item + on_self * H)
        )
        / Z
    )
    label = (
        o_other
        + (third * s.on_label + fourth * (s.later_share + s.on_label * s.label_self) + by_self) / Z
    )
    base = o_other + by_self / Z
    later = 2 * after * base**2 + 2 * base * s.later_first / Z + s.later_second / Z**2
    common = (
        third
        + fourth
        * (s.later_share + s.on_item * s.item_other + s.on_label * s.label_other + s.between)
        + by_self
    )
    first = 2 * before * common + fourth * s.earlier_first + third * extra
    second = (
        2 * before * common**2
        + 2 * common * fourth * s.earlier_first
        + fourth**2 * s.earlier_second
    )
    second += (
        2 * (common + fourth * s.first_extra) * third * extra + third**2 * extra**2 * has_first
    )
    earlier = 2 * before * o_other**2 + 2 * o_other * first / Z + second / Z**2
    loss = (1 - label) ** 2 + item**2 + later + earlier
    variables = [*s, *OUTER]
    arguments = [*variables, before, after, has_first]
    slopes = [sp.diff(loss, v) for v in variables]
    return sp.lambdify(arguments, [loss, *slopes], "numpy", cse=True)


@cache
def effective(mask: str, burst: sp.Expr = sp.S.One) -> Callable:
    """Quantities in `EFFECTIVE` from the pseudo-parameters and N; with a burst, also from B."""
    output = {
        o_item: gamma[0] + gamma[1] * H,
        o_other: gamma[1] * g,
        **({x_self: sp.S.Zero} if mask == "strict" else {}),
    }
    exprs = [scores.spelled(output.get(x, x), mask, burst) for x in EFFECTIVE]
    sizes = [N] if burst == 1 else [N, burst]
    return sp.lambdify([*THETA.values(), *sizes], exprs, "numpy", cse=True)


def after_each(x: np.ndarray) -> np.ndarray:
    """Sum over the entries after each entry."""
    return np.append(np.cumsum(x[:0:-1])[::-1], 0.0)


def before_each(x: np.ndarray) -> np.ndarray:
    """Sum over the entries before each entry."""
    return np.append(0.0, np.cumsum(x[:-1]))


def loss_and_gradient(
    theta: np.ndarray, size: int, query: int | str, mask: str = "strict"
) -> tuple[float, np.ndarray]:
    """Loss and its gradient in O(N).

    Parameters
    ----------
    theta : array
        The nineteen pseudo-parameters in the order of `NAMES`.
    size : int
        Item-label pairs N.
    query : int or 'uniform'
        Queried pair, counted from 1, or the mean over all of them.
    mask : {'strict', 'inclusive'}
        Causal mask.

    Returns
    -------
    tuple
        Loss summed over the D coordinates, and its gradient, shape (19,).

    Raises
    ------
    ParameterError
        If the query is neither a pair number nor ``uniform``.
    """
    if query != "uniform" and query not in range(1, size + 1):
        raise ParameterError(f"query = {query}: must be uniform or a pair from 1 to {size}")
    shifted = np.asarray(theta, float)[:, None] + 1j * TINY * np.eye(len(NAMES))
    both = np.array([np.broadcast_to(x, len(NAMES)) for x in effective(mask)(*shifted, size)])
    values = dict(zip(EFFECTIVE, both.real[:, 0].tolist(), strict=True))
    asked = slice(None) if query == "uniform" else slice(int(query) - 1, int(query))
    loss, gradient = _with_sums(values, size, asked, strict=mask == "strict")
    return loss, gradient @ both.imag / TINY


def _with_sums(
    v: dict[sp.Symbol, float], size: int, asked: slice, strict: bool
) -> tuple[float, np.ndarray]:
    """Mean loss over the queried pairs, and its gradient with respect to `EFFECTIVE`."""
    pair = np.arange(1.0, size + 1)
    n, third, fourth, slope = 2 * pair - 2, v[gamma[2]], v[gamma[3]], v[b_item] + v[b_label]
    first = np.zeros(size)
    first[0] = float(strict)  # the first row retrieves nothing, and its score differs
    # First-layer weights (equations all_attention_*), then second-layer weights of later pairs
    # (all_key_later_*).
    item_other = 1 / np.where(v[E] + n > 0, v[E] + n, np.inf)
    label_other = 1 / (v[e] + v[E] + n)
    item_self, label_item, label_self = v[E] * item_other, v[e] * label_other, v[E] * label_other
    to_item, to_label = np.exp(slope * item_other), np.exp(slope * label_other)
    share = to_item * item_other + to_label * label_other
    later_share = after_each(share)
    of_item, of_label = (
        later_share + to_item * item_self + to_label * label_item,
        later_share + to_label * label_self,
    )
    y_item, y_label = third * to_item + fourth * of_item, third * to_label + fourth * of_label
    step = item_other + label_other
    step[0] = 0.0
    passed = np.cumsum(step)
    f_item, f_label = item_self + label_item - passed, label_self - passed
    on_item = np.exp(v[x_item] + v[b_item] * item_self + v[x_first] * first)
    on_label = np.exp(v[x_label] + v[b_item] * label_item + v[b_label] * label_self)
    on_self_ = 0.0 if strict else np.exp(v[x_self])
    sums = Sums(
        on_item,
        on_label,
        later_share,
        after_each(to_item + to_label),
        after_each(y_item + y_label),
        after_each(y_item**2 + y_label**2),
        before_each(f_item + f_label),
        before_each(f_item**2 + f_label**2),
        before_each(step),
        np.full(size, f_item[0]),
        item_self,
        item_other,
        label_item,
        label_self,
        label_other,
    )
    outer = [v.get(x, on_self_) for x in OUTER]
    values = loss_of_sums()(
        *(x[asked] for x in sums),
        *outer,
        (pair - 1)[asked],
        (size - pair)[asked],
        float(strict) * (1 - (pair == 1.0))[asked],
    )
    share_of_each = 1 / len(pair[asked])
    at = np.zeros((len(Sums._fields), size))
    for row, slopes in zip(at, values[1:], strict=False):
        row[asked] = slopes
    by = Sums(*(share_of_each * at))
    by_outer = {
        x: share_of_each * float(np.sum(np.broadcast_to(y, pair[asked].shape)))
        for x, y in zip(OUTER, values[1 + len(by) :], strict=True)
    }
    # Backward pass through the sums.
    first_, second_ = after_each(by.earlier_first), after_each(by.earlier_second)
    by_f_item, by_f_label = first_ + 2 * f_item * second_, first_ + 2 * f_label * second_
    by_f_item[0] += by.first_extra.sum()
    by_passed = -by_f_item - by_f_label
    by_step = np.cumsum(by_passed[::-1])[::-1] + after_each(by.between)
    by_step[0] = 0.0
    first_, second_ = before_each(by.later_first), before_each(by.later_second)
    by_y_item, by_y_label = first_ + 2 * y_item * second_, first_ + 2 * y_label * second_
    by_weight = before_each(by.later_weight)
    by_share = before_each(by.later_share + fourth * (by_y_item + by_y_label))
    by_to_item = by_weight + by_share * item_other + by_y_item * (third + fourth * item_self)
    by_to_label = (
        by_weight
        + by_share * label_other
        + by_y_item * fourth * label_item
        + by_y_label * (third + fourth * label_self)
    )
    to_i, to_l, own_i, own_l = (
        by_to_item * to_item,
        by_to_label * to_label,
        by.on_item * on_item,
        by.on_label * on_label,
    )
    by_slope = float(to_i @ item_other + to_l @ label_other)
    by_item_self = by.item_self + by_f_item + by_y_item * fourth * to_item + own_i * v[b_item]
    by_label_item = by.label_item + by_f_item + by_y_item * fourth * to_label + own_l * v[b_item]
    by_label_self = by.label_self + by_f_label + by_y_label * fourth * to_label + own_l * v[b_label]
    by_item_other = (
        by.item_other + by_share * to_item + to_i * slope + by_step + by_item_self * v[E]
    )
    by_label_other = (
        by.label_other
        + by_share * to_label
        + to_l * slope
        + by_step
        + by_label_item * v[e]
        + by_label_self * v[E]
    )
    by_both = float(by_label_other @ label_other**2)
    gradient = {
        e: float(by_label_item @ label_other) - by_both,
        E: float(
            by_item_self @ item_other + by_label_self @ label_other - by_item_other @ item_other**2
        )
        - by_both,
        x_item: float(own_i.sum()),
        x_first: by_outer[x_first] + float(own_i @ first),
        x_label: float(own_l.sum()),
        x_self: by_outer[on_self] * on_self_,
        b_item: by_slope + float(own_i @ item_self + own_l @ label_item),
        b_label: by_slope + float(own_l @ label_self),
        **{x: by_outer[x] for x in (o_item, o_other, g, H)},
        gamma[2]: by_outer[gamma[2]] + float(by_y_item @ to_item + by_y_label @ to_label),
        gamma[3]: by_outer[gamma[3]] + float(by_y_item @ of_item + by_y_label @ of_label),
    }
    return float(np.mean(values[0])), np.array([gradient[x] for x in EFFECTIVE])
