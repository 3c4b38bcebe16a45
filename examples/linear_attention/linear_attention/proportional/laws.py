"""Linear attention fitted by least squares to sequences of a pool of tasks, at finite d, and to all
sequences that the pool allows; errors in the proportional limit against such fits at d = 20 to 80
and the best attention on a pool at d = 100 and 200, all extrapolated to infinite d.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse.linalg

from linear_attention.proportional import Parameters, equations, error_new
from theory.streams import keyed
from verify.check import Check, against, listed, near, sampled
from verify.report import Table, reporting

# Students

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
        both.append(label + ((weight @ beta) * weight - 2 * weight * R).sum() / p.d)
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
        y = np.einsum("snd,sd->sn", x, w) + p.rho**0.5 * rng.normal(size=(chunk.size, N + 1))
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


# Errors against them

SETTINGS = {  # d is the smaller of two sizes
    "many sequences": Parameters(d=20, draws=64),
    "few sequences": Parameters(tau=0.3, kappa=2.0, d=40, draws=64),
    "few tasks": Parameters(kappa=0.5, alpha=3.0, tau=3.0, d=20, draws=96),
    "a ridge at tau = 1": Parameters(tau=1.0, ridge=0.5, rho=0.1, d=20, draws=64),
}
POOLS = {
    "few tasks": Parameters(kappa=0.6, alpha=10.0, d=100, draws=16),
    "kappa = 1": Parameters(alpha=10.0, d=100, draws=16),
    "many tasks": Parameters(kappa=2.0, alpha=10.0, d=100, draws=16),
}


def at_infinity(p: Parameters, made: Callable[..., Any]) -> np.ndarray:
    """Both errors at infinite d, draw by draw, shape (2, draws): linear in 1/d, from d and 2 d."""
    return (2 * draws(p.replace(d=2 * p.d), made) - draws(p, made)).T


@listed
def fits(table: Table) -> Iterator[Check]:
    """Both errors of fits to sequences."""
    for label, p in SETTINGS.items():
        for kind, errors in zip(("trained", "new"), at_infinity(p, fit), strict=True):
            told = f"error on {kind} tasks, {label}"
            name = f"error_{kind}"
            known = p.values() | {"error_trained": table["error_trained"].evaluate(p.values())}
            yield against(table, sampled, told, name, known, errors)


@listed
def pools(table: Table) -> Iterator[Check]:
    """Error on new tasks of the best attention on a pool."""
    for label, p in POOLS.items():
        told = f"error without limit on sequences, {label}"
        errors = at_infinity(p, unlimited)[1]
        yield against(table, sampled, told, "new_unlimited", p.values(), errors)


@listed
def spectrum(table: Table) -> Iterator[Check]:
    """M and M' at z, of eigenvalues of one large pool."""
    p = Parameters(kappa=0.7, d=600)
    why = (0.01, "traces of one pool scatter by 1/d")
    pool = tasks(p, keyed(0, 0))
    r = np.linalg.eigvalsh(pool.T @ pool / len(pool))
    for z in (0.1, 1.0):
        known = {"kappa": p.kappa, "z": z}
        known["M_z"] = table["mp_transform"].number(known)
        for name, function in (("transform", 1 / (r + z)), ("slope", -1 / (r + z) ** 2)):
            label = f"mp {name} of a pool, z = {z:g}"
            yield against(table, near, label, f"mp_{name}", known, function.mean(), *why)


@listed
def limits(table: Table) -> Iterator[Check]:
    """Laws of the ends, against the errors: the peak at tau = 1 from both sides, the transition at
    kappa = 1.
    """
    p = Parameters(alpha=3.0, kappa=0.8)
    off = 1e-5
    label = "height of the peak from both sides"
    peaks = off * error_new(p, tau=[1 - off, 1 + off])
    why = (1e-3, "tau off 1 by 1e-5")
    yield against(table, near, label, "error_peak", p.values(), peaks, *why)
    for s in (-2.0, 0.0, 1.0):
        x = 1e-8
        q = Parameters(alpha=1e6, kappa=1 + s * x**0.5, rho=0.01)
        known = q.values() | {"x_star": x}
        M = table["mp_transform"].number(known | {"z": x})
        slope = table["mp_slope"].number(known | {"z": x, "M_z": M})
        whole = table["new_unlimited"].evaluate(known | {"M_x": M, "dM_x": slope})
        excess = (whole - q.rho) / x**0.5
        why = (1e-3, "sqrt(x) = 1e-4")
        label = f"excess at the transition, s = {s:g}"
        yield against(table, near, label, "transition", {"s": s}, excess, *why)


report = reporting(spectrum, limits, pools, fits, equations=equations)
