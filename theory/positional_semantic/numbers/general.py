"""Results 4.2 and C.2 in full generality: any number of tokens, ranks, covariances, untied keys,
Gaussian mixtures.

The state evolution is the stationarity condition of the general free entropy
(`free_entropy.general`). Output averages are quasi-Monte Carlo sums over scrambled Sobol points and
their mirror images. The minimiser is taken in the well that contains the conditional mean of the
fields (local branch). For the layer of the figures use the quadrature of `fixed_point`, which is
far more accurate.

Shapes: L tokens, C clusters per token, R student columns (queries and keys stacked if untied), t
teacher columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import scipy
import sympy as sp

from theory.arguments import Positive, checked
from theory.parameters import ANYTHING, Allowed, ParameterError, shown
from theory.positional_semantic import definitions
from theory.positional_semantic.parameters import Parameters

Size = Annotated[float, Allowed(above=0, high=1e100)]  # its square does not overflow
DAMPING, ITERATIONS, TOLERANCE = 0.7, 400, 1e-7
NEWTON, FARTHEST, GRADIENT = 100, 0.7, 1e-11


def softmax(scores: np.ndarray) -> np.ndarray:
    """Row-wise softmax of ``(..., L, L)``."""
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@checked
def dot_product_target(
    omega: Annotated[float, Allowed(low=0, high=1)], A: Annotated[Any, ANYTHING]
) -> Callable[[np.ndarray], np.ndarray]:
    """Target (16) for fields ``(n, L, t)``."""
    A = np.asarray(A, float)
    return lambda h: (1 - omega) * softmax(h @ h.transpose(0, 2, 1)) + omega * A


def attention(fields: sp.Matrix, untied: bool) -> sp.Matrix:
    """Attention of the student: ``softmax(h h^T)``, or ``softmax(h_Q h_K^T)`` with the columns
    split into two halves.
    """
    if not untied:
        return definitions.tied_attention(fields)
    half = fields.shape[1] // 2
    return definitions.softmax(fields[:, :half] * fields[:, half:].T)


@dataclass(frozen=True)
class System:
    """Specification of a system for the general state evolution.

    Attributes
    ----------
    alpha, lam : float
        Sample complexity and ridge strength.
    gamma : ndarray, shape (k, L, C)
        Eigenvalues of the covariances per atom of the law (5), (123).
    pi : ndarray, shape (k, L, C)
        Projections ``sqrt(d) (mu + p).e_i`` of cluster mean plus positional encoding.
    weight : ndarray, shape (k,)
        Probability of every atom.
    target : callable
        ``target(h)`` of shape (n, L, L) for teacher fields (n, L, t).
    teacher : ndarray, shape (t, t)
        Second moment of a row of Q*, independent of gamma and pi.
    rank : int
        Student columns R.
    untied : bool
        Whether the columns are queries and keys.
    labels : ndarray, shape (C,) * L
        Joint probability of the clusters of a sentence.
    teacher_mean : ndarray, shape (L, C, t)
        ``Q*^T mu/sqrt(d)``.
    points : int
        Sobol points, a power of two; mirror images come on top.
    seed : int
        Seed of the scrambling.
    """

    alpha: float
    lam: float
    gamma: np.ndarray
    pi: np.ndarray
    weight: np.ndarray
    target: Callable[[np.ndarray], np.ndarray]
    teacher: np.ndarray = field(default_factory=lambda: np.eye(1))
    rank: int = 1
    untied: bool = False
    labels: np.ndarray | None = None
    teacher_mean: np.ndarray | None = None
    points: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that the shapes are consistent."""
        if (
            self.gamma.shape != self.pi.shape
            or self.gamma.ndim != 3
            or len(self.weight) != len(self.gamma)
        ):
            raise ParameterError(
                f"gamma {self.gamma.shape}, pi {self.pi.shape}: must both be (atoms, tokens, clusters)"
            )
        if self.untied and self.rank % 2:
            raise ParameterError(f"rank = {self.rank}: must be even for queries and keys")
        if self.points & (self.points - 1) or self.points < 2:
            raise ParameterError(f"points = {self.points}: must be a power of two")
        if self.labels is None and self.gamma.shape[2] > 1:
            raise ParameterError("labels: must be given with more than one cluster")

    @property
    def tokens(self) -> int:
        """Tokens per sentence L."""
        return self.gamma.shape[1]

    @property
    def clusters(self) -> int:
        """Clusters per token C."""
        return self.gamma.shape[2]

    @cached_property
    def normals(self) -> np.ndarray:
        """Standard normal points and their mirror images, shape ``(4 points, L, R + t)``."""
        t = len(self.teacher)
        sobol = scipy.stats.qmc.Sobol(self.tokens * (self.rank + t), seed=self.seed)
        x = scipy.stats.norm.ppf(sobol.random(self.points).clip(1e-12, 1 - 1e-12))
        x = x.reshape(-1, self.tokens, self.rank + t)
        other = np.concatenate([x[..., : self.rank], -x[..., self.rank :]], 2)
        # With all four images, m = 0 and theta = 0 are preserved exactly.
        return np.concatenate([x, -x, other, -other])

    @cached_property
    def loss(self) -> Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Value ``(n,)``, gradient ``(n, LR)`` and Hessian ``(n, LR, LR)`` of
        ``|(Y - S(z)) rho^(1/2)|^2/2``.
        """
        L, R = self.tokens, self.rank
        z = sp.Matrix(L, R, lambda i, j: sp.Symbol(f"z_{i}{j}", real=True))
        Y = sp.Matrix(L, L, lambda i, j: sp.Symbol(f"Y_{i}{j}", real=True))
        trace = sp.symbols(f"rho:{L}", positive=True)
        gap = Y - attention(z, self.untied)
        value = sum(gap[i, j] ** 2 * trace[j] for i in range(L) for j in range(L)) / 2
        first = [sp.diff(value, x) for x in z]
        second = [sp.diff(first[i], z[j]) for i in range(L * R) for j in range(i, L * R)]
        compiled = sp.lambdify([*z, *Y, *trace], [value, *first, *second], "numpy", cse=True)
        upper = np.triu_indices(L * R)

        def call(
            fields: np.ndarray, targets: np.ndarray, rho: np.ndarray
        ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            out = compiled(
                *fields.reshape(len(fields), -1).T, *targets.reshape(len(targets), -1).T, *rho
            )
            parts = np.stack([np.broadcast_to(v, len(fields)) for v in out], 1)
            hessian = np.empty((len(fields), L * R, L * R))
            hessian[:, upper[0], upper[1]] = hessian[:, upper[1], upper[0]] = parts[:, 1 + L * R :]
            return parts[:, 0], parts[:, 1 : 1 + L * R], hessian

        return call

    def spectra(self) -> np.ndarray:
        """``tr Sigma/d`` per token and cluster, shape ``(L, C)``."""
        return np.einsum("k,klc->lc", self.weight, self.gamma)

    def rho(self) -> np.ndarray:
        """Teacher covariance ``Q*^T Sigma Q*/d``, shape ``(L, C, t, t)``."""
        return self.spectra()[..., None, None] * self.teacher


@dataclass(frozen=True)
class Order:
    """Order parameters (126): ``q``, ``V`` of shape (L, C, R, R), ``m`` (L, C, R), ``theta`` (L, C,
    R, t).
    """

    q: np.ndarray
    m: np.ndarray
    V: np.ndarray
    theta: np.ndarray

    def mixed(self, other: Order, share: float) -> Order:
        """Convex combination: ``share`` of self, the rest of the other."""
        return Order(
            *(
                share * a + (1 - share) * b
                for a, b in zip(vars(self).values(), vars(other).values(), strict=True)
            )
        )

    def distance(self, other: Order) -> float:
        """Largest change of q, m and theta."""
        return max(
            float(np.abs(getattr(self, k) - getattr(other, k)).max()) for k in ("q", "m", "theta")
        )


@dataclass(frozen=True)
class Solution:
    """Fixed point of the general state evolution with its conjugates, losses and residual."""

    order: Order
    hats: dict[str, np.ndarray]
    norm: float
    overlap: np.ndarray
    train_loss: float
    test_full: float
    residual: float


def proximal(
    system: System, w: np.ndarray, Y: np.ndarray, V: np.ndarray, rho: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Minimiser and Moreau envelope for fields ``w`` (n, L, R), by descent from ``start``; ``V``
    has shape (L, R, R).
    """
    n, L, R = w.shape
    inverse = np.zeros((L * R, L * R))
    for k in range(L):
        inverse[k * R : (k + 1) * R, k * R : (k + 1) * R] = np.linalg.inv(V[k])
    centre, z = w.reshape(n, -1), start.reshape(n, -1).copy()

    def objective(at: np.ndarray, rows: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        value, first, second = system.loss(at, Y[rows], rho)
        away = at - centre[rows]
        return (
            value + np.einsum("ni,ij,nj->n", away, inverse, away) / 2,
            first + away @ inverse,
            second + inverse,
        )

    f, g, H = objective(z, slice(None))
    rows = np.arange(n)
    shrink = np.ones(n)
    for _ in range(NEWTON):
        rows = rows[(np.abs(g[rows]).sum(1) > GRADIENT) & (shrink[rows] > 1e-6)]
        if not rows.size:
            return z.reshape(n, L, R), f
        lowest = np.linalg.eigvalsh(H[rows])[:, 0]
        shift = np.maximum(0, 1e-4 - lowest) + np.maximum(0, -lowest)
        step = -np.linalg.solve(H[rows] + shift[:, None, None] * np.eye(L * R), g[rows][..., None])[
            ..., 0
        ]
        step *= (
            shrink[rows]
            * np.minimum(1, FARTHEST / np.maximum(np.linalg.norm(step, axis=1), 1e-300))
        )[:, None]
        there = z[rows] + step
        f_new, g_new, H_new = objective(there, rows)
        better = f_new <= f[rows] + 1e-15
        good = rows[better]
        z[good], f[good], g[good], H[good] = (
            there[better],
            f_new[better],
            g_new[better],
            H_new[better],
        )
        shrink[rows] = np.where(better, np.minimum(1, 4 * shrink[rows]), shrink[rows] / 4)
    raise ArithmeticError(f"{rows.size} proximal points did not settle in {NEWTON} Newton steps")


def output_channel(system: System, x: Order) -> tuple[dict[str, np.ndarray], float, float, float]:
    """Conjugates (7), (128) in covariance form, mean envelope, mean loss at the minimiser, and full
    test error.
    """
    L, C, R, t = *x.q.shape[:2], system.rank, len(system.teacher)
    labels = np.ones((1,) * L) if system.labels is None else system.labels
    rho_all, spectra = system.rho(), system.spectra()
    shift = np.zeros((L, C, t)) if system.teacher_mean is None else system.teacher_mean
    hats = {
        "q": np.zeros((L, C, R, R)),
        "m": np.zeros((L, C, R)),
        "V": np.zeros((L, C, R, R)),
        "theta": np.zeros((L, C, R, t)),
    }
    envelope = test = data = 0.0
    for choice in itertools.product(range(C), repeat=L):
        probability = float(labels[choice])
        if not probability:
            continue
        pick = [(k, c) for k, c in enumerate(choice)]
        q, m, V, theta = (np.stack([a[i] for i in pick]) for a in (x.q, x.m, x.V, x.theta))
        rho, trace = np.stack([rho_all[i] for i in pick]), np.array([spectra[i] for i in pick])
        inverse_q = np.linalg.inv(q)
        rest = rho - np.einsum("lat,lab,lbs->lts", theta, inverse_q, theta)
        noise_w = np.einsum("lab,nlb->nla", np.linalg.cholesky(q), system.normals[..., :R])
        w = m + noise_w
        mean_h = np.einsum("lat,lab,nlb->nlt", theta, inverse_q, noise_w)
        noise_h = np.einsum("lts,nls->nlt", np.linalg.cholesky(rest), system.normals[..., R:])
        h = np.stack([shift[i] for i in pick]) + mean_h + noise_h
        Y = system.target(h)
        start = m + np.einsum("lat,lts,nls->nla", theta, np.linalg.inv(rho), mean_h + noise_h)
        z, value = proximal(system, w, Y, V, trace, start)
        g = np.einsum("lab,nlb->nla", np.linalg.inv(V), z - w)
        by_theta = np.einsum("nla,nlt,lts->lats", g, noise_h, np.linalg.inv(rest)).sum(2) / len(g)
        by_q = np.einsum("nla,nlb,lbc->lac", g, noise_w, inverse_q) / len(g)
        weight = system.alpha * probability
        for row, (k, c) in enumerate(pick):
            hats["q"][k, c] += weight * np.einsum("na,nb->ab", g[:, row], g[:, row]) / len(g)
            hats["m"][k, c] += weight * g[:, row].mean(0)
            hats["theta"][k, c] += weight * by_theta[row]
            hats["V"][k, c] += weight * (by_theta[row] @ theta[row].T @ inverse_q[row] - by_q[row])
        envelope += probability * float(value.mean())
        data += probability * float(system.loss(z.reshape(len(z), -1), Y, trace)[0].mean())
        test += probability * 2 * float(system.loss(w.reshape(len(w), -1), Y, trace)[0].mean())
    return hats, envelope, data, test


def input_channel(system: System, hats: dict[str, np.ndarray]) -> tuple[Order, float, np.ndarray]:
    """Order parameters (7), (127) for the ridge; norm ``|W|^2/d`` and plain overlap
    ``W^T Q*/d``.
    """
    R, t = system.rank, len(system.teacher)
    shape = system.gamma.shape[1:]
    q, m, V, theta = (
        np.zeros((*shape, R, R)),
        np.zeros((*shape, R)),
        np.zeros((*shape, R, R)),
        np.zeros((*shape, R, t)),
    )
    norm, overlap = 0.0, np.zeros((R, t))
    for share, gamma, pi in zip(system.weight, system.gamma, system.pi, strict=True):
        D = system.lam * np.eye(R) + np.einsum("lc,lcab->ab", gamma, hats["V"])
        D = (D + D.T) / 2
        if np.linalg.eigvalsh(D)[0] <= 0:
            raise ParameterError("state evolution left its domain: D <= 0")
        inverse = np.linalg.inv(D)
        fixed = np.einsum("lc,lca->a", pi, hats["m"])
        linear = np.einsum("lc,lcat->at", gamma, hats["theta"])
        second = (
            np.einsum("lc,lcab->ab", gamma, hats["q"])
            + np.outer(fixed, fixed)
            + linear @ system.teacher @ linear.T
        )
        spread = inverse @ second @ inverse
        along = inverse @ linear @ system.teacher
        q += share * gamma[..., None, None] * spread
        V += share * gamma[..., None, None] * inverse
        m += share * pi[..., None] * (inverse @ fixed)
        theta += share * gamma[..., None, None] * along
        norm += share * float(np.trace(spread))
        overlap += share * along
    return Order(q, m, V, theta), norm, overlap


@checked
def solve(
    system: System,
    start: Order,
    *,
    damping: Annotated[float, Allowed(low=0, below=1)] = DAMPING,
    tolerance: Positive = TOLERANCE,
) -> Solution:
    """Damped iteration from ``start``.

    Raises
    ------
    ParameterError
        If the iteration leaves its domain or does not converge.
    """
    x = start
    residual = np.inf
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            for _ in range(ITERATIONS):
                hats, envelope, _, test = output_channel(system, x)
                new, norm, overlap = input_channel(system, hats)
                residual = new.distance(x)
                if residual < tolerance:
                    trace = float(np.einsum("lcab,lcba->", hats["q"], x.V))
                    loss = system.alpha * envelope - trace / 2 + system.lam / 2 * norm
                    return Solution(x, hats, norm, overlap, loss, test, residual)
                x = x.mixed(new, damping)
    except (FloatingPointError, np.linalg.LinAlgError) as error:
        why = f"left double precision ({error})"
    else:
        why = f"did not settle in {ITERATIONS} steps (residual {residual:.1e})"
    raise ParameterError(
        f"general state evolution with damping = {damping:g}, tolerance = {tolerance:g}: {why}"
    )


@checked
def headline(p: Parameters, points: Annotated[int, Allowed(low=2, high=2**22)] = 4096) -> System:
    """The layer of the figures as a general system: two tokens, one cluster, p_1 = -p_2."""
    return System(
        alpha=p.complexity,
        lam=p.lam,
        gamma=np.full((1, 2, 1), p.sigma**2),
        pi=np.array([[[1.0], [-1.0]]]),
        weight=np.ones(1),
        target=dot_product_target(p.omega, p.A),
        points=points,
    )


@checked
def starting_order(
    system: System,
    norm: Size,
    overlap: Annotated[float, Allowed(low=-1e100, high=1e100)],
    m: Annotated[np.ndarray, ANYTHING],
    spread: Size,
) -> Order:
    """Starting values from ``|column|^2/d``, overlap of every column with every teacher column,
    ``m`` per token, V/gamma.
    """
    L, C, R, t = system.tokens, system.clusters, system.rank, len(system.teacher)
    scale = system.spectra()[..., None, None]
    if t * R * overlap**2 >= norm:
        raise ParameterError(
            f"overlap = {overlap:g}: must be below sqrt(norm / (R t)) = {np.sqrt(norm / (R * t)):g}"
        )
    if m.shape != (L,):
        raise ParameterError(f"m = {shown(m)}: must be {L} numbers, one per token")
    m = np.broadcast_to(m.astype(float)[:, None, None], (L, C, R)).copy()
    return Order(
        norm * scale * np.eye(R), m, spread * scale * np.eye(R), overlap * scale * np.ones((R, t))
    )
