"""Fixed-disorder theory to fourth order in the scatter of logits within a group, and the rollout of
one student.

Weights of the actions at other places are independent. The loss of a row is the generating function
of cumulants under the softmax of the group's mean logits, so that its mean over the group is a sum
of products of two cumulants: of the weights, and of entries of M under the softmax.
"""

from functools import cache
from math import prod
from typing import Any

import numpy as np
import sympy as sp
from scipy.special import softmax

from theory import Equation, array, table, written_as
from theory.state_tracking import fixed_disorder
from theory.state_tracking.definitions import pi
from theory.state_tracking.fixed_disorder import GROUP, SIZE, UNIFORM, FixedDisorder, mean_M, plain
from theory.state_tracking.realisation import Realisation
from theory.state_tracking.symbols import L, M, M_star, N, a, b, c, d_g, i, j, k, q, r, ref, s, t

BEYOND = "beyond the paper: fixed-disorder theory to fourth order"
FOURTH = "cumulants of the weights in a group up to the fourth"

kept = array("kept", r"\chi", "share of a cumulant that remains about the known mean of a group")
moved = array("x", means="entry of M less its means over actions and over states of the softmax")
powers = array(
    "powers", r"\mathcal{T}", "cumulant of a group's logits per cumulant of M over actions"
)
K = array("kappa_entries", r"\kappa", "cumulant of the entries of an action under the softmax")
both = array("kappa_both", r"\kappa^{2,2}", "joint cumulant, two of each action, under the softmax")
group_loss = array("l_fourth", r"\ell^{(4)}", "mean loss of a group to fourth order")
right = array("right", r"\mathcal{A}", "accuracy by step, right state and action")
mass = array("right_mass", r"\varrho", "probability to be in a state and right, by step")
mean_right = array("right_mean", r"\bar{\mathcal{A}}", "accuracy by step")


def remaining(order: int) -> sp.Expr:
    """Cumulant of the deviation of one row from the mean of n independent rows, over the cumulant
    of a row: the weights 1 - 1/n of the row itself and -1/n of the others, to this power.
    """
    n = sp.Symbol("rows", positive=True)
    by_itself, other = 1 - 1 / n, -1 / n
    return sp.factor(by_itself**order + (n - 1) * other**order).subs(n, SIZE)


def cumulant(*orders: int) -> sp.Expr:
    """Joint cumulant in moments about the mean, `moment`: the coefficient of the logarithm of
    their generating function, whose series ends since the function begins at second order.
    """
    along = sp.symbols(f"u:{len(orders)}")
    every = sp.utilities.iterables.cartes(*(range(n + 1) for n in orders))
    whole = sum(
        moment(*n) * prod(u**m / sp.factorial(m) for u, m in zip(along, n, strict=True))
        for n in every
        if sum(n) > 1
    )
    logarithm = sum(-((-whole) ** n) / n for n in range(1, sum(orders) // 2 + 1))
    coefficient = sp.Poly(logarithm, *along).coeff_monomial(orders)
    return sp.expand(coefficient * prod(map(sp.factorial, orders)))


def moment(*orders: int) -> sp.Symbol:
    """Symbol of a moment about the mean."""
    return sp.Symbol("moment_" + "_".join(map(str, orders)))


def over_states(form: sp.Expr, *actions: sp.Symbol) -> sp.Expr:
    """Moments as means under the softmax."""
    means = {}
    for x in form.free_symbols:
        orders = [int(n) for n in x.name.split("_")[1:]]
        mass_of = plain[r] * prod(moved[e, r] ** n for e, n in zip(actions, orders, strict=True))
        means[x] = sp.Sum(mass_of, (r, 1, N))
    return form.xreplace(means)


def weights() -> sp.Expr:
    """Mean of the fourth power of a sum over independent places in cumulants of one: places alone,
    and pairs of places, in sums of powers of attention.
    """
    x, y, u, v = sp.symbols("x y u v")
    mixed = sp.expand((u * x + v * y) ** 4).coeff(x, 2).coeff(y, 2) / (u * v) ** 2
    # Ordered pairs of different places: all pairs less the places themselves.
    pairs = powers[2, *GROUP] ** 2 - powers[4, *GROUP]
    return mixed / 2 * pairs


def loss() -> sp.Expr:
    """Mean loss: that of mean logits, and means over actions of cumulants."""
    known = fixed_disorder.equations()["group_loss"].rhs.subs(fixed_disorder.scatter[GROUP], 0)
    alone = sum(
        powers[n, *GROUP] / sp.factorial(n) * sp.Sum(K[n, b], (b, 1, d_g)) / d_g for n in (2, 3, 4)
    )
    pairs = weights() / sp.factorial(4) * sp.Sum(both[b, c], (b, 1, d_g), (c, 1, d_g)) / d_g**2
    return known + alone + pairs


def next_mass() -> sp.Expr:
    """Probability of being right in a state after the next step: right predictions lead on from
    right states; from a wrong state a rollout returns to all right states with equal probability.
    """
    step = right[t, s, a] * M_star[a, r, s] * mass[t, s] / d_g
    back = (1 - mean_right[t]) / (N - 1) * (1 - sp.Sum(mass[t, s], (s, 1, N))) / N
    return sp.Sum(step, (s, 1, N), (a, 1, d_g)) + back


@cache
def equations() -> dict[str, Equation]:
    """Cumulants, the mean loss of a group, and the rollout over the states of one student."""
    mean = sp.Sum(plain[q] * (M[b, q, s] - mean_M[s, q]), (q, 1, N))
    elsewhere = 1 - sp.KroneckerDelta(i, j)
    both_forms = moment(2, 2) - moment(2, 0) * moment(0, 2) - 2 * moment(1, 1) ** 2
    exact = table(
        ref(BEYOND),
        status="exact",
        moved=(moved[b, r], M[b, r, s] - mean_M[s, r] - mean),
        **{
            f"kept_{n}": (kept[n], remaining(n), "the mean of a group's rows is known")
            for n in (2, 3, 4)
        },
        powers=(powers[k, *GROUP], kept[k] * sp.Sum(elsewhere * pi[i, j] ** k, (j, 1, L)), UNIFORM),
        **{f"cumulant_{n}": (K[n, b], over_states(cumulant(n), b)) for n in (2, 3, 4)},
        cumulant_both=(both[b, c], over_states(written_as(both_forms, cumulant(2, 2)), b, c)),
    )
    ordered = table(
        ref(BEYOND), FOURTH, status="leading order", loss_fourth=(group_loss, loss(), UNIFORM)
    )
    rolled = table(
        ref("beyond the paper: rollout of one student"),
        "wrong states lead anywhere alike",
        status="closure",
        right_mass=(mass[t + 1, r], next_mass()),
        mean_right=(mean_right[t], sp.Sum(right[t, s, a], (s, 1, N), (a, 1, d_g)) / (N * d_g)),
    )
    return exact | ordered | rolled


# Numerical fixed-disorder theory to fourth order in the scatter within groups


class FourthOrder(FixedDisorder):
    """As `FixedDisorder`, with the third and fourth cumulants of logits within groups.

    Adam divides by the size of a gradient, so that what is small in the gradient of keys and
    queries counts where it passes through zero.

    Attributes
    ----------
    covariances : trained.Covariances, optional
        What the seeds' training sets have beyond the expected covariances.
    """

    BY_SEED = (*FixedDisorder.BY_SEED, "cumulants", "rows", "covariances")
    covariances: Any = None

    def see(self, given: Realisation, sequences: int) -> None:
        """Evaluate the loss on these pair counts, of so many sequences, from now on."""
        super().see(given, sequences)
        B, N, L, d = given.share.shape
        n = np.maximum(given.share * sequences * self.p.L, 1)
        if given.pairs is None:
            n = np.full_like(n, np.inf)
        # Cumulants of a row about the known mean of its group's n rows.
        orders = (1 - 1 / n, (1 - 1 / n) * (1 - 2 / n), (1 - 1 / n) ** 4 + (1 - 1 / n) / n**3)
        self.cumulants = np.stack([x.reshape(B, N, L * d, 1) for x in orders], 1)
        self.rows = given.share.reshape(B, N, L * d, 1).astype(float)

    def _rolled(self, first: np.ndarray) -> dict[str, np.ndarray]:
        """Rollout accuracy as a chain over the states of each student: an error at a state recurs
        whenever a rollout returns to it.
        """
        N = self.p.N
        mass = np.full((len(first), N), 1 / N)
        for step in range(self.p.L):
            right, mean = first[:, step], first[:, step].mean((1, 2))
            back = (1 - mean) / (N - 1) * (1 - mass.sum(1)) / N
            led = np.einsum("bs,bsa,bsar->br", mass, right, self.teachers)
            mass = led / self.p.d_g + back[:, None]
        return {"rollout_accuracy": mass.sum(1)}

    def gradients(self) -> list[np.ndarray]:
        """Derivatives of the loss by the state."""
        p, d = self.p, self.p.d_g
        W_Q, W_K, M = self.state
        B, N = M.shape[:2]
        pi, on_right, T = self.attention.parts(W_Q, W_K)
        x = M - M.mean(2, keepdims=True)
        C = x.swapaxes(2, 3) @ x / d
        weights = self._weights(pi)
        P = softmax(weights @ M, -1)
        T3, T4 = ((pi**k).sum(2) - on_right**k for k in (3, 4))

        def by_group(of_step: np.ndarray) -> np.ndarray:
            return np.repeat(of_step, d, axis=1)[:, None, :, None]

        two, three, four = self.cumulants.swapaxes(0, 1)
        pair = two * by_group(T)
        coefficient = (pair / 2, three * by_group(T3) / 6, four * by_group(T4) / 24)
        mixed = pair**2 / 8 - 3 * coefficient[2]
        powers = [x**k for k in range(1, 5)]
        m, s2, s3, s4 = (P @ y.swapaxes(2, 3) for y in powers)
        # Derivatives of the third and fourth cumulant by mean powers, over actions.
        one = np.ones_like(m)
        third = (6 * m**2 - 3 * s2, -3 * m, one, 0 * one)
        fourth = (24 * m * (s2 - m**2) - 4 * s3, 12 * m**2 - 6 * s2, -4 * m, one)
        slopes = [
            (coefficient[1] * u + coefficient[2] * v) / d
            for u, v in zip(third, fourth, strict=True)
        ]
        k3 = (s3 - 3 * s2 * m + 2 * m**3).mean(3)
        k4 = (s4 - 4 * s3 * m - 3 * s2**2 + 12 * s2 * m**2 - 6 * m**4).mean(3)
        # Pairs of actions, by the covariance of entries alone.
        square = np.einsum("bsrr->bsr", C)[:, :, None]
        h = P @ C
        v = (P * h).sum(3, keepdims=True)
        s = square - 2 * h + v
        k2 = (P * s).sum(3, keepdims=True)
        other = C**2
        alike = (P @ other * P).sum(3, keepdims=True) - 2 * (P * h**2).sum(3, keepdims=True) + v**2
        q = (P * s**2).sum(3, keepdims=True) - k2**2 - 2 * alike
        by_q = s**2 - 4 * (P * (s - 2 * h)) @ C + 4 * (2 * k2 - 2 * v) * h
        by_q += -2 * k2 * square - 4 * P @ other + 4 * h**2
        by_P = coefficient[0] * (square - 2 * h) + mixed * by_q
        by_P += sum(u @ y for u, y in zip(slopes, powers, strict=True))
        beyond = None
        if self.covariances is not None:
            beyond = self.covariances.slopes(pi, P, self.rows, M)
            by_P += beyond[0]
        error = P * (1 + by_P - (P * by_P).sum(3, keepdims=True))
        error = (error.reshape(B, N, p.L, d, N) - self.teachers[:, :, None]).reshape(P.shape)
        # Entries of M: in the mean logits, and in what scatters about them.
        rows = self.rows
        w2, w4 = rows * coefficient[0], rows * mixed

        def outer(left: np.ndarray) -> np.ndarray:
            return left.swapaxes(2, 3) @ P

        diagonal = (w2 * P + 2 * w4 * P * (s - k2)).sum(2)
        by_C = outer((4 * w4 * (k2 - v) - w2) * P) - 4 * C * outer(w4 * P)
        crossed = outer(2 * w4 * P * (2 * h - s))
        by_C += crossed + crossed.swapaxes(2, 3)
        by_C[:, :, np.arange(N), np.arange(N)] += diagonal
        by_x = 2 / d * x @ by_C
        by_x += outer(rows * slopes[0])
        for order in (1, 2, 3):
            by_x += (order + 1) * powers[order - 1] * outer(rows * slopes[order])
        by_x -= by_x.mean(2, keepdims=True)
        if beyond is not None:
            by_x += beyond[1]
        d_M = weights.swapaxes(2, 3) @ (rows * error) + self.keep[..., None] * by_x
        # Attention: in the mean logits, and in the scatter.
        force = self._force(pi, error)

        def by_step(found: np.ndarray) -> np.ndarray:
            return (rows[..., 0] * found).reshape(B, N, p.L, d).sum((1, 3))[..., None]

        two, three, four, pair, k2, q = (y[..., 0] for y in (two, three, four, pair, k2, q))
        found = 2 * pi * by_step(two * (k2 / 2 + pair * q / 4))
        found += 3 * pi**2 * by_step(three * k3 / 6)
        found += 4 * pi**3 * by_step(four * (k4 / 24 - q / 8))
        force += found * (1 - np.eye(p.L))
        if beyond is not None:
            force += beyond[2]
        return [*self.attention.backward(W_Q, W_K, pi, force), d_M]
