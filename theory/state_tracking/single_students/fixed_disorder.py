"""Fixed-disorder theory of one student: given its teachers, initial weights and the
pair counts of its training set.

Training rows (sequence, step) with the same state, step and correct action form a
group. Within a group the attention weights of the actions have a mean, fixed by the
pair counts of the training set, and fluctuate about it, because attention also falls on
other actions. These fluctuations are kept to second order in the logits, as for
Gaussian weights. There is no other approximation: repeated actions in a sequence,
single entries of M, and the deviation of one training set from the average enter
through the means. `integrate` integrates the equations.
"""

import itertools
from collections.abc import Iterator
from functools import cache

import numpy as np
import sympy as sp

from theory import Chapter, Equation, array, delta_gradient, delta_sum, written_as
from theory.numbers.streams import keyed
from theory.state_tracking.attention import Attention
from theory.state_tracking.model import definitions, task
from theory.state_tracking.model.definitions import output, pi, z
from theory.state_tracking.model.parameters import Parameters
from theory.state_tracking.model.symbols import (
    L,
    M,
    M_star,
    N,
    a,
    alpha,
    b,
    c,
    d_g,
    eta,
    i,
    j,
    k,
    n,
    n_train,
    p,
    q,
    r,
    ref,
    s,
)
from theory.state_tracking.single_students.dressed import summary
from theory.state_tracking.single_students.realisation import Realisation, Start

BEYOND = "beyond the paper: fixed-disorder theory"
SECOND_ORDER = (
    "cumulants of the weights in a group up to the second, logits to second order"
)
UNIFORM = "actions at other places independent and uniform"

share = array(
    "nu", r"\nu", "share of the training rows in a group: state, step, right action"
)
pairs = array(
    "pairs",
    r"\nu",
    "share of the rows with a state, a step, a place, and the actions at both",
)
weight = array("O", means="mean weight of an action in a group")
scatter = array(
    "T", means="variance of a group's logits per variance of M over actions"
)
mean_M = array("M_mean", r"\bar M", "mean entry of M over actions")
C = array(
    "C",
    means=(
        "covariance of two entries of M over actions; the first index, the current"
        " state, may be left out"
    ),
)
plain = array(
    "p_plain", r"p^{0}", "softmax of a group's mean logits; the group left out"
)
mean = array("z_group", r"\bar z", "mean logit of a state in a group")
prob = array(
    "p_mean", r"\bar p", "mean probability of a state in a group, which may be left out"
)
shift = array("shift", r"\lambda", "what the scatter adds to logits of the softmax")
J = array(
    "J",
    means=(
        "response of a group's probabilities to its logits; the group may be left out"
    ),
)
group_loss = array("l_group", r"\ell", "mean loss of a group")
force = array("force", "f", "derivative of the loss by an attention entry")
GROUP = (s, i, a)
delta = sp.KroneckerDelta
SIZE = n_train * L * share[GROUP]
AT_B = (*GROUP, b)
AT_R = (*GROUP, r)
BETWEEN = (*GROUP, r, q)
ELSEWHERE = 1 - delta(i, j)

exact = Chapter(ref(BEYOND), status="exact")
ordered = Chapter(ref(BEYOND), SECOND_ORDER, status="leading order")


@exact.derives(weight[AT_B])
def mean_weight() -> sp.Expr:
    """Mean weight of an action in the attention output: the frequency of the action at
    each position is given by the pair counts.
    """
    retrieved = definitions.retrieved().subs(a, b)
    weight = delta(definitions.action[j], b)
    return retrieved.xreplace({weight: pairs[s, i, j, a, b] / share[GROUP]})


@exact.derives(mean[AT_R])
def group_logit() -> sp.Expr:
    """Mean logit of a state in a group."""
    of_word = definitions.scores().xreplace({a: b})
    return of_word.xreplace({output[i, b]: weight[AT_B]})


@exact.derives(mean_M[s, r])
def mean_entry() -> sp.Expr:
    """Mean entry of M over actions."""
    return sp.Sum(M[b, r, s], (b, 1, d_g)) / d_g


@exact.derives(C[s, r, q], name="entry_covariance")
def covariance_of_entries() -> sp.Expr:
    """Covariance of two entries of M over actions."""
    product = sp.Sum(M[b, r, s] * M[b, q, s], (b, 1, d_g)) / d_g
    return product - mean_M[s, r] * mean_M[s, q]


def weight_covariance() -> sp.Expr:
    """Covariance of the weights of actions b and c from one other position, per squared
    attention.
    """
    action = sp.Symbol("at", integer=True, positive=True)
    both = delta(action, b) * delta(action, c)
    once = delta_sum(delta(action, b), (action, 1, d_g)) / d_g
    return delta_sum(both, (action, 1, d_g)) / d_g - once**2


def within() -> sp.Expr:
    """Factor 1 - 1/n of the variance that remains about
    the mean of n independent rows.
    """
    size, other = sp.symbols("n_rows other", integer=True, positive=True)
    same_row = delta(n, other)
    of_mean = delta_sum(same_row, (other, 1, size), (n, 1, size)) / size**2
    return sp.expand(1 - of_mean).subs(size, SIZE)


@exact.derives(
    scatter[GROUP], UNIFORM, "the mean of a group's rows is known", name="scatter"
)
def scatter_of_group() -> sp.Expr:
    """Variance of a group's logits per variance of M over actions."""
    return within() * sp.Sum(ELSEWHERE * pi[i, j] ** 2, (j, 1, L))


@exact.derives(pairs[s, i, j, a, b], "infinite training set")
def pairs_expected() -> sp.Expr:
    """Share of the rows with two actions at two places."""
    at_own_place = delta(i, j) * delta(a, b)
    return share[GROUP] * (at_own_place + ELSEWHERE / d_g)


def slope(expr: sp.Expr, along: sp.Symbol) -> sp.Expr:
    """Derivative of an expression in softmax probabilities with respect to the logit of
    state ``along``.
    """
    total = sp.Symbol("Z", positive=True)
    normaliser = delta_gradient(sp.Sum(sp.exp(z[k]), (k, 1, N)), z[along])
    by_numerator = sp.diff(sp.exp(z[r]), z[along]) / total
    quotient = by_numerator - sp.exp(z[r]) * normaliser / total**2
    quotient = quotient.subs({sp.exp(z[x]): plain[x] * total for x in (r, along)})
    rule = written_as(plain[r] * (delta(r, along) - plain[along]), quotient)
    derivative = sp.S.Zero
    for entry in expr.atoms(sp.Indexed):
        if entry.base == plain:
            one = sp.Dummy()  # SymPy treats entries at r and q as possibly equal
            by_entry = sp.diff(expr.xreplace({entry: one}), one).xreplace({one: entry})
            derivative += by_entry * rule.subs(r, entry.indices[0])
    return derivative


def contracted(expr: sp.Expr) -> sp.Expr:
    """Contract an expression with the covariance C[q, p] of logits; the remaining index
    is named q.
    """
    result = delta_sum(C[q, p] * expr, (p, 1, N), (q, 1, N))
    result = result.replace(
        lambda x: isinstance(x, sp.Sum) and x.variables == [p],
        lambda x: x.xreplace({p: q}),
    )
    return sp.expand(result.xreplace({C[q, r]: C[r, q]}))  # C is symmetric


@ordered.derives(shift[r])
def logit_lift() -> sp.Expr:
    """Correction of a logit due to fluctuations: half the covariance contracted with
    the second derivatives of a probability, divided by the probability. Terms common to
    all states cancel in the softmax and are dropped.
    """
    second = sp.expand(slope(slope(plain[r], q), p) / plain[r])
    of_state = [x for x in sp.Add.make_args(contracted(second)) if x.has(r)]
    form = C[r, r] - 2 * sp.Sum(C[r, q] * plain[q], (q, 1, N))
    return scatter[GROUP] / 2 * written_as(form, sp.Add(*of_state))


def entry_covariance() -> sp.Expr:
    """Covariance of the weight of action b with the logit of state q, divided by
    `scatter`.
    """

    def by_mean(total: sp.Sum) -> sp.Expr:
        """Sum over actions of an entry of M."""
        return total.function / M[c, q, s] * d_g * mean_M[s, q]

    covariance = delta_sum(weight_covariance() * M[c, q, s], (c, 1, d_g))
    covariance = covariance.replace(lambda x: isinstance(x, sp.Sum), by_mean)
    return written_as((M[b, q, s] - mean_M[s, q]) / d_g, covariance)


@ordered.derives(prob[r])
def mean_probability() -> sp.Expr:
    """Mean probability of a state in a group."""
    lifted = plain[r] * sp.exp(shift[r])
    return lifted / sp.Sum(lifted.xreplace({r: q}), (q, 1, N))


@ordered.derives(J[r, q])
def response() -> sp.Expr:
    """Response of a group's probabilities to its logits."""
    return slope(plain[r], q).xreplace({plain[x]: prob[x] for x in (r, q)})


@ordered.derives(group_loss, name="group_loss")
def mean_loss() -> sp.Expr:
    """Mean loss of a group: of its mean logits, and the price of their scatter."""
    right = sp.Sum(M_star[a, r, s] * mean[AT_R], (r, 1, N))
    loss = sp.log(sp.Sum(sp.exp(mean[AT_R]), (r, 1, N))) - right
    price = scatter[GROUP] / 2 * contracted(slope(plain[q], p))
    return loss + price


ERROR = prob[AT_R] - M_star[a, r, s]


@ordered.derives(sp.Derivative(M[b, r, s], alpha), UNIFORM)
def rate_M() -> sp.Expr:
    """Rate of an entry of M. The weight of an action is correlated with the
    probabilities through the logits.
    """
    by_logits = sp.Sum(J[BETWEEN] * entry_covariance(), (q, 1, N))
    by_weight = weight[AT_B] * ERROR + scatter[GROUP] * by_logits
    rows = share[GROUP] * by_weight
    return -eta * d_g * N * sp.Sum(rows, (i, 1, L), (a, 1, d_g))


@ordered.derives(force[i, j], UNIFORM, name="force")
def force_on_attention() -> sp.Expr:
    """Derivative of the loss by an attention entry."""
    groups = ((s, 1, N), (a, 1, d_g))
    of_pair = pairs[s, i, j, a, b] * ERROR * M[b, r, s]
    by_pairs = sp.Sum(of_pair, *groups, (b, 1, d_g), (r, 1, N))
    of_scatter = share[GROUP] * within() * J[BETWEEN] * C[s, r, q]
    by_scatter = sp.Sum(of_scatter, *groups, (r, 1, N), (q, 1, N))
    return by_pairs + ELSEWHERE * pi[i, j] * by_scatter


@cache
def equations() -> dict[str, Equation]:
    """Mean logits and fluctuations of groups, their probabilities, the rate of M, and
    the force on attention.
    """
    return exact.equations | ordered.equations


# Numerical fixed-disorder theory

# Inputs on which accuracies are taken: where there are more, as many are drawn, which
# leaves a standard error of at most 0.008.
INPUTS = 4096
SE = "_se"  # ends the names of standard errors


def lists_all_words(p: Parameters) -> bool:
    """Whether there are so few words and first states that all of them are taken."""
    return float(p.d_g) ** p.L * p.N <= INPUTS


def answered_words(p: Parameters, teachers: np.ndarray, seed: int) -> task.Sequences:
    """Words on which a student's accuracies are taken: all, from all first states, or a
    sample of `INPUTS`, which is the seed's own.
    """
    if not lists_all_words(p):
        stream = keyed(seed, len(task.STREAMS))
        return task.draw_sequences(teachers, INPUTS, p.L, stream)
    words = np.indices((p.d_g,) * p.L).reshape(p.L, -1).T
    actions = np.repeat(words, p.N, axis=0)
    first = np.tile(np.arange(p.N), len(words))
    return task.Sequences(actions, task.visited(teachers, actions, first))


class FixedDisorder:
    """Fixed-disorder theory for groups of rows with the same state, step and correct
    action. State per seed: W_Q, W_K and M.

    Parameters
    ----------
    p : Parameters
        Sizes and learning rate.
    start : Start
        Initial keys and queries of the seeds.
    given : Realisation
        Teachers, initial M and training sets of the seeds.
    accuracies : bool
        Compute accuracies; otherwise they are NaN.
    """

    BY_SEED: tuple[str, ...] = (
        *("counts", "given", "keep", "left", "share", "target", "teachers", "words"),
    )

    def __init__(
        self, p: Parameters, start: Start, given: Realisation, accuracies: bool = True
    ) -> None:
        self.p = p
        self.attention = Attention(p)
        self.accuracies = accuracies
        self.teachers = given.one_hot()  # (B, s, a, r), as M below
        self.target = np.ascontiguousarray(given.teachers.swapaxes(1, 2))
        M = np.ascontiguousarray(given.M.transpose(0, 3, 1, 2), dtype=float)
        self.state = [start.W_Q.astype(float), start.W_K.astype(float), M]
        self.all_words = lists_all_words(p)
        seeds = given.seeds or range(len(M))
        self.words = [
            answered_words(p, teachers, seed)
            for teachers, seed in zip(given.teachers, seeds, strict=True)
        ]
        self.see(given, p.n_train)

    def see(self, given: Realisation, sequences: int) -> None:
        """From now on take the loss over these counts of so many sequences."""
        self.given = given
        self.share = given.share.astype(float)
        many = sequences * self.p.L
        B, N, L, d = given.share.shape
        pairs = given.pairs
        self.unit = 1 / many
        if pairs is None:  # of an infinite training set
            own = np.einsum("ij,ab->ijab", np.eye(L), np.eye(d))
            other = np.repeat((1 - np.eye(L)) / d, d * d).reshape(L, L, d, d)
            pairs = given.share[:, :, :, None, :, None] * (own + other)
        counts = np.ascontiguousarray(pairs.transpose(0, 1, 3, 5, 2, 4)) * many
        counts = counts.reshape(B, N, L, d, L * d)
        self.keep = np.ones((B, N, d))
        self.left = given.share.astype(float)
        if given.pairs is not None:
            # as few bytes as hold them, so that they stay in the cache
            counts = np.rint(counts, out=counts)
            counts = counts.astype(np.min_scalar_type(int(counts.max())))
            self.share = np.rint(self.share * many) / many
            # Actions that never occur beside a state have no gradient there: Adam
            # divides by its size.
            self.keep[:] = counts.max((2, 4)) > 0
            # Factor 1 - 1/n of the variance that remains about the known mean of n
            # rows.
            self.left *= 1 - 1 / np.maximum(self.left * many, 1)
        self.counts = counts

    def _weights(self, at: np.ndarray) -> np.ndarray:
        """Mean weights (B, s, i a, b) of the actions in every group."""
        from theory.state_tracking.single_students.kernels import fixed_disorder_kernels

        weights = fixed_disorder_kernels.weights
        of_students = [weights(*each[:4]) for each in self._each(at)]
        return np.stack(of_students).swapaxes(2, 3)

    def rates(self) -> list[np.ndarray]:
        """Change of the state per step of plain descent, with coupled weight decay."""
        p = self.p
        slopes = self.gradients()
        if p.weight_decay:
            pairs = zip(slopes, self.state, strict=True)
            slopes = [g + p.weight_decay * w for g, w in pairs]
        for g in slopes:
            g *= -p.eta
        return slopes

    def _each(self, at: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
        """Arguments of the kernels for every student: attention, counts, M and
        teachers.
        """
        M = np.ascontiguousarray(self.state[2])
        unit = [self.unit] * len(at)
        return zip(
            at, self.counts, unit, self.share, self.left, M, self.target, strict=True
        )

    def gradients(self) -> list[np.ndarray]:
        """Derivatives of the loss by the state."""
        from theory.state_tracking.single_students.kernels import fixed_disorder_kernels

        W_Q, W_K, M = self.state
        at = self.attention.forward(W_Q, W_K)
        force = np.empty_like(at)
        d_M = np.empty(M.shape)
        for student, each in enumerate(self._each(at)):
            of_student = self.keep[student], d_M[student]
            force[student] = fixed_disorder_kernels.gradients(*each, *of_student)
        return [*self.attention.backward(W_Q, W_K, at, force), d_M]

    def _force(self, at: np.ndarray, error: np.ndarray) -> np.ndarray:
        """Derivatives (B, i, j) of the loss of the groups' mean logits with respect to
        attention.
        """
        from theory.state_tracking.single_students.kernels import fixed_disorder_kernels

        overlaps = self.state[2] @ error.swapaxes(2, 3)
        forces = []
        for each, overlap in zip(self._each(at), overlaps, strict=True):
            forces.append(fixed_disorder_kernels.force(*each[1:4], overlap))
        return np.stack(forces)

    def observe(self) -> dict[str, np.ndarray]:
        """Order parameters, logits, loss and accuracies per seed."""
        from theory.state_tracking.single_students.kernels import fixed_disorder_kernels

        p = self.p
        M = self.state[2]
        N, d = M.shape[1:3]
        at, own, _ = self.attention.parts(*self.state[:2])
        observed = [fixed_disorder_kernels.observed(*each) for each in self._each(at)]
        sums, entries = zip(*observed, strict=True)
        right, right_square, total, square, loss = p.L * np.stack(sums, 1)
        other = (total - right) / (N - 1)
        overlap, all_teachers = np.array(entries).T
        observables = summary(
            own,
            overlap / (d * N),
            (all_teachers - overlap) / max(d * (d - 1) * N, 1),
            loss=loss,
            correct=(right, right_square - right**2),
            other=(other, (square - right_square) / (N - 1) - other**2),
        )
        return observables | self._answers(at)

    def _answers(self, at: np.ndarray) -> dict[str, np.ndarray]:
        """Accuracies of steps and of rollouts on the words of `answered_words`, with
        their standard errors; NaN where descent has diverged.
        """
        from theory.state_tracking.single_students.kernels import accuracy_kernels

        names = "accuracy", "rollout_accuracy"
        answers = {}
        for name, end in itertools.product(names, ("", SE)):
            answers[name + end] = np.full(len(at), np.nan)
        if not self.accuracies:
            return answers
        attention = at.astype(np.float32)
        M = self.state[2].astype(np.float32)
        for student, words in enumerate(self.words):
            weights = attention[student], M[student]
            if not all(np.isfinite(w).all() for w in weights):
                continue
            shares = accuracy_kernels.answers(*weights, words.actions, words.states)
            for name, share in zip(names, shares, strict=True):
                error = 0.0 if self.all_words else share.std() / len(share) ** 0.5
                answers[name][student] = share.mean()
                answers[name + SE][student] = error
        return answers
