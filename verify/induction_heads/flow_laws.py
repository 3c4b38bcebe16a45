"""Constants and exponents of the emergence times: numerical flow against the derived
expansions.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import scipy.stats
import xarray as xr

from simulate.induction_heads import train
from theory import induction_heads as ih
from theory.induction_heads import Parameters, drop, dynamics, emergence
from theory.induction_heads.symbols import N as N_symbol
from verify.checks.check import Check, identity, listed, near, vanishing, with_notes
from verify.compare.emergence import Times, first_crossing
from verify.rates import rates

# Settings of students on orthonormal data, and events in runs of any

QUERIES = {"last": "q = N", "uniform": "uniform q"}
LEVELS = {"T_gamma": "gamma", "T_beta": "beta", "T_alpha": "alpha"}
HALF = 0.5


def orthonormal(
    N: int,
    query: str,
    trained: str,
    rate: float,
    steps: int,
    batch: int = 1,
    right: int = 1,
) -> Parameters:
    """Parameters of students that take steps of ``rate`` in t on orthonormal data.

    In the nineteen directions, all that a batch could average over is the queried pair:
    each one in turn for a uniform query.
    """
    if trained == "nineteen":
        query, batch = ("last", 1) if query == "last" else ("each", N)
    eval_every = max(1, steps // 400)
    return Parameters(
        N=N,
        D=2 * N,
        trained=trained,
        data="orthonormal",
        query=query,
        eta=rate * (2 * N) ** 2,
        batch_size=batch,
        steps=steps,
        eval_every=eval_every,
        B=right,
    )


def dropped(runs: xr.Dataset) -> Times:
    """Time of loss 1/2 per seed."""
    return first_crossing(-runs.loss, -HALF)


def crossings(runs: xr.Dataset, level: float = HALF) -> dict[str, np.ndarray]:
    """Emergence times per seed; NaN if not reached within the run."""
    times = {
        name: first_crossing(runs[of], level).values for name, of in LEVELS.items()
    }
    return times | {"T_drop": dropped(runs).values}


def limit(sizes: Sequence[float], values: Sequence[Any]) -> Any:
    """Value at infinite size from those at two sizes: a term of order 1/size is
    removed.
    """
    (small, large), (first, second) = sizes, values
    return (large * second - small * first) / (large - small)


FIT = (256, 512, 1024, 2048)  # four sizes for the four terms a N^2 + b N + c + d/N
EXPONENT_SIZES = (64, 128, 256, 512, 1024, 2048)
DROP_SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)
LATE_SIZE = 10**6  # from here on powers of 1/N are below the error of the law


@cache
def times(N: int, query: str = "last") -> dict[str, float]:
    """Emergence times of the flow; cached per size and query."""
    return emergence.times(N) if query == "last" else dynamics.times(N)


def log_fit(
    sizes: np.ndarray | tuple[float, ...], values: np.ndarray | list[float]
) -> tuple[float, float, float]:
    """Exponent of a power law with its 95% interval
    (Student t on log-log residuals).
    """
    fit = scipy.stats.linregress(np.log(sizes), np.log(values))
    half = scipy.stats.t.ppf(0.975, len(values) - 2) * fit.stderr
    return float(fit.slope), float(fit.slope - half), float(fit.slope + half)


def coefficients(name: str) -> np.ndarray:
    """Derived coefficients of N^2, N and 1."""
    expr = ih.equations()[name].rhs.expand()
    return np.array([float(expr.coeff(N_symbol, k)) for k in (2, 1, 0)])


@listed
def fitted() -> Iterator[Check]:
    """Coefficients of T_beta and T_alpha from a fit of a N^2 + b N + c + d/N through
    four sizes.
    """
    sizes = np.array(FIT, float)
    for name, limit in (("T_beta", 0.5), ("T_alpha", 1.0)):
        betas = [0.5 if name == "T_beta" else emergence.beta_of(0.5, n) for n in FIT]
        # The leading law 2 N^2 I(limit) is subtracted, so that the O(1) term is not
        # lost to rounding.
        law = 2 * emergence.gaussian(limit)
        beyond = []
        for n, b in zip(FIT, betas, strict=True):
            gap = emergence.gaussian(b) - emergence.gaussian(limit)
            beyond.append(2 * n**2 * gap + n * emergence.Path(n).excess(b))
        terms = np.stack([sizes**2, sizes, np.ones(4), 1 / sizes], 1)
        solution = np.linalg.solve(terms, beyond)
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
    yield identity(
        "T_gamma at N = 64, 128",
        "T_gamma",
        ih.equations()["T_gamma"].evaluate({"N": np.array([64.0, 128.0])}),
        [times(n)["T_gamma"] for n in (64, 128)],
        1e-6,
        "next term O(1/N^2), here 1e-8 of N ln 2",
    )
    for n in DROP_SIZES:
        gap = (times(n)["T_drop"] - drop.drop_time(n)) / n
        why = (
            "next term o(N): of order 1/beta_c = 1/sqrt(2 ln N), 0.012 at most; see the"
            " next rows"
        )
        yield vanishing(
            f"T_drop at N = {n:.0e}, gap over N", "T_drop", abs(gap), 0.02, why
        )
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
        late * ih.equations()["loss_tail"].number({"t": late}),
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
        yield (
            f"  uniform q: {name} ~ N^{plain:.4f}; {name} ln N ~"
            f" N^{scaled:.4f} [{low:.4f}, {high:.4f}]"
        )
        yield near(
            f"exponent of {name} ln N in N, uniform q",
            "flow under a uniform query",
            2,
            scaled,
            0.05,
            "corrections of order 1/ln N on this grid",
        )


# A network with three trainable pseudo-parameters

SIZE = 4
THRESHOLD = 0.1  # threshold of alpha and beta in Fig. 5
RATES = (0.4, 0.2, 0.1, 0.05)


def constrained(N: int, rate: float, length: float, **more: Any) -> xr.Dataset:
    """Train the three-parameter network with a given step size in ``t`` on Haar-random
    orthonormal sequences, one per step.
    """
    p = Parameters.emergence(N=N, D=2 * N).replace(
        eta=rate * 2 * N, batch_size=1, eval_every=1, steps=int(np.ceil(length / rate))
    )
    return train(p, seeds=[0], dtype="float64", **more)


@with_notes
def network(**more: Any) -> Iterator[Check | str]:
    """The network against Euler integration, and its times against the flow as the step
    size decreases.
    """
    exact, path = times(SIZE), emergence.Path(SIZE)
    length = 1.4 * max(exact.values())
    trained = {r: constrained(SIZE, r, length, **more) for r in RATES}
    runs = trained[0.2].isel(seed=0)
    p = Parameters.emergence(N=SIZE, D=2 * SIZE)
    euler = ih.flow().descend(p, 0.2, runs.sizes["t"] - 1)
    three = ["alpha", "beta", "gamma"]
    yield identity(
        "constrained network, every step",
        "flow (B.5), Euler",
        euler[three].to_array(),
        runs[three].to_array(),
        1e-11,
        f"rounding of {euler.sizes['t']} steps, float64",
    )

    def reached(level: float) -> dict[str, list[float]]:
        """Times of each rate, by name."""
        of_rates = [crossings(trained[rate], level) for rate in RATES]
        return {name: [float(x[name][0]) for x in of_rates] for name in exact}

    halves, early = reached(HALF), reached(THRESHOLD)
    yield ""
    where = f"constrained network at N = {SIZE}"
    yield f"{where}, step in t -> times (flow in the last row):"
    for k, rate in enumerate(RATES):
        cells = [f"{name} {halves[name][k]:.5f}" for name in exact]
        yield f"  {rate:<6g}" + "  ".join(cells)
    yield "  flow  " + "  ".join(f"{name} {time:.5f}" for name, time in exact.items())
    limits = [(name, exact[name], halves[name]) for name in exact]
    for name, flow, measured in limits:
        distances = np.abs(np.array(measured) - flow)
        yield near(
            f"order of convergence of {name} in the rate",
            "flow (B.5)",
            1.0,
            np.polyfit(np.log(RATES), np.log(distances), 1)[0],
            0.15,
            "Euler is of order 1; second-order terms at rate 0.4",
        )
    at_threshold = f"at threshold {THRESHOLD:g}"
    of_beta, of_alpha = path.of_beta(THRESHOLD), path.of_alpha(THRESHOLD)
    limits += [
        (f"T_beta {at_threshold}", of_beta, early["T_beta"]),
        (f"T_alpha {at_threshold}", of_alpha, early["T_alpha"]),
    ]
    for name, flow, (*_, large, small) in limits:
        yield identity(
            f"{name} extrapolated to rate 0",
            "flow (B.5)",
            flow,
            2 * small - large,
            2e-3,
            "second-order term, and linear interpolation between steps",
        )
