"""Superposed memories: exact moments, recall accuracy by two formulas, few outputs,
Zipf frequencies.
"""

from collections.abc import Iterator

import numpy as np
import scipy.optimize
import sympy as sp

from simulate.associative_memory.superposition import recall, zipf_error
from theory.associative_memory import symbols
from theory.associative_memory.superposition import (
    Parameters,
    equations,
    gaussian_recall,
    marginal_cdf,
    sphere_recall,
)
from verify.checks.check import Band, Check, at_most, identity, listed, near, sampled
from verify.checks.report import reporting

# Superposed memories

MOMENTS = (
    Parameters(d=16, N=12, draws=30_000),
    Parameters(d=16, N=40, M=4, draws=30_000),
)
RECALL = (
    Parameters(d=32, N=64, draws=200),
    Parameters(d=64, N=256, draws=100),
    Parameters(d=128, N=1024, draws=20),
)
# Largest systematic error of the two formulas for N >= 2 d; decreases with d. The
# formulas treat wrong scores as independent and replace the squared length of the
# recalled vector by its mean.
SPHERE = {32: 0.06, 64: 0.03, 128: 0.015}
GAUSS = {32: 0.10, 64: 0.07, 128: 0.04}


@listed
def moment_checks() -> Iterator[Check]:
    """Means and variances of one right and one wrong score over independent draws."""
    for p in MOMENTS:
        recalled = recall(p, seed=1)
        kind = "one output per key" if p.M is None else f"{p.M} outputs"
        for which in ("right", "wrong"):
            scores, of_mean = recalled[which], f"score_mean_{which}"
            mean = equations()[of_mean].number({"q_x": 1.0})
            yield sampled(
                f"mean {which} score, {kind}", of_mean, mean, scores, scale=1.0
            )
            name = f"{'interference' if p.M is None else 'classes'}_{which}"
            exact = equations()[name].number(p.values())
            yield sampled(f"variance of {name}", name, exact, (scores - mean) ** 2)


@listed
def accuracy_checks() -> Iterator[Check]:
    """Recall accuracy against both formulas; the error of the sphere formula decreases
    with d.
    """
    errors = []
    for p in RECALL:
        accuracy = recall(p)["accuracy"]
        for name, value, limit in (
            ("recall_sphere", sphere_recall(p.N, p.d), SPHERE[p.d]),
            ("recall_gaussian", gaussian_recall(p.N, p.d), GAUSS[p.d]),
        ):
            off = Band(
                -limit / value,
                limit / value,
                "wrong scores taken as independent; no order: N ln N grows as d^2, with"
                " logarithms",
            )
            yield sampled(
                f"{name.replace('_', ' by ')} formula, d = {p.d}, N = {p.N}",
                name,
                value,
                accuracy,
                band=off,
            )
        errors.append(abs(float(accuracy.mean()) - sphere_recall(p.N, p.d)))
    yield at_most(
        "growth of the sphere formula's error with d, recall near 3/4",
        "recall_sphere",
        0.0,
        np.max(np.diff(errors)),
        "asymptotically exact along N ln N = const d^2",
    )


@listed
def quadrature_checks() -> Iterator[Check]:
    """Both formulas by adaptive quadrature,
    against the numerical code used elsewhere.
    """
    p = RECALL[0]
    where = f"d = {p.d}, N = {p.N}"
    why = "adaptive quadrature, absolute error 1.5e-8 per integral"
    table = equations()
    sizes = {"N": p.N, "d": p.d}
    values = sizes | {
        "sigma_0": table["sigma_right"].evaluate(sizes),
        "sigma_1": table["sigma_wrong"].evaluate(sizes),
    }
    gaussian = table["recall_gaussian"].evaluate(values)
    number = gaussian_recall(p.N, p.d)
    name = "recall_gaussian"
    yield identity(f"{name}, {where}", name, gaussian, number, 1e-7, why)

    length = table["recalled_length"]
    nested = table["recall_sphere"].rhs.subs(length.lhs, length.rhs)
    arguments = sorted(nested.free_symbols, key=str)
    marginal = {"F_d": lambda x: marginal_cdf(x, p.d)}
    compiled = sp.lambdify(arguments, nested, [marginal, "scipy"])
    sphere = compiled(*(values[str(x)] for x in arguments))
    number = sphere_recall(p.N, p.d)
    name = "recall_sphere"
    yield identity(f"{name}, {where}", name, sphere, number, 1e-7, why)


@listed
def zipf_checks() -> Iterator[Check]:
    """Error when d/4 keys of Zipf frequencies are stored, and its exponent in d;
    storing all keys alike is worse.
    """
    a, sizes, keys, M = 1.5, (16, 32, 64), 4096, 4
    errors = np.array([zipf_error(d, a, keys, M, d // 4, 40) for d in sizes])
    x = np.log(sizes) - np.mean(np.log(sizes))
    slopes = (x / (x**2).sum()) @ np.log(errors)  # one exponent per draw
    b = {"b_zipf": a - 1}
    law = equations()["zipf_exponent"].number(b)

    def beyond(P: float) -> float:
        """Probability mass of keys beyond rank P; the sum is replaced by an integral
        that starts half a step earlier.
        """
        return equations()["zipf_lost"].number({**b, "P_stored": P + 0.5})

    lost = np.array([beyond(d // 4) - beyond(keys) for d in sizes]) / (1 - beyond(keys))
    exact = float(x @ np.log(lost) / (x**2).sum())
    few = "finite number of keys and small P bend the power law; no order: keys end"
    yield sampled(
        "exponent of the error under Zipf frequencies in d, d/4 keys stored",
        "zipf_exponent",
        law,
        slopes,
        band=Band(-0.15 / abs(law), 0.15 / abs(law), few),
    )
    weak = "stored keys are not all recalled at d = 16; no order: a count of few keys"
    yield sampled(
        "exponent of the error under Zipf frequencies against the sum over keys"
        " that are not stored",
        "zipf_lost",
        exact,
        slopes,
        band=Band(-0.1 / abs(exact), 0.1 / abs(exact), weak),
    )
    yield sampled(
        f"error under Zipf frequencies, d/4 keys stored, others guessed among {M},"
        " d = 64",
        "zipf_lost",
        (1 - 1 / M) * lost[-1],
        zipf_error(64, a, keys, M, 16, 160, seed=1),
    )
    equal_weights = zipf_error(64, a, keys, M, keys, 10).mean()
    yield at_most(
        "error with d/4 keys stored over that with equal weights on all",
        "zipf_lost",
        0.5,
        errors[-1].mean() / equal_weights,
        "d = 64",
    )


def capacity_checks() -> list[Check]:
    """The load at which half is recalled approaches the capacity law."""
    loads = [_half_load(d) for d in (1e3, 1e6, 1e9)]
    law = float(1 / equations()["capacity"].rhs.coeff(symbols.N * sp.log(symbols.N)))
    gaps = np.abs(np.array(loads) - law)
    toward = at_most(
        "ratio of successive gaps between half load and capacity law, d = 1e3,"
        " 1e6, 1e9",
        "capacity",
        1.0,
        np.max(gaps[1:] / gaps[:-1]),
        "ln ln N / ln N dies out slowly",
    )
    close = near(
        "load N ln N / d^2 of half recall, d = 1e9",
        "capacity",
        law,
        loads[-1],
        0.05 / law,
        "ln(4 pi ln N) / (4 ln N) of the law: the largest of N Gaussians lies below"
        " sqrt(2 ln N)",
    )
    return [toward, close]


def _half_load(d: float) -> float:
    """Load N ln N / d^2 at which the Gaussian formula gives an accuracy of 1/2."""
    log_n = scipy.optimize.brentq(
        lambda x: gaussian_recall(np.exp(x), d) - 0.5, np.log(d), 2 * np.log(d)
    )
    return float(np.exp(log_n) * log_n / d**2)


laws = reporting(
    moment_checks, accuracy_checks, quadrature_checks, zipf_checks, capacity_checks
)
