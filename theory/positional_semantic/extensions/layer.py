"""Equations of the extensions of App. E.3: correlated tokens, trained values, heads; and averages
over their output channel.

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

Averages are sums over Sobol points (`theory.positional_semantic.general`), with the proximal point
in the well of the conditional mean field, the local selection that informed students follow. Fields
are those of uncorrelated tokens, ``C^(-1/2) z``; those of Q's columns come first, then those of
low-rank values.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import sympy as sp

from theory import Equation, linear_root, numeric, proved, symbol, table, vanishes
from theory.notation import Forms
from theory.positional_semantic import definitions, free_entropy, general
from theory.positional_semantic.channel import target
from theory.positional_semantic.free_entropy import RS
from theory.positional_semantic.parameters import Parameters
from theory.positional_semantic.prox import Derivatives, chained, differentiated, proximal
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
PAIRS = ("11", "12", "22")
K = {k: symbol(f"K_{k}", f"K_{{{k}}}", "entry of S C S^T", real=True) for k in PAIRS}
M = {
    k: symbol(f"M_{k}", f"M_{{{k}}}", "mean product of residuals without this sentence", real=True)
    for k in PAIRS
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


def square_root() -> sp.Matrix:
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
    rest = r - STUDENT * shift
    cost = (shift.T * GRAM.inv() * shift)[0] / (2 * V_W) + (rest.T * rest)[0] / 2
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
    psi = free_entropy.entropic_potential().subs(m_hat, m_hat * sp.sqrt(1 / (1 - c)))
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
    residuals = {M[k]: left[entries[k]].subs(fixed) for k in ("11", "22")}
    plain = without_values().subs(V_W, 0).subs(residuals)
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


# Averages over the output channel

# Points and mirror images: as drawn, all reflected, the teacher's noise reflected, both.
IMAGES = {"semantic": (0, 2), "positional": (0, 1), "mixed": (0, 1, 2, 3)}


class Values(NamedTuple):
    """Order parameters of the value matrix (of the identity): ``|W|^2/d``, ``tr W/d``, response."""

    q_W: float = 1.0
    theta_W: float = 1.0
    V_W: float = 0.0


@cache
def compiled() -> tuple[Callable[..., Any], ...]:
    """Derivatives of the loss of a sentence in the order parameters of the values; conjugates of
    these from mean derivatives; and back.
    """
    eq = equations()
    arguments = (S_12, S_21, Y_12, Y_21, sigma, c, *SLOPES)
    slopes = sp.lambdify(arguments, [sp.diff(values_loss(), x) for x in SLOPES], "numpy", cse=True)
    hats = q_W_hat, theta_W_hat, V_W_hat
    out = numeric.function([eq[x.name].rhs for x in hats], (alpha, sigma, *SLOPES.values()))
    curvature = {D_W: eq["D_W"].rhs}
    into = numeric.function([eq[x.name].rhs.subs(curvature) for x in SLOPES], (lam, sigma, *hats))
    return slopes, out, into


def values_loss() -> sp.Expr:
    """Loss of a sentence in the attention of student and target."""
    eq = equations()
    return eq["values_loss"].rhs.subs({x: eq[x.name].rhs for x in (*K.values(), *M.values())})


@cache
def fields_of_tokens(rank: int, heads: bool, columns: int) -> Callable[..., Derivatives]:
    """Entries (1,2) and (2,1) of the attention, and the fields of low-rank values, token by token:
    functions of the fields of uncorrelated tokens and of a row of the `root` of their correlations.
    """
    z = sp.Matrix(2, rank + columns, lambda i, j: sp.Symbol(f"z_{i}{j}", real=True))
    own, other = sp.symbols("own other", real=True)
    fields = sp.Matrix([[own, other], [other, own]]) * z
    queries = [fields[:, k] for k in range(rank)] if heads else [fields[:, :rank]]
    entries = zip(*map(scores, queries), strict=True)
    S = [sp.Add(*map(definitions.logistic, of_heads)) / len(queries) for of_heads in entries]
    return differentiated([*S, *fields[:, rank:]], list(z), [own, other])


@cache
def loss_of_tokens(columns: int) -> Callable[..., Derivatives]:
    """Loss of a sentence in these functions, for entries of the target and all numbers of
    `values_loss`, or for labels of low-rank values.
    """
    S, given = [S_12, S_21], [sigma, c, *SLOPES]
    if not columns:
        return differentiated([values_loss()], S, [Y_12, Y_21, *given])
    fields, labels = (
        sp.Matrix(2, columns, lambda i, j, x=x: sp.Symbol(f"{x}_{i}{j}", real=True)) for x in "vy"
    )
    one = equations()["labels_loss"].rhs
    each = (
        dict(zip([*v, *y], [*fields[:, k], *labels[:, k]], strict=True)) for k in range(columns)
    )
    return differentiated([sp.Add(*map(one.subs, each))], [*S, *fields], [*labels, *given])


@dataclass(frozen=True)
class Extended(general.System):
    """The layer of the figures with correlated tokens, trained values and several columns, as a
    general system for the fields of uncorrelated tokens.

    Attributes
    ----------
    p : Parameters
        Model, with ``alpha``.
    """

    p: Parameters = field(default_factory=Parameters)

    def loss(self, z: np.ndarray, Y: np.ndarray, values: np.ndarray) -> Derivatives:
        """Value, gradient and Hessian of the loss of sentences for fields ``(n, 2R)``, targets
        ``(n, 2)``, or labels ``(n, 2, k)`` of low-rank values, and the order parameters of the
        values.
        """
        p, labels = self.p, Y.reshape(len(Y), -1).T
        inner = fields_of_tokens(p.rank, p.heads, p.value_rank)(z, *root(p.correlation)[0])
        outer = loss_of_tokens(p.value_rank)(inner[0], *labels, p.sigma, p.correlation, *values)
        return chained(outer, inner)

    def attention(self, z: np.ndarray) -> np.ndarray:
        """Entries (1,2) and (2,1) of the attention, shape ``(2, n)``, for fields ``(n, 2, R)``."""
        p, queries = self.p, z[..., : self.p.rank].reshape(len(z), -1)
        return fields_of_tokens(p.rank, p.heads, 0)(queries, *root(p.correlation)[0])[0].T

    @cached_property
    def normals(self) -> np.ndarray:
        """Normal points and those mirror images that are needed: on a branch where m or theta is
        zero half of them give the same again.
        """
        images = np.split(super().normals, 4)
        return np.concatenate([images[k] for k in IMAGES[self.p.start]])


def extended(p: Parameters, points: int) -> Extended:
    """The system of given parameters; ``p.start`` is the branch."""
    return Extended(
        alpha=p.complexity,
        lam=p.lam,
        gamma=np.full((1, 2, 1), p.sigma**2),
        pi=np.array([[[1.0], [-1.0]]]) / np.sqrt(1 - p.correlation),  # C^(-1/2) p
        weight=np.ones(1),
        target=partial(labels, p),
        teacher=np.eye(1 + p.value_rank),
        rank=p.rank + p.value_rank,
        points=points,
        p=p,
    )


@cache
def root(correlation: float) -> np.ndarray:
    """Square root of the correlation matrix of the tokens."""
    return np.array(square_root().subs(c, correlation), float)


def labels(p: Parameters, h: np.ndarray) -> np.ndarray:
    """Entries (1,2) and (2,1) of the target, shape ``(n, 2)``, or labels ``(n, 2, k)`` of low-rank
    values, for the teacher's fields ``(n, 2, 1 + k)`` of uncorrelated tokens.
    """
    tokens = root(p.correlation) @ h
    Y = target(p, np.moveaxis(tokens[..., 0], 0, -1)).T
    if not p.value_rank:
        return Y
    apart = tokens[:, 1, 1:] - tokens[:, 0, 1:]
    return tokens[..., 1:] + Y[..., None] * np.stack([apart, -apart], 1)


def output_channel(
    system: Extended, x: general.Order, values: Values
) -> tuple[dict[str, np.ndarray], dict[str, float], float, float]:
    """Conjugates in covariance form, those of the values, mean envelope, half the test error."""
    order = general.Order(*(value[:, 0] for value in x))
    of = general.fields(system, order, system.rho()[:, 0])
    Y = system.target(of.h)
    z, envelope = proximal(system.loss, of.w, Y, order.V, np.array(values), of.mean)
    means = general.conjugates(order, of, z)
    hats = {name: system.alpha * mean[:, None] for name, mean in means.items()}
    test, *_ = system.loss(of.w.reshape(len(Y), -1), Y, np.array(values._replace(V_W=0.0)))
    return hats, value_conjugates(system, z, Y, values), float(envelope.mean()), float(test.mean())


def value_conjugates(
    system: Extended, z: np.ndarray, Y: np.ndarray, values: Values
) -> dict[str, float]:
    """Conjugates of the order parameters of the values, by the envelope theorem; zero if values are
    not trained.
    """
    p, names = system.p, ("q_W_hat", "theta_W_hat", "V_W_hat")
    if not p.value:
        return dict.fromkeys(names, 0.0)
    of_values, conjugates, _ = compiled()
    slopes = of_values(*system.attention(z), *Y.T, p.sigma, p.correlation, *values)
    means = [np.mean(x) for x in slopes]
    return dict(zip(names, map(float, conjugates(p.alpha, p.sigma, *means)), strict=True))
