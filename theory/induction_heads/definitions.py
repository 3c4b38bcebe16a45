"""Definition of the model: task, disentangled transformer and loss (Sec. 3, A.3), entry by entry.

Rows of the sequence: item k is row 2k-1, label k is row 2k, the query is row 2N+1. The first half
of a row is the token, the second half its positional code. Row vectors throughout.
"""

from functools import cache

import sympy as sp

from theory import Equation, array, symbol, table
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

X = array("X", means="token and position of the rows side by side: 2 D columns")
last = symbol(
    "last",
    "i_{0}",
    "rows a row may attend to: i - 1 strict, i inclusive",
    integer=True,
    nonnegative=True,
)
MASK = (
    "a row attends to itself only under the inclusive mask; a row that sees nothing retrieves zero"
)


def softmax(score: sp.IndexedBase) -> sp.Expr:
    """Entry (i, j) of the row softmax over the rows that row i may attend to."""
    return sp.exp(score[i, j]) / sp.Sum(sp.exp(score[i, k]), (k, 1, last))


@cache
def equations() -> dict[str, Equation]:
    """Definitions from which everything else is derived."""
    half = D / 2
    swap = sp.KroneckerDelta(n, m + half) + sp.KroneckerDelta(m, n + half)
    end = 2 * N + 1

    def bilinear(rows: sp.IndexedBase, W: sp.IndexedBase, width: sp.Expr) -> sp.Expr:
        return sp.Sum(rows[i, m] * W[m, n] * rows[j, n], (m, 1, width), (n, 1, width))

    return table(
        ref,
        status="exact",
        swap=(M[m, n], swap, "Eq. (2)", "D even"),
        item_token=(X_token[2 * k - 1, m], a[k, m], "Eq. (3)"),
        item_position=(X_position[2 * k - 1, m], code[k, m], "Eq. (3)"),
        label_token=(X_token[2 * k, m], b[k, m], "Eq. (3)"),
        label_position=(X_position[2 * k, m], sp.Sum(code[k, n] * M[n, m], (n, 1, D)), "Eq. (3)"),
        query_token=(X_token[end, m], a[q, m], "Eq. (4)"),
        query_position=(X_position[end, m], sp.S.Zero, "Eq. (4)"),
        target=(y[m], b[q, m], "Eq. (4)"),
        scores_1=(S[i, j], bilinear(X, W1, 2 * D), "Eq. (1), A.4"),
        attention_1=(T[i, j], softmax(S), "Eq. (1), A.4", MASK),
        retrieved_1=(U[i, 2 * D + m], sp.Sum(T[i, j] * X[j, m], (j, 1, last)), "Eq. (1), A.4"),
        scores_2=(P[i, j], bilinear(U, W2, 4 * D), "Eq. (1), A.4"),
        attention_2=(Q[i, j], softmax(P), "Eq. (1), A.4", MASK),
        retrieved_2=(V[i, 4 * D + m], sp.Sum(Q[i, j] * U[j, m], (j, 1, last)), "Eq. (1), A.4"),
        output=(output[m], sp.Sum(V[end, n] * W3[n, m], (n, 1, 8 * D)), "Eq. (1), A.3"),
        squared_error=(
            squared_error,
            sp.Sum((y[m] - output[m]) ** 2, (m, 1, D)),
            "Sec. 3.2, A.3",
            "summed over the D coordinates",
        ),
    )
