"""Constants and exponents of the emergence times: numerical flow against the derived expansions."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import scipy.stats

from theory import induction_heads as ih
from theory.induction_heads import drop
from theory.induction_heads.numbers import emergence, uniform_query
from theory.induction_heads.symbols import N as N_symbol
from verify.check import Check, identity, listed, near, vanishing, with_notes
from verify.rates import rates

FIT = (256, 512, 1024, 2048)  # four sizes for the four terms a N^2 + b N + c + d/N
EXPONENT_SIZES = (64, 128, 256, 512, 1024, 2048)
DROP_SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)
LATE_SIZE = 10**6  # from here on powers of 1/N are below the error of the law


@cache
def times(N: int, query: str = "last") -> dict[str, float]:
    """Emergence times of the flow; cached per size and query."""
    return emergence.times(N) if query == "last" else uniform_query.times(N)


def log_fit(
    sizes: np.ndarray | tuple[float, ...], values: np.ndarray | list[float]
) -> tuple[float, float, float]:
    """Exponent of a power law with its 95% interval (Student t on log-log residuals)."""
    fit = scipy.stats.linregress(np.log(sizes), np.log(values))
    half = float(scipy.stats.t.ppf(0.975, len(values) - 2) * fit.stderr)
    return float(fit.slope), float(fit.slope - half), float(fit.slope + half)


def coefficients(name: str) -> np.ndarray:
    """Derived coefficients of N^2, N and 1."""
    expr = ih.equations()[name].rhs.expand()
    return np.array([float(expr.coeff(N_symbol, k)) for k in (2, 1, 0)])


@listed
def fitted() -> Iterator[Check]:
    """Coefficients of T_beta and T_alpha from a fit of a N^2 + b N + c + d/N through four sizes."""
    sizes = np.array(FIT, float)
    for name, limit in (("T_beta", 0.5), ("T_alpha", 1.0)):
        betas = [0.5 if name == "T_beta" else emergence.beta_of(0.5, n) for n in FIT]
        # The leading law 2 N^2 I(limit) is subtracted, so that the O(1) term is not lost to
        # rounding.
        law = 2 * float(emergence.gaussian(limit))
        beyond = [
            2 * n**2 * float(emergence.gaussian(b) - emergence.gaussian(limit))
            + n * emergence.Path(n).excess(b)
            for n, b in zip(FIT, betas, strict=True)
        ]
        solution = np.linalg.solve(np.stack([sizes**2, sizes, np.ones(4), 1 / sizes], 1), beyond)
        solution[0] += law
        for k, term in enumerate(("N^2", "N", "1")):
            yield identity(
                f"fitted coefficient of {term} in {name}",
                name,
                coefficients(name)[k],
                solution[k],
                1e-4,
                "terms of order 1/N^2, left out of the fit, at N = 256",
            )


@listed
def constants() -> Iterator[Check]:
    """Fitted constants of T_gamma, T_beta, T_alpha, T_drop against the derived ones."""
    yield from fitted()
    gamma = [times(n)["T_gamma"] for n in (64, 128)]
    layer = ih.equations()["T_gamma"].evaluate({"N": np.array([64.0, 128.0])})
    yield identity(
        "T_gamma at N = 64, 128",
        "T_gamma",
        layer,
        gamma,
        1e-6,
        "next term O(1/N^2), here 1e-8 of N ln 2",
    )
    for n in DROP_SIZES:
        gap = (times(n)["T_drop"] - drop.predicted(n)) / n
        why = "next term o(N): of order 1/beta_c = 1/sqrt(2 ln N), 0.012 at most; see the next rows"
        yield vanishing(f"T_drop at N = {n:.0e}, gap over N", "T_drop", abs(gap), 0.02, why)
        if n >= LATE_SIZE:
            yield near(
                f"T_drop at N = {n:.0e}, gap over N by saturation",
                "T_drop",
                drop.left_over(n),
                gap,
                0.02,
                "terms of order ln^2 N / N: 0.7% at N = 1e6",
            )
    late = 1e6
    curve = ih.flow().solve(ih.Parameters.emergence(N=4, D=None), at=[late], t=late)
    yield identity(
        "L t at t = 1e6, N = 4",
        "loss_tail",
        late * float(ih.equations()["loss_tail"].evaluate({"t": late})),
        late * float(curve.loss[0]),
        0.01,
        "corrections ln t / t^(1/2)",
    )


@with_notes
def exponents() -> Iterator[Check | str]:
    """Exponents of Theorem 2 from the flow, and the factor ln N for a uniform query."""
    sizes = f"N = {EXPONENT_SIZES[0]}..{EXPONENT_SIZES[-1]}"
    yield ""
    yield f"exponents of the flow over {sizes}, 95% interval of a fit for uniform q:"
    for name, power in {"T_gamma": 1, "T_beta": 2, "T_alpha": 2, "T_drop": 2}.items():
        speeds = [1 / times(n)[name] for n in EXPONENT_SIZES]
        found = rates(0.0, speeds, 1 / np.array(EXPONENT_SIZES), power)
        yield f"  {name} ~ N^{found.exponent:.4f} +- {found.error:.4f}"
        yield found.check(f"exponent of {name} in N, flow", f"Theorem 2, {name}")
    uniform = {n: times(n, "uniform") for n in EXPONENT_SIZES}
    for name in ("T_beta", "T_alpha", "T_drop"):
        plain, *_ = log_fit(EXPONENT_SIZES, [uniform[n][name] for n in EXPONENT_SIZES])
        scaled, low, high = log_fit(
            EXPONENT_SIZES, [uniform[n][name] * np.log(n) for n in EXPONENT_SIZES]
        )
        yield f"  uniform q: {name} ~ N^{plain:.4f}; {name} ln N ~ N^{scaled:.4f} [{low:.4f}, {high:.4f}]"
        yield near(
            f"exponent of {name} ln N in N, uniform q",
            "flow under a uniform query",
            2,
            scaled,
            0.05,
            "corrections of order 1/ln N on this grid",
        )
