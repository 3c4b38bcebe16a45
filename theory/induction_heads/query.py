"""The queried pair drawn uniformly: averaged loss and flow, and what that does to the N^2 law
(beyond Assumption 8).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import scipy.integrate
import scipy.optimize
import sympy as sp

from theory import numeric
from theory.algebra import vanishes, written_as
from theory.equation import Equation
from theory.induction_heads import attention
from theory.induction_heads.symbols import N, alpha, beta, d, gamma, k, q, ref
from theory.notation import symbol

UNIFORM = "queried pair uniform over the context"
slope = symbol("initial_slope", r"\left.\dot\beta\right|_{0}", real=True)
gamma_E = symbol("gamma_E", r"\gamma_{\mathrm{E}}", positive=True)  # Euler's constant
HORIZON = 4.0  # in N^2: the last pair alone takes 1.71 N^2, and no average over q takes longer


@cache
def initial_slope() -> sp.Expr:
    """Rate of beta at alpha = beta = 0 for queried pair q: (gamma/N) (score of the right label -
    mean score).

    At beta = 0 attention is uniform, so that only the linear term of the loss moves; compared with
    -dL/dbeta of the derived loss for every q up to N = 4, exactly.
    """
    c = {name: score.subs(alpha, 0) for name, score in attention.key_scores("strict").items()}
    total = c["own_label"] + sp.Sum(c["later_item"] + c["later_label"], (d, 1, N - q))
    found = gamma / N * (c["own_label"] - total / (2 * N))
    rate = -sp.diff(attention.loss_of_query("strict"), beta)
    for size in range(1, 5):
        for pair in range(1, size + 1):
            gap = (rate - found).subs({N: size, q: pair}).doit().subs({alpha: 0, beta: 0})
            if not vanishes(gap):
                raise ArithmeticError(f"initial slope at N = {size}, q = {pair}: off by {gap}")
    return found


@cache
def mean_initial_slope() -> sp.Expr:
    """The same averaged over q: pair k is later for k - 1 queries, and its two scores times k - 1
    add up simply.
    """
    c = {name: score.subs(alpha, 0) for name, score in attention.key_scores("strict").items()}
    own = c["own_label"]
    later = sp.expand((c["later_item"] + c["later_label"]).subs(d, k - q))
    weighted = written_as(1 - own.subs(q, k) / 2, sp.simplify((k - 1) * later))
    own_sum = sp.Sum(own, (q, 1, N))
    later_sum = N - own_sum / 2 - weighted.subs(k, 1)  # k = 2..N, as the first pair is never later
    return gamma / N**2 * (own_sum - (own_sum + later_sum) / (2 * N))


@cache
def large_initial_slope() -> sp.Expr:
    """Its limit for large N: sum of 1/(2q - 1) = H(2N) - H(N)/2, and H(n) = ln n + gamma_E +
    O(1/n).
    """
    total = sp.Symbol("total")
    scaled = sp.expand(
        (mean_initial_slope() * N**2 / gamma).subs(sp.Sum(1 / (2 * q - 1), (q, 1, N)), total)
    )
    size = sp.Symbol("size", positive=True)
    of_sum, rest = (sp.limit(scaled.coeff(total, k).subs(N, size), size, sp.oo) for k in (1, 0))
    harmonic = sp.log(2) + sp.log(N) + gamma_E - (sp.log(N) + gamma_E) / 2
    return gamma / (2 * N**2) * sp.expand(2 * (of_sum * harmonic + rest))


@cache
def equations() -> dict[str, Equation]:
    """Rate of beta at the start, for any queried pair and on average."""
    given = (attention.ORTHONORMAL, attention.THREE, "alpha = beta = 0", "strict mask")
    place = ref("beyond Assumption 8: any q")
    found = [
        Equation("initial_slope", slope, initial_slope, place, "exact", given),
        Equation(
            "mean_initial_slope", slope, mean_initial_slope, place, "exact", (*given, UNIFORM)
        ),
        Equation(
            "large_initial_slope",
            slope,
            large_initial_slope,
            place,
            "leading order",
            (*given, UNIFORM, "large N"),
        ),
    ]
    return {e.name: e for e in found}


@cache
def _scores() -> Any:
    """Own-label, later-item and later-label score over beta with their derivatives by alpha,
    compiled.
    """
    c = attention.key_scores("strict")
    of_pair = [c["own_label"], c["later_item"].subs(q, q - d), c["later_label"].subs(q, q - d)]
    if any(e.has(d) for e in of_pair):
        raise ArithmeticError("a later row depends on more than its pair number")
    return numeric.function([*of_pair, *(sp.diff(e, alpha) for e in of_pair)], [alpha, q])


def loss_and_gradient(state: Any, size: int) -> tuple[float, np.ndarray]:
    """Loss averaged over all q = 1..N, strict mask, and its gradient by (alpha, beta, gamma).

    Rows before the queried pair have score 0, its own label and the rows after it have theirs; sums
    over later rows are running sums from the end, so one call costs O(N).
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


def times(size: int, level: float = 0.5) -> dict[str, float]:
    """Emergence times under uniform q: ``T_gamma``, ``T_beta``, ``T_alpha``, ``T_drop``; infinite
    where not before 4 N^2.
    """

    def rate(_: float, state: np.ndarray) -> np.ndarray:
        return -loss_and_gradient(state, size)[1]

    end = HORIZON * size**2
    run = scipy.integrate.solve_ivp(
        rate,
        (0, end),
        np.zeros(3),
        method="LSODA",
        rtol=1e-9,
        atol=1e-12,
        dense_output=True,
        events=_until(size),
    )
    losses = np.array([loss_and_gradient(y, size)[0] for y in run.y.T])
    levels = {
        "T_gamma": (run.y[2], 0.5),
        "T_beta": (run.y[1], level),
        "T_alpha": (run.y[0], level),
        "T_drop": (-losses, -0.5),
    }
    found = {}
    for index, (name, (values, at)) in enumerate(levels.items()):
        above = np.flatnonzero(values >= at)
        if not above.size:
            found[name] = np.inf
            continue
        j = above[0]

        def gap(t: float, index: int = index, at: float = at) -> float:
            state = run.sol(t)
            return (-loss_and_gradient(state, size)[0] if index == 3 else state[2 - index]) - at

        found[name] = float(
            scipy.optimize.brentq(gap, run.t[j - 1], run.t[j], xtol=1e-9 * run.t[j])
        )
    return found


def _until(size: int) -> Any:
    """Stop when all three parameters have emerged and the loss has dropped."""

    def emerged(_: float, state: np.ndarray) -> float:
        return min(state.min() - 0.55, 0.45 - loss_and_gradient(state, size)[0])

    emerged.terminal = True  # type: ignore[attr-defined]
    return emerged
