"""alpha_c and alpha_l from trained students, with confidence intervals, against both branches of
the proximal operator.

A seed fixes teacher and sentences. Both minima are found on the same sentences, so that common
fluctuations of the losses cancel. Everything is extrapolated to d = infinity seed by seed. alpha_c
is the zero of the mean gap of the training losses, and alpha_l the point at which the mean semantic
test error equals that of the linear layer, both by linear interpolation over alpha, with jackknife
intervals. (Averaging the crossings of single seeds would lose seeds that cross outside the grid.)
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.stats
import xarray as xr

from simulate import pool
from simulate.positional_semantic import task, train
from simulate.positional_semantic.gamp import gamp
from simulate.positional_semantic.linear import fit_linear
from simulate.positional_semantic.student import initial_weights
from theory import titles
from theory.parameters import ParameterError, described
from theory.positional_semantic import Parameters, solve
from theory.positional_semantic.numbers import general
from theory.positional_semantic.numbers.thresholds import thresholds
from theory.positional_semantic.scope import DESCENT
from theory.runtime import plotting
from verify.check import Band, Check, estimated, sampled, with_notes
from verify.positional_semantic import pictures
from verify.positional_semantic.limits import at_infinity, crossing, over_d
from verify.report import Report, Request

SEEDS, FEW = "128", "16"  # with and without --full
BLOCKS = 3  # factor on the number of seeds for alpha_c: a difference of losses scatters most
DEMO = Parameters(d=400, steps=300, n_test=4000)
FACTORS = {"alpha_c": (0.85, 1.0, 1.15), "alpha_l": (0.9, 1.0, 1.1)}  # of the prediction
SELECTION = "the paper's selection; informed descent follows the local one (see the claims ledger)"
# Deviation of the paper's branch of the proximal operator where students distinguish the two, at
# omega = 0.3; semantic branch at alpha = 0.57, positional at 1: (students - predicted) over the
# local prediction, 3.5 standard errors to either side, from 128 seeds (1000 to 1127) that no check
# uses (docs/models/selections.md).
NOT_REACHED = {
    "theta, semantic": (0.886, 1.004),
    "test_mse_half, semantic": (-0.123, -0.095),
    "train_loss, semantic": (0.0004, 0.049),
    "q, positional": (-0.053, -0.006),
    "m, positional": (0.005, 0.030),
}
SAME = 1e-3  # relative; two predictions this close are equal within the error of the quadrature
UNTIED, SOBOL = (
    3.2,
    2048,
)  # sample complexity and Sobol points; the theory scatters by 0.2% over scramblings
GAMP_SEEDS = 32  # message passing runs on the first few seeds, at half the sizes
SEE_V = 0.2  # V scatters by 8% between seeds at d = infinity; 5% would take a hundred seeds
# Required resolution of the exponent -1/2: distinguishes decreasing from constant scatter; 5% of it
# would take about twenty thousand seeds.
SLOPES = 1.0
DAMPING = {"semantic": 0.7, "positional": 0.85}  # with these GAMP converges
POINTS = (
    ("semantic", 2.0, ("q", "theta", "train_loss", "test_mse_half")),
    ("positional", 1.0, ("q", "m", "train_loss", "test_mse_half")),
)
WHERE_SELECTIONS_DIFFER = ("semantic", 0.57, ("q", "theta", "train_loss", "test_mse_half"))
SELECTIONS = ("global", "local")


def report(request: Request) -> Report:
    """All checks of the command."""
    seeds = request.seed_list(SEEDS if request.full else FEW, least=3)
    p = request.parameters(DEMO)
    if p.alpha is not None and request.preset is None:
        raise ParameterError("alpha: must be unset, the command sweeps it")
    DESCENT.require(p)
    p = p.replace(alpha=None)
    options = request.training
    predicted = {k: t for k in SELECTIONS if not (t := thresholds(p.replace(prox=k))).reasons}
    if not predicted:
        raise ParameterError(
            f"omega = {p.omega:g}, target = {p.target!r}: no crossing for either selection; "
            "see theory.onset"
        )
    # Two sizes far apart decide most per second: the middle one adds a hundredth to the precision.
    sizes = (p.d // 2, p.d, 2 * p.d) if request.full else (p.d // 4, p.d)
    checks, gaps = [], {}
    notes = [
        "",
        f"omega = {p.omega:g}, {len(seeds)} seeds, d = infinity: linear in 1/d through {', '.join(map(str, sizes))}",
    ]
    numbers: dict[str, Any] = {}
    more = [s + k * (max(seeds) + 1) for k in range(BLOCKS if request.full else 1) for s in seeds]
    for name, of in (("alpha_c", more), ("alpha_l", seeds)):
        centre = getattr(next(iter(predicted.values())), name)
        gaps[name] = over_d([_gap(name, p.replace(d=d), centre, of, options) for d in sizes], sizes)
        measured, error = crossing(at_infinity(gaps[name]))
        width = float(scipy.stats.t.ppf(0.975, len(of) - 1)) * error
        low, high = measured - width, measured + width
        notes.append(
            f"{name}: {measured:.4f}, 95% interval [{low:.4f}, {high:.4f}], {len(of)} seeds"
        )
        numbers[name] = {"measured": measured, "standard_error": error, "interval_95": [low, high]}
        for selection, predictions in predicted.items():
            value = getattr(predictions, name)
            numbers[name][selection] = value
            apart = "local" in predicted and not np.isclose(
                value, getattr(predicted["local"], name), rtol=SAME
            )
            checks.append(
                estimated(
                    f"{name} by the {selection} prox",
                    "training_loss" if name == "alpha_c" else "test_error",
                    value,
                    measured,
                    error,
                    len(of),
                    band=_apart(p, name) if apart else None,
                )
            )
        if not np.isfinite(error):
            notes.append(
                f"  not resolved: with single seeds left out it leaves [{gaps[name].alpha.values[0]:.3g}, "
                f"{gaps[name].alpha.values[-1]:.3g}] or the gap is not monotonic; more --seeds help"
            )
        inside = [k for k in predicted if low <= numbers[name][k] <= high]
        notes.append(
            f"  the interval contains the prediction of: {', '.join(inside) or 'no selection'}"
        )
    if not request.full:
        notes += request.left_out(
            f"{SEEDS} seeds, order parameters at both minima, untied keys, concentration, message "
            "passing, low rank and Adam (an hour of training)"
        )
        return Report(
            checks, notes, numbers={"thresholds": numbers}, draw=lambda: draw(p, gaps, numbers)
        )
    checks += [*order_parameters(p, sizes, seeds, options), *untied_keys(p, sizes, seeds, options)]
    scaling, remarks = concentration(p, sizes, seeds, options)
    passing, ends = message_passing(p, sizes, seeds, options)
    shown = [] if request.given else pictures.everything(**options)
    return Report(
        [*checks, *scaling, *passing, *shown],
        [*notes, *remarks, *ends],
        numbers={"thresholds": numbers},
        draw=lambda: draw(p, gaps, numbers),
    )


def _apart(p: Parameters, name: str) -> Band | None:
    """Band of the paper's branch of the proximal operator; measured at omega = 0.3 only."""
    measured = NOT_REACHED.get(name) if p.omega == DEMO.omega else None
    return None if measured is None else Band(*measured, SELECTION)


def _gap(
    name: str, p: Parameters, centre: float, seeds: list[int], options: dict[str, Any]
) -> xr.DataArray:
    """Quantity over (seed, alpha) that rises through zero at the threshold."""
    grid = [f * centre for f in FACTORS[name]]
    if name == "alpha_c":
        p = p.replace(n_test=1)  # the test error is not used
        losses = [
            train(p.replace(start=k), seeds, alpha=grid, **options).train_loss
            for k in ("positional", "semantic")
        ]
        return losses[0] - losses[1]
    semantic = train(p.replace(start="semantic"), seeds, alpha=grid, **options).test_mse_half
    linear = each(fit_linear, [(p.replace(alpha=a), s) for s in seeds for a in grid])
    return (
        semantic.copy(data=np.reshape([f["half_test"] for f in linear], semantic.shape)) - semantic
    )


def each(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Map a function over arguments on all cores."""
    jobs = [lambda tick, a=a: _ticked(function(*a), tick) for a in arguments]
    return pool.run(jobs, [1] * len(jobs), progress=False, what="fits", unit="fit")


def _ticked(result: Any, tick: Callable[[int], None]) -> Any:
    tick(1)
    return result


def order_parameters(
    p: Parameters, sizes: Sequence[int], seeds: list[int], options: dict[str, Any]
) -> list[Check]:
    """Overlaps and losses of both minima against both branches of the proximal operator."""
    checks = []
    for branch, alpha, names in (*POINTS, WHERE_SELECTIONS_DIFFER):
        points = {k: solve(p.replace(alpha=alpha, prox=k), branch) for k in SELECTIONS}
        if not points["local"].exists:
            continue
        runs = minima(p, branch, alpha, names, sizes, seeds, options)
        for x in names:
            predicted = {k: f.summary()[x] for k, f in points.items()}
            if np.isclose(predicted["global"], predicted["local"], rtol=SAME):
                predicted = {"either": predicted["local"]}
            checks += [
                sampled(
                    f"{x} of the {branch} branch by {k} prox, alpha = {alpha:g}",
                    x,
                    v,
                    runs.sel(name=x).values,
                    scale=abs(points["local"].summary()[x]),
                    band=_apart(p, f"{x}, {branch}") if k == "global" else None,
                )
                for k, v in predicted.items()
            ]
    return checks


def minima(
    p: Parameters,
    branch: str,
    alpha: float,
    names: Sequence[str],
    sizes: Sequence[int],
    seeds: Sequence[int],
    options: dict[str, Any],
) -> xr.DataArray:
    """Final values of students of one branch, at d = infinity, over (name, seed)."""
    runs = [
        train(p.replace(d=d, start=branch), seeds, alpha=alpha, **options)[[*names]].isel(alpha=0)
        for d in sizes
    ]
    return at_infinity(over_d(runs, sizes).to_dataarray("name"))


def overlaps(
    p: Parameters, branch: str, name: str, seeds: Sequence[int], options: dict[str, Any]
) -> xr.DataArray:
    """An overlap of students at d = infinity over (seed, alpha), from all ensembles of one branch
    that the command trains.
    """
    sizes = (p.d // 2, p.d, 2 * p.d)
    centre = thresholds(p.replace(prox="global")).alpha_c
    own = [alpha for kind, alpha, _ in (*POINTS, WHERE_SELECTIONS_DIFFER) if kind == branch]
    parts = [
        over_d(
            [train(q.replace(d=d, start=branch), seeds, alpha=at, **options)[name] for d in sizes],
            sizes,
        )
        for q, at in (
            (p.replace(n_test=1), [f * centre for f in FACTORS["alpha_c"]]),
            (p, sorted(own)),
        )
    ]
    return at_infinity(xr.concat(parts, "alpha")).sortby("alpha")


def untied_keys(
    p: Parameters, sizes: Sequence[int], seeds: list[int], options: dict[str, Any]
) -> list[Check]:
    """Result C.2: students with untied keys, semantic start, against the general state
    evolution.
    """
    p = p.replace(alpha=UNTIED, prox="local")
    near = solve(p, "semantic").state
    system = replace(general.headline(p, SOBOL), rank=2, untied=True)
    norm = near.q / p.sigma**2
    start = general.starting_order(
        system, norm, 0.9 * np.sqrt(norm / 2), np.zeros(2), near.V / p.sigma**2
    )
    solution = general.solve(system, start, damping=0.8, tolerance=1e-5)
    q, theta = solution.order.q.mean((0, 1)), solution.order.theta.mean((0, 1))[:, 0]
    # Q -> c Q, K -> K/c changes only the ridge, and only slightly. Sums over points determine c
    # badly, so that no compared quantity depends on it.
    predicted = {
        "q": np.sqrt(q[0, 0] * q[1, 1]),
        "cosine": theta[0] / np.sqrt(q[0, 0]) / p.sigma,
        "train_loss": solution.train_loss,
        "test_mse_half": solution.test_full / 2,
    }
    students = p.replace(start="semantic", tied=False)
    runs = over_d(
        [train(students.replace(d=d), seeds, alpha=UNTIED, **options).isel(alpha=0) for d in sizes],
        sizes,
    )
    limit = at_infinity(
        runs.assign(cosine=runs.theta / np.sqrt(runs.q) / p.sigma)[[*predicted]].to_dataarray(
            "name"
        )
    )
    return [
        sampled(
            f"{x} of untied queries, semantic at alpha = {UNTIED:g}",
            "Eqs. (122)-(137)",
            float(v),
            limit.sel(name=x).values,
        )
        for x, v in predicted.items()
    ]


@with_notes
def concentration(
    p: Parameters, sizes: Sequence[int], seeds: list[int], options: dict[str, Any]
) -> Iterator[Check | str]:
    """Scatter between seeds as a function of d: order parameters concentrate as d^(-1/2)."""
    spreads = []
    yield from ("", "standard deviation over seeds, semantic at alpha = 2, teacher as drawn:")
    for d in sizes:
        values = train(
            p.replace(d=d, start="semantic", teacher="gaussian"), seeds, alpha=2.0, **options
        ).theta.values
        spreads.append(values.std(ddof=1))
        yield f"  d = {d}: theta {values.mean():.4f} +- {spreads[-1]:.4f}"
    x = np.log(sizes) - np.log(sizes).mean()
    slope = float(x @ np.log(spreads) / (x @ x))
    # The logarithm of a standard deviation from k samples has standard error 1/sqrt(2 (k - 1)).
    error = float(1 / np.sqrt((x @ x) * 2 * (len(seeds) - 1)))
    yield estimated(
        "exponent of the scatter of theta in d",
        "Sec. 4: concentration",
        -0.5,
        slope,
        error,
        required=SLOPES,
        reason="|z| <= 4, from the scatter of a standard deviation",
    )


@with_notes
def message_passing(
    p: Parameters, sizes: Sequence[int], seeds: list[int], options: dict[str, Any]
) -> Iterator[Check | str]:
    """GAMP against state evolution, both branches.

    Control variates: message passing minus descent on the same sentences (a few seeds at half the
    sizes), plus descent on all seeds and sizes, so that common fluctuations cancel.
    """
    yield ""
    halves, few = [d // 2 for d in sizes], seeds[:GAMP_SEEDS]
    for branch, alpha, names in POINTS:
        q = p.replace(alpha=alpha, start=branch, prox="global" if branch == "semantic" else "local")
        point = solve(q, branch)
        if not point.exists:
            continue
        overlaps = {d: each(_overlaps, [(q.replace(d=d), seed) for seed in few]) for d in halves}
        shared = [x for x in names if x in overlaps[halves[0]][0]]
        same = minima(p, branch, alpha, shared, halves, few, options)
        every = minima(p, branch, alpha, shared, sizes, seeds, options)
        for x in shared:
            values = xr.DataArray(
                [[r[x] for r in overlaps[d]] for d in halves],
                dims=("d", "seed"),
                coords={"d": halves, "seed": few},
            )
            parts = at_infinity(values) - same.sel(name=x), every.sel(name=x)
            yield estimated(
                f"{x} of message passing, {branch} at alpha = {alpha:g}",
                "Algorithm 1",
                point.summary()[x],
                float(sum(part.mean() for part in parts)),
                float(np.sqrt(sum(part.var(ddof=1) / part.size for part in parts))),
                len(few),
            )
        variances = [[r["V"] for r in overlaps[d]] for d in halves]
        yield sampled(
            f"V of message passing, {branch} at alpha = {alpha:g}",
            "Eq. (43)",
            point.summary()["V"],
            at_infinity(xr.DataArray(variances, dims=("d", "seed"), coords={"d": halves})).values,
            required=SEE_V,
        )
        last = {
            k: np.median([r[k] for rows in overlaps.values() for r in rows])
            for k in ("step", "gradient")
        }
        yield (
            f"message passing, {branch} ({q.prox} prox), d = {', '.join(map(str, halves))}, "
            f"{len(few)} seeds: last step {last['step']:.1e}, gradient of the risk {last['gradient']:.1e} "
            "(medians, per sqrt(d))"
        )


def _overlaps(p: Parameters, seed: int) -> dict[str, float]:
    """Result of message passing on the sentences of a seed."""
    teacher, data = task.sample(p, seed)
    start = initial_weights(p, teacher, np.random.default_rng(seed))["Q"][:, 0]
    message = gamp(p, data, start, damping=DAMPING[p.start], iterations=400)
    Q = message.weights
    return {
        "V": p.sigma**2 * message.variance,
        "q": p.sigma**2 * (Q @ Q) / p.d,
        "m": abs(Q.mean()),
        "theta": p.sigma**2 * abs(Q @ teacher) / p.d,
        "step": message.steps[-1],
        "gradient": message.gradient,
    }


@plotting.panels(1, 2)
def draw(p: Parameters, gaps: dict[str, xr.DataArray], numbers: dict[str, Any], *axes: Any) -> Any:
    """Mean gap over alpha for every d and extrapolated, the interval of the crossing, and both
    predictions.
    """
    labels = {
        "alpha_c": r"training loss, positional $-$ semantic $[10^{-4}]$",
        "alpha_l": r"test error, linear $-$ semantic $[10^{-4}]$",
    }
    for axis, (name, gap) in zip(axes, gaps.items(), strict=True):
        tex = name.replace("_", "_{") + "}"
        for k, d in enumerate(gap.d.values):
            axis.plot(
                gap.alpha,
                1e4 * gap.sel(d=d).mean("seed"),
                color=str(0.8 - 0.2 * k),
                lw=1,
                label=f"students, $d = {d}$",
            )
        limit = 1e4 * at_infinity(gap)
        error = limit.std("seed", ddof=1) / np.sqrt(limit.sizes["seed"])
        axis.errorbar(
            gap.alpha,
            limit.mean("seed"),
            error,
            fmt="ko-",
            ms=3,
            capsize=2,
            label=r"students, $d \to \infty$, standard error",
        )
        low, high = numbers[name]["interval_95"]
        if np.isfinite(low):
            axis.axvspan(
                low, high, color="0.5", alpha=0.25, lw=0, label="95% interval of the crossing"
            )
        for k, selection in enumerate(s for s in SELECTIONS if s in numbers[name]):
            axis.axvline(
                numbers[name][selection],
                color=f"C{k}",
                ls=("-", "--")[k],
                label=rf"$\{tex}$, {selection} prox: {numbers[name][selection]:.3f}",
            )
        axis.axhline(0, color="0.4", lw=0.6)
        axis.set(xlabel=r"sample complexity $\alpha = n/d$", ylabel=labels[name])
        plotting.inside(axis)
    asked = [(p, next(iter(gaps.values())).sizes["seed"])]
    return titles.title(asked), described(asked)
