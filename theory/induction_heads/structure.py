"""Definition of the model (Sec. 3, A.3), and Theorem 1 by computation: which weights
can become nonzero (Sec. 4, App. A).

Items and labels may be rotated together by any orthogonal E, and codes by any F =
diag(e, e) or antidiag(e, e) with e orthogonal, as such F commute with M. The population
gradient commutes with both, so each of its blocks lies in a commutant. Signed
permutations suffice; they form a finite group, so that the calculation is exact.
"""

import itertools
from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
import sympy as sp

from theory import Chapter, Equations, array, symbol
from theory.induction_heads.symbols import (
    W1,
    W2,
    W3,
    D,
    M,
    N,
    P,
    Q,
    S,
    T,
    U,
    V,
    X_position,
    X_token,
    a,
    b,
    code,
    i,
    j,
    k,
    m,
    n,
    output,
    q,
    ref,
    squared_error,
    y,
)

# Definition of the model
#
# Rows: item k is row 2k-1, label k is row 2k, the query is row 2N+1. The first half of
# a row is the token, the second its positional code. Row vectors throughout.

X = array("X", means="token and position of the rows side by side: 2 D columns")
last = symbol(
    "last",
    "i_{0}",
    "rows a row may attend to: i - 1 strict, i inclusive",
    integer=True,
    nonnegative=True,
)
MASK = (
    "a row attends to itself only under the inclusive mask; a row that sees nothing"
    " retrieves zero"
)


def softmax(score: sp.IndexedBase) -> sp.Expr:
    """Entry (i, j) of the row softmax over the rows that row i may attend to."""
    return sp.exp(score[i, j]) / sp.Sum(sp.exp(score[i, k]), (k, 1, last))


def bilinear(rows: sp.IndexedBase, W: sp.IndexedBase, width: sp.Expr) -> sp.Expr:
    """Entry (i, j) of rows W rows^T."""
    return sp.Sum(rows[i, m] * W[m, n] * rows[j, n], (m, 1, width), (n, 1, width))


# Rows
ITEM = 2 * k - 1
LABEL = 2 * k
QUERY = 2 * N + 1
EXCHANGED = sp.KroneckerDelta(n, m + D / 2) + sp.KroneckerDelta(m, n + D / 2)
SWAPPED_CODE = sp.Sum(code[k, n] * M[n, m], (n, 1, D))
RETRIEVED_1 = sp.Sum(T[i, j] * X[j, m], (j, 1, last))
RETRIEVED_2 = sp.Sum(Q[i, j] * U[j, m], (j, 1, last))
READ_OUT = sp.Sum(V[QUERY, n] * W3[n, m], (n, 1, 8 * D))
ERROR = sp.Sum((y[m] - output[m]) ** 2, (m, 1, D))
LAYERS = "Eq. (1), A.4"

model = Chapter(ref, status="exact")
state = model.state
state("swap", M[m, n], EXCHANGED, "Eq. (2)", "D even")
state("item_token", X_token[ITEM, m], a[k, m], "Eq. (3)")
state("item_position", X_position[ITEM, m], code[k, m], "Eq. (3)")
state("label_token", X_token[LABEL, m], b[k, m], "Eq. (3)")
state("label_position", X_position[LABEL, m], SWAPPED_CODE, "Eq. (3)")
state("query_token", X_token[QUERY, m], a[q, m], "Eq. (4)")
state("query_position", X_position[QUERY, m], sp.S.Zero, "Eq. (4)")
state("target", y[m], b[q, m], "Eq. (4)")
state("scores_1", S[i, j], bilinear(X, W1, 2 * D), LAYERS)
state("attention_1", T[i, j], softmax(S), LAYERS, MASK)
state("retrieved_1", U[i, 2 * D + m], RETRIEVED_1, LAYERS)
state("scores_2", P[i, j], bilinear(U, W2, 4 * D), LAYERS)
state("attention_2", Q[i, j], softmax(P), LAYERS, MASK)
state("retrieved_2", V[i, 4 * D + m], RETRIEVED_2, LAYERS)
state("output", output[m], READ_OUT, "Eq. (1), A.3")
SUMMED = "summed over the D coordinates"
state("squared_error", squared_error, ERROR, "Sec. 3.2, A.3", SUMMED)


def definitions() -> Equations:
    """Definitions from which everything else is derived."""
    return model.equations


TOKEN = "token"
POSITION = "position"
BLOCKS = {
    "W1": ((TOKEN, POSITION), (TOKEN, POSITION)),
    "W2": ((TOKEN, POSITION) * 2, (TOKEN, POSITION) * 2),
    "W3": ((TOKEN, POSITION) * 4, (TOKEN,)),
}
NAMES = {"W1": "alpha", "W2": "beta", "W3": "gamma"}
# The pseudo-parameters of an induction head, by their names in the flow of three
# numbers.
HEAD = {"alpha": "alpha_3", "beta": "beta_2", "gamma": "gamma_3"}
ARRAYS = {"W1": W1, "W2": W2, "W3": W3}
EQUATION = {"W1": "Eq. (6)", "W2": "Eq. (7)", "W3": "Eq. (8)"}
ASSUMED = (
    "zero start",
    "population gradient",
    "law of the data invariant under E and F",
)


class Pseudo(NamedTuple):
    """One pseudo-parameter: block (row, column) of a weight matrix, counted from 0, and
    the matrix (I or M) that it multiplies.
    """

    name: str
    matrix: str
    row: int
    column: int
    kernel: str  # "I" or "M"


@cache
def pseudo_parameters() -> tuple[Pseudo, ...]:
    """The pseudo-parameters alpha_1.., beta_1.., gamma_1.. in the paper's order, from
    the commutants of the blocks.
    """
    parameters = []
    for matrix, (rows, columns) in BLOCKS.items():
        number = itertools.count(1)
        for row, left in enumerate(rows):
            for column, right in enumerate(columns):
                for kernel in commutant(left, right):
                    name = f"{NAMES[matrix]}_{next(number)}"
                    parameters.append(Pseudo(name, matrix, row, column, kernel))
    return tuple(parameters)


def reachable() -> tuple[str, ...]:
    """Names of the pseudo-parameters that can become nonzero.

    The loss depends on one row of second-layer scores, that of the query. Row block i
    of W2 multiplies block i of the query's row, and block 2 of that row, the query's
    positional code, is zero.
    """
    dead = {1} if definitions()["query_position"].rhs == 0 else set()
    return tuple(
        p.name for p in pseudo_parameters() if not (p.matrix == "W2" and p.row in dead)
    )


def signed_permutations(size: int) -> Iterable[np.ndarray]:
    """All 2^n n! signed permutation matrices."""
    for order in itertools.permutations(range(size)):
        for signs in itertools.product((1, -1), repeat=size):
            yield np.diag(signs)[:, order]


def swap(D: int) -> np.ndarray:
    """M of the given even dimension."""
    return np.kron(np.array([[0, 1], [1, 0]]), np.eye(D // 2, dtype=int))


@cache
def group(kind: str, D: int) -> tuple[np.ndarray, ...]:
    """Signed permutations that leave the distribution of tokens, or of positions,
    invariant.
    """
    if kind == TOKEN:
        return tuple(signed_permutations(D))
    corners = (np.eye(2, dtype=int), np.array([[0, 1], [1, 0]]))
    pairs = itertools.product(corners, signed_permutations(D // 2))
    return tuple(np.kron(corner, e) for corner, e in pairs)


def averages(left: str, right: str, D: int) -> np.ndarray:
    """Sum of E^T A F over the group for every matrix unit A; exact integers.

    Each row is one flattened sum. If both sides are of the same kind they are rotated
    by the same element; otherwise by independent ones, and the sum factorises.
    """
    a = np.array(group(left, D))
    b = np.array(group(right, D))
    if left == right:
        return np.einsum("gij,gkl->ikjl", a, b).reshape(D * D, D * D)
    return np.kron(a.sum(0), b.sum(0))


@cache
def commutant(left: str, right: str, D: int = 4) -> tuple[str, ...]:
    """Matrices that span a block between two kinds of rows (Propositions 1-3).

    Returns
    -------
    tuple of str
        ``("I",)``, ``("I", "M")`` or ``()``.

    Raises
    ------
    ArithmeticError
        If the averages span another space.
    """
    spanned = averages(left, right, D)
    candidates = {"I": np.eye(D, dtype=int), "M": swap(D)}
    rank = sp.Matrix(spanned.tolist()).rank()
    size = len(group(left, D))
    if left != right:
        size *= len(group(right, D))
    invariant = []
    for kernel, matrix in candidates.items():
        entries = matrix.ravel()
        if (spanned @ entries == size * entries).all():
            invariant.append(kernel)
    if len(invariant) != rank:
        raise ArithmeticError(
            f"{left}-{right} blocks: {rank} invariant directions, of which I and M are"
            f" {len(invariant)}"
        )
    return tuple(invariant)


def dimension(D: int) -> Fraction:
    """Dimension of the space of invariant (W1, W2, W3), by the character formula: an
    average over the group that is exactly an integer.
    """
    mean = {}
    square = {}
    for kind in (TOKEN, POSITION):
        traces = [int(np.trace(g)) for g in group(kind, D)]
        mean[kind] = Fraction(sum(traces), len(traces))
        square[kind] = Fraction(sum(x * x for x in traces), len(traces))
    total = Fraction(0)
    for rows, columns in BLOCKS.values():
        for left, right in itertools.product(rows, columns):
            if left == right:
                total += square[left]
            else:
                total += mean[left] * mean[right]
    return total


@cache
def equations() -> Equations:
    """Nonzero blocks of the weights, entry by entry."""
    blocks: dict[tuple[str, int, int], sp.Expr] = {}
    for name, matrix, row, column, kernel in pseudo_parameters():
        letter, number = name.split("_")
        means = f"reduced weight of {matrix}"
        parameter = symbol(name, rf"\{letter}_{{{number}}}", means, real=True)
        kernels = {"I": sp.KroneckerDelta(m, n), "M": M[m, n]}
        place = (matrix, row, column)
        blocks[place] = blocks.get(place, sp.S.Zero) + parameter * kernels[kernel]
    names = (p.name for p in pseudo_parameters())
    still = {symbol(name, real=True): 0 for name in names if name not in reachable()}
    theorem = Chapter(ref, *ASSUMED, status="exact")
    for (matrix, row, column), entry in blocks.items():
        places = (row + 1,) if matrix == "W3" else (row + 1, column + 1)
        name = f"{matrix}_{''.join(map(str, places))}"
        block = ARRAYS[matrix][*places, m, n]
        moving = entry.subs(still)
        source = f"Theorem 1, {EQUATION[matrix]}"
        if moving != entry:
            source += ", sharpened: stays zero for all time"
        theorem.state(name, block, moving, source)
    return theorem.equations
