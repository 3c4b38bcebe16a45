"""Averages of the extended layer: correlated tokens, trained values, two columns of Q or two heads.

Averages are sums over Sobol points (`theory.positional_semantic.general`), with the proximal point
in the well of the conditional mean field, the local selection that informed students follow. Fields
are those of uncorrelated tokens, ``C^(-1/2) z``; those of Q's columns come first, then
those of low-rank values.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import sympy as sp

from theory import numeric
from theory.positional_semantic import definitions, general
from theory.positional_semantic.channel import target
from theory.positional_semantic.extensions import layer
from theory.positional_semantic.parameters import Parameters
from theory.positional_semantic.prox import Derivatives, chained, differentiated, proximal
from theory.positional_semantic.symbols import Y_12, Y_21, alpha, lam, sigma

# Points and mirror images: as drawn, all reflected, the teacher's noise reflected, both.
IMAGES = {"semantic": (0, 2), "positional": (0, 1), "mixed": (0, 1, 2, 3)}
SLOPES = layer.SLOPES


class Values(NamedTuple):
    """Order parameters of the value matrix: ``|W|^2/d``, ``tr W/d``, and its response. These are
    the ones of the identity.
    """

    q_W: float = 1.0
    theta_W: float = 1.0
    V_W: float = 0.0


@cache
def compiled() -> tuple[Callable[..., Any], ...]:
    """Derivatives of the loss of a sentence in the order parameters of the values; conjugates of
    these from mean derivatives; and back.
    """
    eq = layer.equations()
    arguments = (layer.S_12, layer.S_21, Y_12, Y_21, sigma, layer.c, *SLOPES)
    of_values = [sp.diff(values_loss(), x) for x in SLOPES]
    slopes = sp.lambdify(arguments, of_values, "numpy", cse=True)
    hats = layer.q_W_hat, layer.theta_W_hat, layer.V_W_hat
    out = numeric.function([eq[x.name].rhs for x in hats], (alpha, sigma, *SLOPES.values()))
    curvature = {layer.D_W: eq["D_W"].rhs}
    into = numeric.function([eq[x.name].rhs.subs(curvature) for x in SLOPES], (lam, sigma, *hats))
    return slopes, out, into


def values_loss() -> sp.Expr:
    """Loss of a sentence in the attention of student and target."""
    eq = layer.equations()
    products = {x: eq[x.name].rhs for x in (*layer.K.values(), *layer.M.values())}
    return eq["values_loss"].rhs.subs(products)


@cache
def fields_of_tokens(rank: int, heads: bool, columns: int) -> Callable[..., Derivatives]:
    """Entries (1,2) and (2,1) of the attention, and the fields of low-rank values, token by token:
    functions of the fields of uncorrelated tokens and of a row of the `root` of their correlations.
    """
    z = sp.Matrix(2, rank + columns, lambda i, j: sp.Symbol(f"z_{i}{j}", real=True))
    own, other = sp.symbols("own other", real=True)
    fields = sp.Matrix([[own, other], [other, own]]) * z
    queries = [fields[:, k] for k in range(rank)] if heads else [fields[:, :rank]]
    scores = zip(*map(layer.scores, queries), strict=True)
    S = [sp.Add(*map(definitions.logistic, of_heads)) / len(queries) for of_heads in scores]
    return differentiated([*S, *fields[:, rank:]], list(z), [own, other])


@cache
def loss_of_tokens(columns: int) -> Callable[..., Derivatives]:
    """Loss of a sentence in these functions, for entries of the target and all numbers of
    `values_loss`, or for labels of low-rank values.
    """
    S = [layer.S_12, layer.S_21]
    given = [sigma, layer.c, *SLOPES]
    if not columns:
        return differentiated([values_loss()], S, [Y_12, Y_21, *given])
    v, y = (
        sp.Matrix(2, columns, lambda i, j, x=x: sp.Symbol(f"{x}_{i}{j}", real=True)) for x in "vy"
    )
    one = layer.equations()["labels_loss"].rhs
    each = (
        dict(zip([*layer.v, *layer.y], [*v[:, k], *y[:, k]], strict=True)) for k in range(columns)
    )
    return differentiated([sp.Add(*map(one.subs, each))], [*S, *v], [*y, *given])


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
        p = self.p
        queries = z[..., : self.p.rank].reshape(len(z), -1)
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
def root(c: float) -> np.ndarray:
    """Square root of the correlation matrix of the tokens."""
    return np.array(layer.root().subs(layer.c, c), float)


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
    order = general.Order(*(value[:, 0] for value in vars(x).values()))
    of = general.fields(system, order, system.rho()[:, 0])
    Y = system.target(of.h)
    z, envelope = proximal(system.loss, of.w, Y, order.V, np.array(values), of.mean)
    hats = {
        name: system.alpha * mean[:, None]
        for name, mean in general.conjugates(order, of, z).items()
    }
    test, *_ = system.loss(of.w.reshape(len(Y), -1), Y, np.array(values._replace(V_W=0.0)))
    return hats, value_conjugates(system, z, Y, values), float(envelope.mean()), float(test.mean())


def value_conjugates(
    system: Extended, z: np.ndarray, Y: np.ndarray, values: Values
) -> dict[str, float]:
    """Conjugates of the order parameters of the values, by the envelope theorem; zero if values are
    not trained.
    """
    p = system.p
    names = "q_W_hat", "theta_W_hat", "V_W_hat"
    if not p.value:
        return dict.fromkeys(names, 0.0)
    of_values, conjugates, _ = compiled()
    slopes = of_values(*system.attention(z), *Y.T, p.sigma, p.correlation, *values)
    means = [float(np.mean(x)) for x in slopes]
    return dict(zip(names, map(float, conjugates(p.alpha, p.sigma, *means)), strict=True))
