"""Results 4.2 and C.2 in full generality: any number of tokens, ranks, covariances,
untied keys, Gaussian mixtures.

The state evolution is the stationarity condition of the general free entropy
(`free_entropy.general`). Output averages are quasi-Monte Carlo sums over scrambled
Sobol points and their mirror images. The minimiser is taken in the well that contains
the conditional mean of the fields (local branch). For the layer of the figures use the
quadrature of `fixed_point`, which is far more accurate.

Shapes: L tokens, C clusters per token, R student columns (queries and keys stacked if
untied), t teacher columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
import scipy
import sympy as sp

from theory.call import scope
from theory.call.arguments import Positive, checked
from theory.call.refusal import ANYTHING, Allowed, ParameterError, shown
from theory.positional_semantic.model import definitions
from theory.positional_semantic.model.parameters import MINIMUM, Parameters
from theory.positional_semantic.prox import Derivatives, differentiated, proximal

Size = Annotated[float, Allowed(above=0, high=1e100)]  # its square does not overflow
DAMPING = 0.7
ITERATIONS = 400
TOLERANCE = 1e-7


Hats = dict[str, np.ndarray]  # conjugates by name


@checked
def dot_product_target(
    omega: Annotated[float, Allowed(low=0, high=1)], A: Annotated[Any, ANYTHING]
) -> Callable[[np.ndarray], np.ndarray]:
    """Target (16) for fields ``(n, L, t)``."""
    A = np.asarray(A, float)
    return lambda h: (1 - omega) * scipy.special.softmax(h @ h.mT, -1) + omega * A


def attention(fields: sp.Matrix, untied: bool) -> sp.Matrix:
    """Attention of the student: ``softmax(h h^T)``, or ``softmax(h_Q h_K^T)`` with the
    columns split into two halves.
    """
    if not untied:
        return definitions.tied_attention(fields)
    half = fields.shape[1] // 2
    return definitions.softmax(fields[:, :half] * fields[:, half:].T)


@cache
def _compiled_loss(L: int, R: int, untied: bool) -> Callable[..., Derivatives]:
    """`System.loss` for given fields, entries of Y and diagonal of rho."""
    z = sp.Matrix(L, R, lambda i, j: sp.Symbol(f"z_{i}{j}", real=True))
    Y = sp.Matrix(L, L, lambda i, j: sp.Symbol(f"Y_{i}{j}", real=True))
    rho = sp.symbols(f"rho:{L}", positive=True)
    gap = Y - attention(z, untied)
    loss = (gap * sp.diag(*rho) * gap.T).trace() / 2
    return differentiated([loss], list(z), [*Y, *rho])


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
        shape = self.gamma.shape
        agree = shape == self.pi.shape and len(self.weight) == len(self.gamma)
        if len(shape) != 3 or not agree:
            raise ParameterError(
                f"gamma {shape}, pi {self.pi.shape}: must both be (atoms, tokens,"
                " clusters)"
            )
        if self.untied and self.rank % 2:
            raise ParameterError(
                f"rank = {self.rank}: must be even for queries and keys"
            )
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
        """Standard normal points and their mirror images, shape ``(4 points, L, R +
        t)``.
        """
        t = len(self.teacher)
        sobol = scipy.stats.qmc.Sobol(self.tokens * (self.rank + t), seed=self.seed)
        x = scipy.stats.norm.ppf(sobol.random(self.points).clip(1e-12, 1 - 1e-12))
        x = x.reshape(-1, self.tokens, self.rank + t)
        other = np.concatenate([x[..., : self.rank], -x[..., self.rank :]], 2)
        # With all four images, m = 0 and theta = 0 are preserved exactly.
        return np.concatenate([x, -x, other, -other])

    def loss(self, z: np.ndarray, Y: np.ndarray, rho: np.ndarray) -> Derivatives:
        """Value ``(n,)``, gradient ``(n, LR)`` and Hessian ``(n, LR, LR)`` of
        ``|(Y - S(z)) rho^(1/2)|^2/2`` for fields ``(n, LR)``.
        """
        compiled = _compiled_loss(self.tokens, self.rank, self.untied)
        value, first, second = compiled(z, *Y.reshape(len(z), -1).T, *rho)
        return value[:, 0], first[:, 0], second[:, 0]

    def spectra(self) -> np.ndarray:
        """``tr Sigma/d`` per token and cluster, shape ``(L, C)``."""
        return np.einsum("k,klc->lc", self.weight, self.gamma)

    def rho(self) -> np.ndarray:
        """Teacher covariance ``Q*^T Sigma Q*/d``, shape ``(L, C, t, t)``."""
        return self.spectra()[..., None, None] * self.teacher


class Order(NamedTuple):
    """Order parameters (126): ``q``, ``V`` of shape (L, C, R, R), ``m`` (L, C, R),
    ``theta`` (L, C, R, t).
    """

    q: np.ndarray
    m: np.ndarray
    V: np.ndarray
    theta: np.ndarray

    def mixed(self, other: Order, share: float) -> Order:
        """Convex combination: ``share`` of self, the rest of the other."""
        pairs = zip(self, other, strict=True)
        return Order(*(share * a + (1 - share) * b for a, b in pairs))

    def distance(self, other: Order) -> float:
        """Largest change of q, m and theta."""
        changes = (self.q - other.q, self.m - other.m, self.theta - other.theta)
        return max(float(np.abs(change).max()) for change in changes)


@dataclass(frozen=True)
class Solution:
    """Fixed point of the general state evolution with its conjugates, losses and
    residual.
    """

    order: Order
    hats: Hats
    norm: float
    overlap: np.ndarray
    train_loss: float
    test_full: float
    residual: float


class Fields(NamedTuple):
    """Fields of sentences, and the independent noise that they are made of.

    Attributes
    ----------
    w, noise_w : ndarray, shape (n, L, R)
        Student, and its part without the mean.
    h, noise_h : ndarray, shape (n, L, t)
        Teacher, and its part that is independent of the student.
    mean : ndarray, shape (n, L, R)
        Mean of the student's fields given the teacher's.
    given_w : ndarray, shape (L, R, t)
        Slope of the teacher's mean in the student's fields, ``q^(-1) theta``.
    rest : ndarray, shape (L, t, t)
        Covariance of ``noise_h``.
    """

    w: np.ndarray
    noise_w: np.ndarray
    h: np.ndarray
    noise_h: np.ndarray
    mean: np.ndarray
    given_w: np.ndarray
    rest: np.ndarray


def fields(system: System, x: Order, rho: np.ndarray, shift: Any = 0) -> Fields:
    """Fields of sentences at the system's points; order parameters and covariance
    ``rho`` of the teacher's fields by token, ``shift`` the mean of the latter.
    """
    given_w = np.linalg.solve(x.q, x.theta)
    unexplained = rho - np.einsum("lat,las->lts", x.theta, given_w)
    R = system.rank
    root = np.linalg.cholesky(x.q)
    noise_w = np.einsum("lab,nlb->nla", root, system.normals[..., :R])
    root = np.linalg.cholesky(unexplained)
    noise_h = np.einsum("lts,nls->nlt", root, system.normals[..., R:])
    apart = np.einsum("lat,nla->nlt", given_w, noise_w) + noise_h
    mean = x.m + np.einsum("lat,lts,nls->nla", x.theta, np.linalg.inv(rho), apart)
    w = x.m + noise_w
    h = shift + apart
    return Fields(w, noise_w, h, noise_h, mean, given_w, unexplained)


def conjugates(x: Order, of: Fields, z: np.ndarray) -> Hats:
    """Conjugates (7), (128) by alpha and token, in covariance form, at the proximal
    points z.
    """
    g = np.einsum("lab,nlb->nla", np.linalg.inv(x.V), z - of.w)
    n = len(g)
    theta = np.einsum("nla,nlt,lts->las", g, of.noise_h, np.linalg.inv(of.rest)) / n
    by_q = np.einsum("nla,nlb,lbc->lac", g, of.noise_w, np.linalg.inv(x.q)) / n
    return {
        "q": np.einsum("nla,nlb->lab", g, g) / n,
        "m": g.mean(0),
        "theta": theta,
        "V": np.einsum("lat,lbt->lab", theta, of.given_w) - by_q,
    }


def output_channel(
    system: System, x: Order
) -> tuple[dict[str, np.ndarray], float, float]:
    """Conjugates (7), (128), mean envelope, and full test error."""
    L, C = x.q.shape[:2]
    labels = system.labels
    if labels is None:
        labels = np.ones((1,) * L)
    shift = system.teacher_mean
    if shift is None:
        shift = np.zeros((L, C, 1))
    hats = {name: np.zeros(value.shape) for name, value in x._asdict().items()}
    envelope = test = 0.0
    for clusters in itertools.product(range(C), repeat=L):
        probability = labels[clusters]
        if not probability:
            continue
        each = np.arange(L), np.array(clusters)  # of every token its cluster
        order = Order(*(value[each] for value in x))
        of = fields(system, order, system.rho()[each], shift[each])
        Y = system.target(of.h)
        trace = system.spectra()[each]
        z, value = proximal(system.loss, of.w, Y, order.V, trace, of.mean)
        for name, mean in conjugates(order, of, z).items():
            hats[name][each] += system.alpha * probability * mean
        loss, *_ = system.loss(of.w.reshape(len(Y), -1), Y, trace)
        envelope += probability * float(value.mean())
        test += probability * 2 * float(loss.mean())
    return hats, envelope, test


def input_channel(
    system: System, hats: dict[str, np.ndarray]
) -> tuple[Order, float, np.ndarray]:
    """Order parameters (7), (127) for the ridge; norm ``|W|^2/d`` and plain overlap
    ``W^T Q*/d``.
    """
    weight = system.weight
    gamma = system.gamma
    teacher = system.teacher
    D = system.lam * np.eye(system.rank) + np.einsum("klc,lcab->kab", gamma, hats["V"])
    D = (D + D.transpose(0, 2, 1)) / 2
    if np.linalg.eigvalsh(D).min() <= 0:
        raise ParameterError("general state evolution: left its domain, D <= 0")
    inverse = np.linalg.inv(D)
    fixed = np.einsum("klc,lca->ka", system.pi, hats["m"])
    linear = np.einsum("klc,lcat->kat", gamma, hats["theta"])
    second = np.einsum("klc,lcab->kab", gamma, hats["q"])
    second = second + fixed[:, :, None] * fixed[:, None]
    second += linear @ teacher @ linear.transpose(0, 2, 1)
    spread = inverse @ second @ inverse
    along = inverse @ linear @ teacher
    q = np.einsum("k,klc,kab->lcab", weight, gamma, spread)
    V = np.einsum("k,klc,kab->lcab", weight, gamma, inverse)
    theta = np.einsum("k,klc,kab->lcab", weight, gamma, along)
    m = np.einsum("k,klc,kab,kb->lca", weight, system.pi, inverse, fixed)
    norm = float(weight @ np.trace(spread, axis1=1, axis2=2))
    return Order(q, m, V, theta), norm, np.einsum("k,kat->at", weight, along)


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
        For a start of another shape, or if the iteration leaves its domain or does not
        converge.
    """
    L, C = system.gamma.shape[1:]
    R = system.rank
    t = len(system.teacher)
    sizes = {
        "q": (L, C, R, R),
        "m": (L, C, R),
        "V": (L, C, R, R),
        "theta": (L, C, R, t),
    }
    for name, size in sizes.items():
        shape = np.shape(getattr(start, name))
        if shape != size:
            raise ParameterError(f"start.{name}: has shape {shape}, must have {size}")
    x = start
    residual = np.inf
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            for _ in range(ITERATIONS):
                hats, envelope, test = output_channel(system, x)
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
        f"general state evolution with damping = {damping:g}, tolerance ="
        f" {tolerance:g}: {why}"
    )


@scope.guard(MINIMUM)
@checked
def headline(
    p: Parameters, points: Annotated[int, Allowed(low=2, high=2**22)] = 4096
) -> System:
    """The layer of the figures as a general system: two tokens, one cluster, p_1 =
    -p_2.
    """
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
    """Starting values from ``|column|^2/d``, overlap of every column with every teacher
    column, ``m`` per token, V/gamma.
    """
    L = system.tokens
    C = system.clusters
    R = system.rank
    t = len(system.teacher)
    scale = system.spectra()[..., None, None]
    if t * R * overlap**2 >= norm:
        raise ParameterError(
            f"overlap = {overlap:g}: must be below sqrt(norm / (R t)) ="
            f" {np.sqrt(norm / (R * t)):g}"
        )
    if m.shape != (L,):
        raise ParameterError(f"m = {shown(m)}: must be {L} numbers, one per token")
    m = np.broadcast_to(m.astype(float)[:, None, None], (L, C, R)).copy()
    q = norm * scale * np.eye(R)
    V = spread * scale * np.eye(R)
    return Order(q, m, V, overlap * scale * np.ones((R, t)))
