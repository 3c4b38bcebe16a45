"""Numerical uniform query: loss and gradient in O(N), and emergence times of the flow."""

from functools import cache
from typing import Annotated, Any

import numpy as np
import scipy.integrate
import scipy.optimize
import sympy as sp

from theory import Allowed, checked, numeric
from theory.induction_heads import attention
from theory.induction_heads.symbols import alpha, d, q
from theory.special import first_crossing

HIGHEST = 0.55  # level up to which the flow is integrated
HORIZON = 4.0  # longest time in N^2; the last pair alone takes 1.71 N^2, averages over q less


@cache
def _scores() -> Any:
    """Compiled scores of own label, later item and later label, divided by beta, and their
    derivatives with respect to alpha.
    """
    c = attention.key_scores("strict")
    of_pair = [c["own_label"], c["later_item"].subs(q, q - d), c["later_label"].subs(q, q - d)]
    if any(e.has(d) for e in of_pair):
        raise ArithmeticError("a later row depends on more than its pair number")
    return numeric.function([*of_pair, *(sp.diff(e, alpha) for e in of_pair)], [alpha, q])


def loss_and_gradient(state: Any, size: int) -> tuple[float, np.ndarray]:
    """Loss averaged over all q = 1..N, strict mask, and its gradient with respect to (alpha, beta,
    gamma).

    Rows before the queried pair have score 0; its own label and later rows have nonzero scores.
    Sums over later rows are running sums from the end, so that one call costs O(N).
    """
    a, b, c = (float(v) for v in state)
    pairs = np.arange(1.0, size + 1)
    with np.errstate(divide="ignore", invalid="ignore"):  # pair 1 is never a later pair
        own, item, label, d_own, _, d_label = _scores()(a, pairs)

    def later(terms: np.ndarray) -> np.ndarray:
        """Sum over pairs after each q."""
        return np.cumsum(np.append(terms[1:], 0.0)[::-1])[::-1]

    e_own, e_item, e_label = (
        np.exp(b * own),
        np.exp(b * np.append(0.0, item[1:])),
        np.exp(b * label),
    )
    item = np.append(0.0, item[1:])
    Z = 2 * pairs - 1 + e_own + later(e_item + e_label)
    Z2 = 2 * pairs - 1 + e_own**2 + later(e_item**2 + e_label**2)
    Z_b = e_own * own + later(e_item * item + e_label * label)
    Z2_b = 2 * (e_own**2 * own + later(e_item**2 * item + e_label**2 * label))
    Z_a = b * (e_own * d_own + later(e_label * d_label))
    Z2_a = 2 * b * (e_own**2 * d_own + later(e_label**2 * d_label))
    loss = 1 - 2 * c * e_own / Z + c**2 * Z2 / Z**2

    def along(d_e: np.ndarray, d_Z: np.ndarray, d_Z2: np.ndarray) -> float:
        return float(
            (
                -2 * c * (d_e / Z - e_own * d_Z / Z**2) + c**2 * (d_Z2 / Z**2 - 2 * Z2 * d_Z / Z**3)
            ).mean()
        )

    by_gamma = float((2 * c * Z2 / Z**2 - 2 * e_own / Z).mean())
    gradient = np.array(
        [along(b * e_own * d_own, Z_a, Z2_a), along(e_own * own, Z_b, Z2_b), by_gamma]
    )
    return float(loss.mean()), gradient


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

    def done(at: float, state: np.ndarray) -> float:
        return min(state.min() - HIGHEST, dropped(at, state) - 0.05)

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
        name: first_crossing(run, index, at)
        for index, name, at in ((2, "T_gamma", 0.5), (1, "T_beta", level), (0, "T_alpha", level))
    }
    return crossed | {"T_drop": float(run.t_events[0][0]) if run.t_events[0].size else np.inf}
