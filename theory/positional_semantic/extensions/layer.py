"""Equations of the extensions of App. E.3: correlated tokens, trained values, heads.

**Correlated tokens.** With ``x = C^(1/2) u``, rows of ``u`` independent, the fields of ``u`` obey
the state evolution of independent tokens. Three things change: attention is that of the fields
``C^(1/2) z``, the Gram matrix is ``sigma^2 C``, and the encoding is ``C^(-1/2) p``.

**Values.** Each of the ``d`` columns of a value matrix W is a ridge regression with rotationally
invariant fields ``x W``: they join the fields ``x Q`` in the Moreau envelope, where they are
quadratic and can be minimised over in closed form. What remains is another loss of a sentence,
which depends on three numbers of W: its overlap with the identity, its norm, and its response.
Correlations between single columns of W and Q are of order d^(-1/2) and drop out.

**Values of low rank** (App. C.10). Stacked with Q, their columns V are further columns of a student
with labels ``T x V*/sqrt(d)``: the fields ``x V`` stay in the envelope, now beside labels of order
one. Minimised over, they leave the same loss with M of this sentence alone. V may overlap with V*
only: signs of Q, of Q* and of the encoding change alone, and with them every other overlap.

**Heads.** Attention is the mean over the columns of Q. Each may change its sign, so that heads that
have different overlaps are orthogonal, and one that has positions has no teacher.
"""

from functools import cache

import sympy as sp

from theory import Equation, linear_root, proved, symbol, table, vanishes
from theory.notation import Forms
from theory.positional_semantic import definitions, free_entropy
from theory.positional_semantic.free_entropy import RS
from theory.positional_semantic.symbols import (
    E_M,
    Y_12,
    Y_21,
    D,
    V,
    V_hat,
    alpha,
    epsilon_t,
    lam,
    m,
    m_hat,
    q,
    q_hat,
    rho,
    sigma,
    theta_hat,
)

OURS = "App. E.3, experiments only; theory derived here"
c = symbol("correlation", "c", "correlation of the two tokens", real=True)
q_W = symbol("q_W", "q_{W}", "squared norm of the value matrix by d", nonnegative=True)
theta_W = symbol("theta_W", r"\theta_{W}", "trace of the value matrix by d", real=True)
V_W = symbol("V_W", "V_{W}", "variance of a value's field under its posterior", nonnegative=True)
q_W_hat = symbol("q_W_hat", r"\hat{q}_{W}", "conjugate of q_W", nonnegative=True)
theta_W_hat = symbol("theta_W_hat", r"\hat{\theta}_{W}", "conjugate of theta_W", real=True)
V_W_hat = symbol("V_W_hat", r"\hat{V}_{W}", "conjugate of V_W", real=True)
D_W = symbol("D_W", "D_{W}", "curvature of the values' potential", positive=True)
SLOPES = {
    x: symbol(
        f"E_by_{x.name}",
        rf"\mathbb{{E}}[\partial_{{{sp.latex(x)}}}\ell]",
        "mean derivative of a sentence's loss at the proximal point",
        real=True,
    )
    for x in (q_W, theta_W, V_W)
}
K = {k: symbol(f"K_{k}", f"K_{{{k}}}", "entry of S C S^T", real=True) for k in ("11", "12", "22")}
M = {
    k: symbol(f"M_{k}", f"M_{{{k}}}", "mean product of residuals without this sentence", real=True)
    for k in ("11", "12", "22")
}
GRAM = sp.Matrix([[1, c], [c, 1]])  # C
HEADS = sp.Matrix(
    2,
    2,
    lambda token, head: symbol(
        f"h_{token + 1}{head + 1}",
        f"h_{{{token + 1}}}^{{({head + 1})}}",
        f"field of token {token + 1} in head {head + 1}",
        real=True,
    ),
)
v = [symbol(f"v_{k}", f"v_{{{k}}}", f"field of a value, token {k}", real=True) for k in (1, 2)]
y = [symbol(f"y_{k}", f"y_{{{k}}}", f"label of token {k} for a value", real=True) for k in (1, 2)]
S_12, S_21 = definitions.S_12, definitions.S_21
STUDENT, TARGET = (sp.Matrix([[1 - a, a], [b, 1 - b]]) for a, b in ((S_12, S_21), (Y_12, Y_21)))


def root() -> sp.Matrix:
    """Square root of C, proved."""
    plus, minus = ((sp.sqrt(1 + c) + s * sp.sqrt(1 - c)) / 2 for s in (1, -1))
    result = sp.Matrix([[plus, minus], [minus, plus]])
    proved(all(vanishes(x) for x in result * result - GRAM), "not a square root of C")
    return result


def scores(fields: sp.Matrix) -> tuple[sp.Expr, sp.Expr]:
    """Differences of scores whose logistic functions are the entries (1,2) and (2,1) of the
    attention, for two tokens with any number of columns of fields.
    """
    of = fields * fields.T
    return of[0, 1] - of[0, 0], of[1, 0] - of[1, 1]


def products() -> tuple[sp.Matrix, sp.Matrix]:
    """``S C S^T``, and sigma^2 times ``T C T^T - theta_W (S C T^T + T C S^T) + q_W S C S^T``: the
    covariance of a column of ``T x - S x W`` if W does not know this sentence.
    """
    student, target, mixed = (
        a * GRAM * b.T for a, b in ((STUDENT, STUDENT), (TARGET, TARGET), (STUDENT, TARGET))
    )
    return student, sigma**2 * (target - theta_W * (mixed + mixed.T) + q_W * student)


def without_values() -> sp.Expr:
    """Loss of a sentence with the fields of the values at their minimum, by K and M.

    Per column, ``(v - w).(V_W C)^(-1)(v - w)/2 + |y - S v|^2/2`` is minimised over ``v``; the
    residual ``r = y - S w`` is what the others leave, with covariance M. Proved: the minimum is
    ``r.(1 + V_W S C S^T)^(-1) r/2``.
    """
    r = sp.Matrix(sp.symbols("r1 r2", real=True))
    shift = sp.Matrix(sp.symbols("v1 v2", real=True))
    cost = (shift.T * GRAM.inv() * shift)[0] / (2 * V_W) + (
        (r - STUDENT * shift).T * (r - STUDENT * shift)
    )[0] / 2
    best = sp.solve([sp.diff(cost, x) for x in shift], list(shift), dict=True)[0]
    kernel = sp.eye(2) + V_W * STUDENT * GRAM * STUDENT.T
    proved(
        vanishes(cost.subs(best) - (r.T * kernel.inv() * r)[0] / 2),
        "the minimum over the values has another form",
    )
    short = sp.eye(2) + V_W * sp.Matrix([[K["11"], K["12"]], [K["12"], K["22"]]])
    left = sp.Matrix([[M["11"], M["12"]], [M["12"], M["22"]]])
    return (short.adjugate() * left).trace() / (2 * short.det(method="berkowitz"))


def of_heads() -> tuple[sp.Expr, sp.Expr]:
    """Entries (1,2) and (2,1) of the mean attention of two heads."""
    each = [definitions.off_diagonal(*HEADS[:, k]) for k in range(HEADS.cols)]
    first, second = zip(*each, strict=True)
    return sp.Add(*first) / HEADS.cols, sp.Add(*second) / HEADS.cols


def labels_loss() -> sp.Expr:
    """Loss of a sentence for one column of low-rank values."""
    gap = sp.Matrix(y) - STUDENT * sp.Matrix(v)
    return (gap.T * gap)[0] / 2


def correlated() -> Forms:
    """``q`` and ``m`` with the encoding ``C^(-1/2) p``, of squared norm ``1/(1 - c)``, as
    stationary points of the entropic potential.
    """
    norm = 1 / (1 - c)
    psi = free_entropy.entropic_potential().subs(m_hat, m_hat * sp.sqrt(norm))
    # m = sqrt(1 - c) times the mean field of u; q is conjugate to V_hat/2, V to q_hat.
    q_form = -2 * sp.diff(psi, V_hat)
    m_form = sp.sqrt(1 - c) * sp.diff(psi, m_hat)
    short = {lam: D - sigma**2 * V_hat}
    return {x: sp.factor(form.subs(short)) for x, form in ((q, q_form), (m, m_form))}


def values() -> Forms:
    """State evolution of the values: stationarity of the free entropy per column of W. A column
    is a student of rank one with fields of variance ``sigma^2 q_W`` whose teacher is a unit vector.
    """
    renamed = {q_hat: q_W_hat, V_hat: V_W_hat, theta_hat: theta_W_hat, m_hat: 0, rho: sigma**2}
    psi = free_entropy.entropic_potential().subs(renamed, simultaneous=True)
    phi = (sigma**2 * V_W_hat * q_W - q_W_hat * V_W) / 2 - sigma**2 * theta_W_hat * theta_W + psi
    rows = {}
    for x, y in ((q_W, V_W_hat), (theta_W, theta_W_hat), (V_W, q_W_hat)):
        rows[y] = linear_root(sp.diff(phi, x) - alpha * SLOPES[x], y)
        rows[x] = sp.factor(linear_root(sp.diff(phi, y), x).subs(lam, D_W - sigma**2 * V_W_hat))
    return rows


@cache
def equations() -> dict[str, Equation]:
    """Loss of a sentence with correlated tokens and trained values, and what is new in the state
    evolution.
    """
    gram, left = products()
    entries = {"11": (0, 0), "12": (0, 1), "22": (1, 1)}
    fixed = {q_W: 1, theta_W: 1, V_W: 0}
    plain = (
        without_values()
        .subs(V_W, 0)
        .subs({M[k]: left[entries[k]].subs(fixed) for k in ("11", "22")})
    )
    claimed = sigma**2 * (1 - c) * ((Y_12 - S_12) ** 2 + (Y_21 - S_21) ** 2)
    proved(vanishes(plain - claimed), "the loss with correlated tokens has another form")
    new = values()
    loss = alpha * E_M - (q_hat * V + q_W_hat * V_W) / 2 + lam * (q / sigma**2 + q_W) / 2
    tokens = ("two tokens of correlation c, p_1 = -p_2 of norm 1",)
    full = ("a full value matrix with the ridge of the queries",)
    two = ("two heads, each with a column of Q",)
    low = ("values of rank one with the ridge of the queries, labels T x V*/sqrt(d)",)
    of_c = correlated()
    ref = f"cui2024, {OURS}"
    return table(
        ref,
        "d to infinity",
        status="exact",
        correlated_loss=(definitions.loss_symbol, claimed, *tokens),
        **{f"K_{k}": (K[k], sp.factor(gram[entry]), *tokens) for k, entry in entries.items()},
        **{f"M_{k}": (M[k], left[entry], *full) for k, entry in entries.items()},
        values_loss=(definitions.loss_symbol, without_values(), *full),
        heads_S_12=(S_12, of_heads()[0], *two),
        heads_S_21=(S_21, of_heads()[1], *two),
        labels_loss=(definitions.loss_symbol, labels_loss(), *low),
    ) | table(
        ref,
        *RS,
        status="closure",
        correlated_q=(q, of_c[q], *tokens),
        correlated_m=(m, of_c[m], *tokens),
        **{x.name: (x, form, *full) for x, form in new.items()},
        D_W=(D_W, lam + sigma**2 * V_W_hat, *full),
        extended_training_loss=(epsilon_t, loss, *full),
    )
