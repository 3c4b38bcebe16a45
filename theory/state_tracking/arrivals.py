"""Theory for any optimiser from sizes alone: entries of M by what they stand for. From a state,
some of the d_g actions lead to another state (its arrivals). An entry of M is right or wrong, and
its state has a number of arrivals and a mean entry at the start; these make its kind. All entries
of one kind have the same mean gradient and therefore move together under every optimiser, also
under one that normalises gradients by their size.

Where the mean gradient of a kind is close to zero, the sign of every single gradient matters under
Adam. This is the case for wrong entries to states with one arrival: they fall because the state is
not the right one, and rise because it is as frequent as the right states of other actions. Single
gradients differ by the initial value of the entry and by the counts of the training set, both of
which are fixed during training.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.stats
import sympy as sp

from theory import Equations, array, delta_sum, gauss_hermite, scope, symbol, table, written_as
from theory.optimisers import Steps
from theory.state_tracking.attention import Attention
from theory.state_tracking.integrate import Single, half_epochs
from theory.state_tracking.mean_field import pi_i
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.realisation import Start, started
from theory.state_tracking.scope import ARRIVALS
from theory.state_tracking.symbols import L, N, d_g, n_train, ref

BEYOND = "beyond the paper: entries by arrivals"
LARGE = "many states: of every kind there are as many as on average"

c = symbol("c_kind", "c", "kind of a state: arrivals, and mean entry at the start", integer=True)
e = symbol("e_kind", "e", "kind of a wrong state", integer=True)
kinds = symbol("kinds", r"n_{c}", "number of kinds", integer=True, positive=True)
share = array("P_kind", "P", "share of states of a kind")
arrivals = array("k_kind", "k", "actions that lead to a state of a kind")
offset = array("offset", r"\delta", "mean over actions of the entries to a state at the start")
right = array("v_right", r"v^{+}", "right entry of M to a state of a kind, less its start")
wrong = array("v_wrong", r"v^{-}", "wrong entry of M to a state of a kind, less its start")
mean = array(
    "v_mean", r"\bar v", "mean over actions of the entries to a state of a kind, less its start"
)
z_right = array("z_right", r"z^{+}", "logit of a right state by kind")
z_wrong = array("z_wrong", r"z^{-}", "logit of a wrong state by kind")
Z = array("Z_kind", "Z", "normalisation, by kind of the right state")
squares = symbol("squares", r"\Sigma", "mean sum of squared probabilities", positive=True)
V = symbol("V_0", r"V_{0}", "variance of entries of M at the start", positive=True)
T = symbol("T_all", r"T_{\Sigma}", "sum of squared attention of a position", positive=True)
kind_loss = symbol("loss_kinds", r"\ell", "loss of a position by kinds", real=True)
chance = symbol("chance", "P_{k}", "share of states with k arrivals", positive=True)
k = symbol("k_arrivals", "k", "arrivals", integer=True, nonnegative=True)
one = symbol("arriving", "j", "an arrival", integer=True, nonnegative=True)
p_kind = symbol("p_kind", "p", "mean probability of a state of a kind", positive=True)
arriving = symbol("k_share", r"\hat k", "arrivals over the number of actions", nonnegative=True)
answer = symbol("answer", "a", "slope of a single gradient in its own entry", nonnegative=True)
counted = symbol("counted", r"b^{2}", "variance of single gradients over training sets")
off_square = symbol("off_square", r"\langle\Delta^{2}\rangle", "its mean square", positive=True)
gap = symbol("gap_kind", r"v^{+}-v^{-}", "right less wrong entry of a kind", real=True)
scatter = symbol("scatter_kind", "V", "variance over actions of entries to a state", positive=True)


def mean_entry() -> sp.Expr:
    """Mean over actions: those that lead to the state have their right entry there, the others a
    wrong one.
    """
    return (arrivals[c] * right[c] + (d_g - arrivals[c]) * wrong[c]) / d_g


def logit(entry: sp.Indexed) -> sp.Expr:
    """The right action counts with its attention, the mean over all actions with the remaining
    attention; the initial value of an entry is replaced by its mean over actions.
    """
    return pi_i * entry + (1 - pi_i) * mean[c] + offset[c]


def binomial() -> sp.Expr:
    """Each action leads to a state with probability 1/N."""
    ways = sp.Product((d_g - one) / (one + 1), (one, 0, k - 1))
    return ways * (1 / N) ** k * (1 - 1 / N) ** (d_g - k)


def over_states(power: int) -> sp.Expr:
    """Sum of powers of exp(logit): all states as if they were wrong, one of them replaced by the
    right state.
    """
    everyone = N * sp.Sum(share[e] * sp.exp(power * z_wrong[e]), (e, 1, kinds))
    return everyone - sp.exp(power * z_wrong[c]) + sp.exp(power * z_right[c])


def over_right(form: sp.Expr) -> sp.Expr:
    """Mean over actions of a function of the kind of the right state."""
    return sp.Sum(N * share[c] * arrivals[c] / d_g * form, (c, 1, kinds))


def loss() -> sp.Expr:
    """Cross-entropy over right states, and the contribution of random entries of M to second order
    in their size.
    """
    known = over_right(sp.log(Z[c]) - z_right[c])
    return known + T * V / 2 * (1 - 1 / d_g) * (1 - squares)


def squared_weight() -> sp.Expr:
    """Mean square of the weight of an action: from one place, and from pairs of places that both
    show it.
    """
    place, b = sp.symbols("at b", integer=True, positive=True)
    here = delta_sum(sp.KroneckerDelta(place, b), (place, 1, d_g)) / d_g
    return T * here + (1 - T) * here**2


def deviation() -> sp.Expr:
    """Slope of a single gradient in its own entry, less the slope of the mean over actions: squared
    weight times the derivative of the probability by the logit, at one of N states.
    """
    logit_ = sp.Symbol("x", real=True)
    others = sp.Symbol("others", positive=True)
    soft = sp.exp(logit_) / (sp.exp(logit_) + others)
    rise = sp.diff(soft, logit_).subs(others, sp.exp(logit_) * (1 - p_kind) / p_kind)
    rise = written_as(p_kind * (1 - p_kind), rise)
    spread = written_as(T / d_g * (1 - 1 / d_g), squared_weight() - 1 / d_g**2)
    return spread * rise / N


def over_sets() -> sp.Expr:
    """Variance of the mean over rows of weight times (p - y). A row of the entry's own action,
    where its state is wrong, has the attention on it and chance; another row has chance alone, and
    the state is right (y = y^2 = 1) for the share of the other actions that arrive.
    """
    y, w, T_elsewhere = sp.symbols("y w at")
    elsewhere = squared_weight().subs(T, T_elsewhere)
    # Mean and mean square of the weight at the places other than the own one, which has pi_i.
    chance = (elsewhere * (1 - pi_i) ** 2).subs(T_elsewhere, (T - pi_i**2) / (1 - pi_i) ** 2)
    both = sp.expand((pi_i + w) ** 2).subs(w**2, chance).subs(w, (1 - pi_i) / d_g)
    others = arriving * d_g / (d_g - 1)
    square = sp.expand((p_kind - y) ** 2).subs(y**2, y).subs(y, others)
    whole = both * p_kind**2 / d_g + (1 - 1 / d_g) * chance * square
    return sp.simplify(whole) / (N * n_train * L)


def entry_scatter() -> sp.Expr:
    """Variance of an entry that is right for the share of actions that arrive."""
    start = V * (1 - 1 / d_g)
    at_right, at_wrong = start + gap**2, off_square
    mean = arriving * gap
    form = (1 - arriving) * off_square + arriving * start + arriving * (1 - arriving) * gap**2
    return written_as(form, arriving * at_right + (1 - arriving) * at_wrong - mean**2)


@cache
def equations() -> Equations:
    """Shares, logits and loss by kinds."""
    return table(
        ref(BEYOND),
        LARGE,
        status="leading order",
        arrivals=(chance, binomial()),
        kind_mean=(mean[c], mean_entry()),
        kind_right=(z_right[c], logit(right[c])),
        kind_wrong=(z_wrong[c], logit(wrong[c])),
        kind_normalisation=(Z[c], over_states(1)),
        kind_squares=(squares, over_right(over_states(2) / Z[c] ** 2)),
        kind_loss=(kind_loss, loss()),
        entry_answer=(answer, deviation(), "by position"),
        entry_counts=(counted, over_sets(), "by position", "rows independent"),
        entry_scatter=(scatter, entry_scatter(), "deviations at right entries as at the start"),
    )


# Numerical theory of entries by arrivals

RARE = 1e-4  # share of states with more arrivals than are followed
NODES = 3  # of the mean entry to a state at the start
PARTS = 5  # of single entries in initial value and in counts


@cache
def _forms() -> dict[str, Callable]:
    """Contributions of single entries, compiled from the equations."""
    eq = equations()
    return {
        "answer": eq["entry_answer"].lambdify(T, p_kind, N, d_g),
        "counts": eq["entry_counts"].lambdify(pi_i, T, p_kind, arriving, N, d_g, n_train, L),
        "scatter": eq["entry_scatter"].lambdify(off_square, arriving, gap, V, d_g),
    }


@dataclass(frozen=True)
class Kinds:
    """Law of the kinds of states, arrays over them: the slopes of the loss of
    `theory.state_tracking.arrivals`, written for arrays.

    Attributes
    ----------
    share, k, offset : ndarray
        As the arrays of `theory.state_tracking.arrivals`.
    N, d_g : int
        States and actions.
    """

    share: np.ndarray
    k: np.ndarray
    offset: np.ndarray
    N: int
    d_g: int

    def slopes(
        self, own: np.ndarray, right: np.ndarray, wrong: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Derivatives of the losses of positions by entries of every kind and by attention on the
        own action, sums of squared probabilities, and mean probabilities of states by kind.

        Parameters
        ----------
        own : ndarray, shape (B, L)
            Attention on the own action.
        right, wrong : ndarray, shape (B, kinds)
            Entries.
        """
        b, x, y = own[..., None], right[:, None], wrong[:, None]
        mean = (self.k * x + (self.d_g - self.k) * y) / self.d_g
        e_x, e_y = (np.exp(b * v + (1 - b) * mean + self.offset) for v in (x, y))
        states = self.N * self.share
        chosen = self.N * self.share * self.k / self.d_g
        Z = (e_y @ states)[..., None] - e_y + e_x
        by_x = chosen * (e_x / Z - 1)
        mass = e_y * (1 / Z @ chosen)[..., None]
        by_y = states * mass - chosen * e_y / Z
        by_mean = (1 - b) * (by_x + by_y)
        by_right = b * by_x + self.k / self.d_g * by_mean
        by_wrong = b * by_y + (1 - self.k / self.d_g) * by_mean
        by_own = (by_x * (x - mean) + by_y * (y - mean)).sum(-1)
        squares = (((e_y**2 @ states)[..., None] - e_y**2 + e_x**2) / Z**2) @ chosen
        return by_right, by_wrong, by_own, squares, mass


class Arrivals:
    """Mean entries of M by kind, and keys and queries of students, under the optimiser of ``p``.

    Parameters
    ----------
    p : Parameters
        Sizes and training.
    start : Start
        Keys, queries and overlaps at the start.
    """

    def __init__(self, p: Parameters, start: Start) -> None:
        self.p, self.attention = p, Attention(p)
        law = scipy.stats.binom(p.d_g, 1 / p.N)
        most = min(p.d_g, int(law.isf(RARE)) + 1)
        node, weight = gauss_hermite(NODES)
        of_k, of_node = np.divmod(np.arange((most + 1) * NODES), NODES)
        share = law.pmf(of_k) / law.cdf(most) * weight[of_node]
        offset = np.sqrt(p.initial_variance / p.d_g) * node[of_node]
        self.kinds = Kinds(share, of_k.astype(float), offset, p.N, p.d_g)
        self.many = [p.N**2 * share * of_k, p.N**2 * share * (p.d_g - of_k)]
        # Single wrong entries: initial value and counts in the training set, in standard units.
        one, weight = gauss_hermite(PARTS)
        self.own_start, self.own_counts = (x.ravel() for x in np.meshgrid(one, one))
        self.of_part = np.outer(weight, weight).ravel()
        right, wrong = self._entries(start)
        wrong = np.repeat(wrong[..., None], self.of_part.size, 2)
        self.state = [start.W_Q.astype(float), start.W_K.astype(float), right, wrong]
        right_many, wrong_many = self.many
        counts = (1, 1, right_many, wrong_many[:, None] * self.of_part)
        self.steps = Steps(p, p.eta, p.updates, counts)

    def _entries(self, start: Start) -> list[np.ndarray]:
        """Mean entries by kind at the start: the smallest that have the overlaps and the sum."""
        k = self.kinds.k
        one = np.ones_like(k)
        # What a right and a wrong entry is in R, S and zeta, up to their numbers of terms.
        along = [np.stack([one, k - 1, one]), np.stack([0 * one, k, one])]
        p, many = self.p, self.many
        gram = sum((a * n) @ a.T for a, n in zip(along, many, strict=True))
        pairs = p.d_g * p.N
        terms = np.array([pairs, pairs * (p.d_g - 1), pairs])
        sums = np.stack([start.R, start.S, start.zeta]) * terms[:, None]
        lift = np.linalg.lstsq(gram, sums, rcond=None)[0].T
        return [lift @ a for a in along]

    def gradients(self) -> list[np.ndarray]:
        """Derivative of the loss by single weights."""
        p, d, (W_Q, W_K, right, wrong) = self.p, self.p.d_g, self.state
        attention, on_own, elsewhere = self.attention.parts(W_Q, W_K)
        all_squares = (elsewhere + on_own**2)[..., None]
        typical = wrong @ self.of_part
        *by_entry, by_own, squares, mass = self.kinds.slopes(on_own, right, typical)
        by_right, by_wrong = (
            np.divide(x.mean(1), n, out=np.zeros((len(on_own), n.size)), where=n > 0)
            for x, n in zip(by_entry, self.many, strict=True)
        )
        # Single wrong entries about the mean of their kind.
        k, f = self.kinds.k / d, _forms()
        off = np.sqrt(p.initial_variance * (1 - 1 / d)) * self.own_start
        off = off + wrong - typical[..., None]
        answer = f["answer"](all_squares, mass, p.N, d).mean(1)
        counted = f["counts"](on_own[..., None], all_squares, mass, k, p.N, d, p.n_train, p.L).mean(
            1
        )
        single = by_wrong[..., None] + answer[..., None] * off
        single += np.sqrt(counted)[..., None] * self.own_counts
        # Variance of M over actions, at the states that are likely.
        scatter = f["scatter"](off**2 @ self.of_part, k, right - typical, p.initial_variance, d)
        heavy = mass * self.kinds.share
        V = (heavy * scatter[:, None]).sum(2) / heavy.sum(2)
        noise = V * (1 - squares)
        force = (noise[..., None] * attention + by_own[..., None] * np.eye(p.L)) / p.L
        heads = self.attention.backward(W_Q, W_K, attention, force)
        return [*heads, by_right, single]

    def epoch(self) -> None:
        """One step of the optimiser, which takes all data."""
        self.state = self.steps(self.state, self.gradients())


@scope.guard(ARRIVALS)
def emergence_steps(p: Parameters, start: Start) -> np.ndarray:
    """Steps of the optimiser until A = 1/2, from sizes and starts alone.

    Under Adam the mean of five starts is off by some per cent, single starts by up to a fifth
    (`verify.state_tracking.domains.arrival_checks`). Of many drawn starts take quantiles and the
    share that is NaN, not the mean: some never arrive.

    Parameters
    ----------
    p : Parameters
        Sizes, optimiser, and the length of the run.
    start : Start
        Keys, queries and overlaps: measured in students, or `Start.drawn`.

    Returns
    -------
    ndarray, shape (B,)
        0 where A starts at or above 1/2; NaN where a run ends before.
    """
    started(p, start)
    return half_epochs(Single(Arrivals(p, start)), p.updates)
