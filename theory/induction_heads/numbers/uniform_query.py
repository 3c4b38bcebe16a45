"""Numerical uniform query: loss and gradient in O(N), and emergence times of the flow."""

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import scipy.integrate
import scipy.optimize
import sympy as sp

from theory import Allowed, checked
from theory.called import cache
from theory.induction_heads import attention
from theory.induction_heads.numbers.all_weights_loss import rows, rows_before
from theory.induction_heads.numbers.running import after, mean, real, with_gradient
from theory.induction_heads.symbols import alpha, beta, d, gamma, k, q
from theory.special import first_crossing

HIGHEST = 0.55  # level up to which the flow is integrated
HORIZON = 4.0  # longest time in N^2; the last pair alone takes 1.71 N^2, averages over q less


@cache
def compiled() -> Callable:
    """Loss averaged over all q = 1..N, strict mask, and its gradient by (alpha, beta, gamma).

    Rows before the queried pair have score 0; its own label and later rows have nonzero scores.
    """
    scores = attention.key_scores("strict")
    right = sp.exp(beta * scores["own_label"].subs(q, k))
    item = sp.exp(beta * scores["later_item"].subs(q, rows_before / 2 + 1 - d))
    label = sp.exp(beta * scores["later_label"].subs(q, k - d))
    later, squares = real("later squares")
    every = 2 * k - 1 + right + later
    chain = {
        later: after(item + label),
        squares: after(item**2 + label**2),
        real("loss"): mean(
            1 - 2 * gamma * right / every + gamma**2 * (2 * k - 1 + right**2 + squares) / every**2
        ),
    }
    return with_gradient(chain, [alpha, beta, gamma], (k, rows_before), (k, rows_before))


def loss_and_gradient(state: Any, size: int) -> tuple[float, np.ndarray]:
    """Loss averaged over all q = 1..N, strict mask, and its gradient by (alpha, beta, gamma); one
    call costs O(N).
    """
    return compiled()(state, *rows(size, "strict")[:2])


@checked
def times(
    size: Annotated[int, Allowed(low=1, high=10**6)],
    level: Annotated[float, Allowed(low=1e-6, high=HIGHEST)] = 0.5,
) -> dict[str, float]:
    """Emergence times for uniform q: ``T_gamma``, ``T_beta``, ``T_alpha``, ``T_drop``; infinite if
    not before 4 N^2.
    """

    def rate(_: float, state: np.ndarray) -> np.ndarray:
        return -loss_and_gradient(state, size)[1]

    def dropped(_: float, state: np.ndarray) -> float:
        return 0.5 - loss_and_gradient(state, size)[0]

    def done(threshold: float, state: np.ndarray) -> float:
        return min(state.min() - HIGHEST, dropped(threshold, state) - 0.05)

    done.terminal = True  # type: ignore[attr-defined]
    run = scipy.integrate.solve_ivp(
        rate,
        (0, HORIZON * size**2),
        np.zeros(3),
        method="LSODA",
        rtol=1e-9,
        atol=1e-12,
        dense_output=True,
        events=(dropped, done),
    )
    crossed = {
        name: first_crossing(run, index, threshold)
        for index, name, threshold in (
            (2, "T_gamma", 0.5),
            (1, "T_beta", level),
            (0, "T_alpha", level),
        )
    }
    return crossed | {"T_drop": float(run.t_events[0][0]) if run.t_events[0].size else np.inf}
