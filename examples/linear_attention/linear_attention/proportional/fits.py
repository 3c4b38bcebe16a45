"""Linear attention fitted by least squares to sequences of a pool of tasks, at finite d; and fitted
to all sequences that the pool allows.
"""

from collections.abc import Callable

import numpy as np
import scipy.sparse.linalg

from linear_attention.proportional import Parameters
from theory.streams import keyed

CHUNK = 2**22  # numbers drawn at a time
EXACT = 1e-7  # relative residual of the least-squares solver


def moments(p: Parameters, R: np.ndarray) -> tuple[float, np.ndarray]:
    """Second moments of a label, and of beta, over prompts of tasks whose second moment is R."""
    label, N = p.rho + R.trace() / p.d, round(p.alpha * p.d)
    return label, label * p.d / N * np.eye(p.d) + (1 + 1 / N) * R


def errors(p: Parameters, weight: np.ndarray, pool: np.ndarray) -> tuple[float, float]:
    """Mean squared errors of ``x_q W beta`` over all prompts, at d and N: of tasks of the pool, and
    of new ones.
    """
    both = []
    for R in (pool.T @ pool / len(pool), np.eye(p.d)):
        label, beta = moments(p, R)
        both.append(float(label + ((weight @ beta) * weight - 2 * weight * R).sum() / p.d))
    return both[0], both[1]


def tasks(p: Parameters, rng: np.random.Generator) -> np.ndarray:
    """The pool, shape (k, d), of length sqrt(d): errors scatter less than with Gaussian tasks."""
    drawn = rng.normal(size=(round(p.kappa * p.d), p.d))
    return drawn * p.d**0.5 / np.linalg.norm(drawn, axis=1, keepdims=True)


def fit(p: Parameters, seed: int) -> tuple[float, float]:
    """Errors of the ridge regression (of least norm without a ridge) of ``y_q`` on
    ``x_q beta^T``, beta = (d/N) sum_n y_n x_n, on tau d^2 sequences.
    """
    d, rng = p.d, keyed(seed, 0)
    pool = tasks(p, rng)
    N = round(p.alpha * d)
    n = round(p.tau * d**2)
    tokens, contexts, labels = [], [], []
    for chunk in np.array_split(np.arange(n), max(1, n * N * d // CHUNK)):
        w = pool[rng.integers(len(pool), size=chunk.size)]
        x = rng.normal(size=(chunk.size, N + 1, d)) / d**0.5
        noise = p.rho**0.5 * rng.normal(size=(chunk.size, N + 1))
        y = np.einsum("snd,sd->sn", x, w) + noise
        tokens.append(x[:, -1])
        contexts.append(np.einsum("sn,snd->sd", y[:, :-1], x[:, :-1]) * d / N)
        labels.append(y[:, -1])
    X, H, y = (np.concatenate(parts) for parts in (tokens, contexts, labels))
    features = scipy.sparse.linalg.LinearOperator(
        (n, d**2),
        matvec=lambda weight: ((X @ weight.reshape(d, d)) * H).sum(1),
        rmatvec=lambda rest: (X.T @ (np.ravel(rest)[:, None] * H)).ravel(),
    )
    damp = (n / d * p.ridge) ** 0.5
    weights = scipy.sparse.linalg.lsqr(features, y, damp, atol=EXACT, btol=EXACT)[0]
    return errors(p, weights.reshape(d, d), pool)


def unlimited(p: Parameters, seed: int) -> tuple[float, float]:
    """Errors of the best attention on the pool: as many sequences as one likes."""
    pool = tasks(p, keyed(seed, 0))
    R = pool.T @ pool / len(pool)
    return errors(p, np.linalg.solve(moments(p, R)[1], R).T, pool)


def draws(
    p: Parameters, made: Callable[[Parameters, int], tuple[float, float]] = fit
) -> np.ndarray:
    """Both errors over independent draws, shape (draws, 2)."""
    return np.array([made(p, seed) for seed in range(p.draws)])
