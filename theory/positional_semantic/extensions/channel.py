"""Fixed points of the extended layer: correlated tokens, trained values, two columns of Q.

Averages are sums over Sobol points (`numbers.general`), with the proximal point in the well of the
conditional mean field, the local selection that informed students follow. Fields are those of
uncorrelated tokens, ``C^(-1/2) z``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import sympy as sp

from theory import numeric
from theory.positional_semantic.extensions import layer
from theory.positional_semantic.numbers import general
from theory.positional_semantic.numbers.channel import target
from theory.positional_semantic.parameters import Parameters
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
    """Loss of a sentence with its derivatives in the student's attention, and in the order
    parameters of the values; conjugates of these from mean derivatives; and back.
    """
    eq = layer.equations()
    value = eq["values_loss"].rhs.subs(
        {x: eq[x.name].rhs for x in (*layer.K.values(), *layer.M.values())}
    )
    S = layer.S_12, layer.S_21
    first = [sp.diff(value, x) for x in S]
    second = [sp.diff(first[0], S[0]), sp.diff(first[0], S[1]), sp.diff(first[1], S[1])]
    arguments = (*S, Y_12, Y_21, sigma, layer.c, *SLOPES)
    of_loss = sp.lambdify(arguments, [value, *first, *second], "numpy", cse=True)
    of_values = sp.lambdify(arguments, [sp.diff(value, x) for x in SLOPES], "numpy", cse=True)
    hats = layer.q_W_hat, layer.theta_W_hat, layer.V_W_hat
    out = numeric.function([eq[x.name].rhs for x in hats], (alpha, sigma, *SLOPES.values()))
    curvature = {layer.D_W: eq["D_W"].rhs}
    into = numeric.function([eq[x.name].rhs.subs(curvature) for x in SLOPES], (lam, sigma, *hats))
    return of_loss, of_values, out, into


@cache
def _forms(columns: int, c: float) -> np.ndarray:
    """Matrices A of the quadratic forms ``z.A z`` whose logistic functions are the entries (1,2)
    and (2,1) of the attention; z stacks the fields of uncorrelated tokens, token by token.
    """
    z = sp.Matrix(2, columns, lambda i, j: sp.Symbol(f"z_{i}{j}", real=True))
    fields = layer.root().subs(layer.c, c) * z
    return np.array([np.array(sp.hessian(u, list(z)), float) / 2 for u in layer.scores(fields)])


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

    @cached_property
    def loss(self) -> Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Value, gradient and Hessian of the loss of sentences for fields ``(n, 2R)``, targets
        ``(n, 2)`` and the order parameters of the values.
        """
        forms = _forms(self.rank, self.p.correlation)

        def call(
            z: np.ndarray, Y: np.ndarray, values: np.ndarray
        ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            along = 2 * np.einsum("kij,nj->kni", forms, z)  # gradients of the scores
            S = scipy.special.expit(np.einsum("kni,ni->kn", along, z) / 2)
            slope = S * (1 - S)
            value, *parts = compiled()[0](*S, *Y.T, self.p.sigma, self.p.correlation, *values)
            a, b, aa, ab, bb = (np.broadcast_to(x, len(z)) for x in parts)
            first = np.stack([a, b]) * slope
            second = np.array([[aa, ab], [ab, bb]]) * slope * slope[:, None]
            second[0, 0] += first[0] * (1 - 2 * S[0])
            second[1, 1] += first[1] * (1 - 2 * S[1])
            hessian = np.einsum("kn,kij->nij", 2 * first, forms)
            hessian += np.einsum("kln,kni,lnj->nij", second, along, along, optimize=True)
            return value, np.einsum("kn,kni->ni", first, along), hessian

        return call

    def attention(self, z: np.ndarray) -> np.ndarray:
        """Entries (1,2) and (2,1) of the attention, shape ``(2, n)``, for fields ``(n, 2, R)``."""
        flat = z.reshape(len(z), -1)
        forms = _forms(self.rank, self.p.correlation)
        return scipy.special.expit(np.einsum("ni,kij,nj->kn", flat, forms, flat))

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
        target=general.dot_product_target(p.omega, p.A),
        rank=p.rank,
        points=points,
        p=p,
    )


def output_channel(
    system: Extended, x: general.Order, values: Values
) -> tuple[dict[str, np.ndarray], dict[str, float], float, float]:
    """Conjugates in covariance form, those of the values, mean envelope, half the test error."""
    p, q, theta = system.p, x.q[0, 0], x.theta[0, 0]  # the same of both tokens
    of_q = np.linalg.solve(q, theta)
    rest = system.rho()[0, 0] - theta.T @ of_q
    noise_w = system.normals[..., : system.rank] @ np.linalg.cholesky(q).T
    noise_h = system.normals[..., system.rank :] * np.sqrt(rest)
    w, h = x.m[:, 0] + noise_w, noise_w @ of_q + noise_h
    Y = target(p, _root(p.correlation) @ np.moveaxis(h[..., 0], 0, -1)).T
    start = x.m[:, 0] + h / p.sigma**2 @ theta.T
    z, value = general.proximal(system, w, Y, x.V[:, 0], np.array(values), start)
    g = np.einsum("lab,nlb->nla", np.linalg.inv(x.V[:, 0]), z - w)
    hats = {
        "q": g[..., None] * g[..., None, :],
        "m": g,
        "theta": g[..., None] * noise_h[..., None, :] / rest,
    }
    by_w = np.einsum("nla,nlb->lab", g, noise_w) @ np.linalg.inv(q) / len(g)
    hats = {k: system.alpha * v.mean(0)[:, None] for k, v in hats.items()}
    hats["V"] = hats["theta"] @ of_q.T - system.alpha * by_w[:, None]
    test = system.loss(w.reshape(len(w), -1), Y, np.array(values._replace(V_W=0.0)))[0].mean()
    return hats, value_conjugates(system, z, Y, values), float(value.mean()), float(test)


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
    slopes = compiled()[1](*system.attention(z), *Y.T, p.sigma, p.correlation, *values)
    means = [float(np.mean(x)) for x in slopes]
    return dict(zip(names, map(float, compiled()[2](p.alpha, p.sigma, *means)), strict=True))


def _root(c: float) -> np.ndarray:
    """Square root of the correlation matrix of the tokens."""
    return np.array(layer.root().subs(layer.c, c), float)
