"""Averages of the extended layer: correlated tokens, trained values, two columns of Q or two heads.

Averages are sums over Sobol points (`numbers.general`), with the proximal point in the well of the
conditional mean field, the local selection that informed students follow. Fields are those of
uncorrelated tokens, ``C^(-1/2) z``; those of Q's columns come first, then those of low-rank values.
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
def _forms(columns: int, heads: bool, c: float) -> np.ndarray:
    """Matrices A of the quadratic forms ``z.A z`` whose logistic functions are the entries (1,2)
    and (2,1) of every head's attention; z stacks the fields of uncorrelated tokens, token by token.
    """
    z = sp.Matrix(2, columns, lambda i, j: sp.Symbol(f"z_{i}{j}", real=True))
    fields = layer.root().subs(layer.c, c) * z
    each = [fields[:, k] for k in range(columns)] if heads else [fields]
    forms = [[sp.hessian(u, list(z)) for u in layer.scores(head)] for head in each]
    return np.array([[np.array(form, float) / 2 for form in head] for head in forms])


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
        ``(n, 2)``, or labels ``(n, 2, k)`` of low-rank values, and the order parameters of the
        values.
        """
        return self._loss_of_labels if self.p.value_rank else self._loss_of_targets

    def _loss_of_targets(
        self, z: np.ndarray, Y: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        S, slope, bend = self._attention(z)
        value, *parts = compiled()[0](*S, *Y.T, self.p.sigma, self.p.correlation, *values)
        a, b, aa, ab, bb = (np.broadcast_to(x, len(z)) for x in parts)
        first, second = np.stack([a, b]), np.array([[aa, ab], [ab, bb]])
        hessian = np.einsum("kn,knij->nij", first, bend)
        hessian += np.einsum("kln,kni,lnj->nij", second, slope, slope, optimize=True)
        return value, np.einsum("kn,kni->ni", first, slope), hessian

    def _loss_of_labels(
        self, z: np.ndarray, Y: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Half of ``|Y - S v|^2``, with the fields v of the values among z."""
        r, k, n = self.p.rank, self.p.value_rank, len(z)
        fields = z.reshape(n, 2, r + k)
        S, of_Q, bend_Q = self._attention(fields[..., :r].reshape(n, -1))
        query, value = np.split(np.arange(2 * (r + k)).reshape(2, r + k), [r], 1)
        slope = np.zeros((2, n, 2 * (r + k)))
        slope[..., query.ravel()] = of_Q
        bend = np.zeros((2, *slope.shape[1:], slope.shape[2]))
        bend[:, :, query.reshape(-1, 1), query.ravel()] = bend_Q
        mix = _root(self.p.correlation)
        v = mix @ fields[..., r:]
        apart = v[:, 1] - v[:, 0]
        of_v = np.zeros((2, k, slope.shape[2]))  # derivative of the fields of tokens
        for token in range(2):
            of_v[:, range(k), value[token]] = mix[:, token, None]
        of_apart = of_v[1] - of_v[0]
        loss, first, hessian = np.zeros(n), np.zeros(z.shape), np.zeros((*z.shape, z.shape[1]))
        for token, sign in enumerate((1, -1)):
            gap = Y[:, token] - v[:, token] - sign * S[token][:, None] * apart
            out = of_v[token] + sign * (
                S[token][:, None, None] * of_apart + apart[..., None] * slope[token][:, None]
            )
            cross = np.einsum("nc,ni,cj->nij", gap, slope[token], of_apart)
            along = (gap * apart).sum(1)[:, None, None] * bend[token]
            loss += (gap**2).sum(1) / 2
            first -= np.einsum("nc,nci->ni", gap, out)
            hessian += np.einsum("nci,ncj->nij", out, out)
            hessian -= sign * (along + cross + cross.transpose(0, 2, 1))
        return loss, first, hessian

    def _attention(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Entries (1,2) and (2,1) of the attention, shape ``(2, n)``, with gradient and Hessian in
        the fields ``(n, 2 rank)`` of queries.
        """
        forms = _forms(self.p.rank, self.p.heads, self.p.correlation)
        along = 2 * np.einsum("hkij,nj->hkni", forms, z)  # gradients of the scores
        S = scipy.special.expit(np.einsum("hkni,ni->hkn", along, z) / 2)
        slope = S * (1 - S)
        bend = np.einsum("hkn,hkni,hknj->knij", slope * (1 - 2 * S), along, along, optimize=True)
        bend += np.einsum("hkn,hkij->knij", 2 * slope, forms)
        count = len(forms)
        return S.mean(0), np.einsum("hkn,hkni->kni", slope, along) / count, bend / count

    def attention(self, z: np.ndarray) -> np.ndarray:
        """Entries (1,2) and (2,1) of the attention, shape ``(2, n)``, for fields ``(n, 2, R)``."""
        return self._attention(z[..., : self.p.rank].reshape(len(z), -1))[0]

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
        teacher=np.eye(1 + p.value_rank),
        rank=p.rank + p.value_rank,
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
    noise_h = system.normals[..., system.rank :] @ np.linalg.cholesky(rest).T
    w, h = x.m[:, 0] + noise_w, noise_w @ of_q + noise_h
    tokens = _root(p.correlation) @ h
    Y = target(p, np.moveaxis(tokens[..., 0], 0, -1)).T
    if p.value_rank:
        apart = tokens[:, 1, 1:] - tokens[:, 0, 1:]
        Y = tokens[..., 1:] + Y[..., None] * np.stack([apart, -apart], 1)
    start = x.m[:, 0] + h / p.sigma**2 @ theta.T
    z, value = general.proximal(system, w, Y, x.V[:, 0], np.array(values), start)
    g = np.einsum("lab,nlb->nla", np.linalg.inv(x.V[:, 0]), z - w)
    hats = {
        "q": g[..., None] * g[..., None, :],
        "m": g,
        "theta": g[..., None] * (noise_h @ np.linalg.inv(rest))[..., None, :],
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


@cache
def _root(c: float) -> np.ndarray:
    """Square root of the correlation matrix of the tokens."""
    return np.array(layer.root().subs(layer.c, c), float)
