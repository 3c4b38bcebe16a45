"""Interference between superposed memories: exact first and second moments of the scores."""

from functools import cache

import sympy as sp

from theory import Equation, array, symbol, table, written_as
from theory.associative_memory.symbols import DERIVED, N, d, k, ref, x

q_x = symbol("q_x", means="weight of the key that is asked for", positive=True)
Q = symbol("Q_all", "Q", "sum of squared weights over all keys", positive=True)
Q_k = symbol("Q_k", means="sum of squared weights over keys of output k", positive=True)
Q_y = symbol("Q_y", means="sum of squared weights over keys of the right output", positive=True)
M = symbol("M", means="outputs", integer=True, positive=True)
score = array("s", means="scores of the outputs, by key")
output_overlap = array("uu", r"u^{\top}u", "overlaps of output embeddings")
key_overlap = array("ee", r"e^{\top}e", "overlaps of key embeddings")
q, answer = array("q", means="weights of the keys"), array("f", means="output of a key")
stored = symbol("x_stored", r"x'", "a stored key", integer=True, positive=True)
RANDOM = "unit embeddings independent and uniform on the sphere"
mean_right, mean_wrong = (
    symbol("mean_right", r"\mathbb{E} s_y", "mean of the right score"),
    symbol("mean_wrong", r"\mathbb{E} s_k", "mean of a wrong score"),
)
var_right = symbol(
    "var_right", r"\operatorname{Var} s_y", "variance of the right score", positive=True
)
var_wrong = symbol(
    "var_wrong", r"\operatorname{Var} s_k", "variance of a wrong score", positive=True
)


def squared_cosine() -> sp.Expr:
    """Mean squared inner product of two independent unit vectors, from the density (1 -
    s^2)^((d-3)/2).
    """
    half = sp.Symbol("half", positive=True)  # (d - 1)/2
    # With s^2 = v the integrals over (0, 1) are Beta functions B(1/2, half), B(3/2, half).
    ratio = sp.gammasimp(
        sp.beta(sp.Rational(3, 2), half).rewrite(sp.gamma)
        / sp.beta(sp.Rational(1, 2), half).rewrite(sp.gamma)
    )
    return sp.simplify(ratio.subs(half, (d - 1) / 2))


def variance(kinds: list[tuple[sp.Expr, bool, bool]]) -> sp.Expr:
    """Sum of the variances of uncorrelated terms.

    Each kind is (sum of q^2 over its keys, whether the outputs are different vectors, whether the
    keys are different vectors). A term is a product of inner products: of different vectors with
    mean 0 and mean square 1/d, of a vector with itself equal to 1. Terms of different keys are
    uncorrelated, since reversing the embedding of one key changes the sign of its term only.
    """
    square = squared_cosine()
    return sp.expand(
        sum(
            total * square ** (int(outputs) + int(keys))
            for total, outputs, keys in kinds
            if outputs or keys
        )
    )


@cache
def equations() -> dict[str, Equation]:
    """Scores, their moments for any weights, for one output per key, and for M outputs."""
    # Correct output y = f(x): its own key (a constant), keys with the same output, all others.
    right = variance([(q_x**2, False, False), (Q_y - q_x**2, False, True), (Q - Q_y, True, True)])
    # Wrong output k: the key itself, keys with output k, all others.
    wrong = variance([(q_x**2, True, False), (Q_k, False, True), (Q - Q_k - q_x**2, True, True)])
    injective = {q_x: 1, Q_y: 1, Q_k: 1, Q: N}
    of_right = written_as((N - 1) / d**2, right.subs(injective))
    of_wrong = written_as((N - 2) / d**2 + 2 / d, wrong.subs(injective))
    balanced = {q_x: 1, Q_y: N / M, Q_k: N / M, Q: N}
    summed = sp.Sum(
        q[stored] * output_overlap[k, answer[stored]] * key_overlap[x, stored], (stored, 1, N)
    )
    one, several = "one output per key, q = 1", "M outputs with N/M keys each, q = 1"
    leak = "2/d: the key's own output and the output's own key leak"
    hebbian = "slides, weighted sum of outer products with random embeddings"
    means = "mean squared overlap of two embeddings"
    mean_square = symbol("mean_square", r"\mathbb{E}\langle u,u'\rangle^{2}", means)
    return table(ref(hebbian), status="exact", hebbian_score=(score[k, x], summed)) | table(
        ref(DERIVED),
        RANDOM,
        status="exact",
        squared_cosine=(mean_square, squared_cosine()),
        score_mean_right=(mean_right, q_x),
        score_mean_wrong=(mean_wrong, sp.S.Zero),
        score_variance_right=(var_right, right, "any map and weights"),
        score_variance_wrong=(var_wrong, wrong, "any map and weights"),
        interference_right=(var_right, of_right, one),
        interference_wrong=(var_wrong, of_wrong, one, leak),
        classes_right=(var_right, sp.expand(right.subs(balanced)), several),
        classes_wrong=(var_wrong, sp.expand(wrong.subs(balanced)), several),
    )
