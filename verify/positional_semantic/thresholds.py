"""alpha_c and alpha_l from trained students, with confidence intervals, against both
branches of the proximal operator.

A seed fixes teacher and sentences. Both minima are found on the same sentences, so that
common fluctuations of the losses cancel. Everything is extrapolated to d = infinity
seed by seed. alpha_c is the zero of the mean gap of the training losses, and alpha_l
the point at which the mean semantic test error equals that of the linear layer, both by
linear interpolation over alpha, with jackknife intervals. (Averaging the crossings of
single seeds would lose seeds that cross outside the grid.)
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.stats
import xarray as xr

from simulate.positional_semantic import train
from simulate.positional_semantic.linear import fit_linear
from theory.call.refusal import ParameterError
from theory.equations import titles
from theory.equations.titles import described
from theory.positional_semantic import Parameters
from theory.positional_semantic.branches import thresholds
from theory.positional_semantic.model.parameters import DESCENT
from theory.runtime import plotting
from verify.checks.check import estimated
from verify.checks.report import Report, Request
from verify.positional_semantic import extensions, minima
from verify.positional_semantic.minima import (
    DEMO,
    POINTS,
    SELECTIONS,
    WHERE_SELECTIONS_DIFFER,
    at_infinity,
    crossing,
    over_d,
    trained,
)

SEEDS, FEW = "128", "16"  # with and without --full
BLOCKS = (
    3  # factor on the number of seeds for alpha_c: a difference of losses scatters most
)
FACTORS = {
    "alpha_c": (0.85, 1.0, 1.15),
    "alpha_l": (0.9, 1.0, 1.1),
}  # of the prediction


def report(request: Request) -> Report:
    """All checks of the command."""
    seeds = request.seed_list(SEEDS if request.full else FEW, least=3)
    p = request.parameters(DEMO)
    if p.alpha is not None and request.preset is None:
        raise ParameterError("alpha: must be unset, the command sweeps it")
    DESCENT.require(p)
    p = p.replace(alpha=None)
    options = request.training
    both = {k: thresholds(p.replace(prox=k)) for k in SELECTIONS}
    predicted = {k: t for k, t in both.items() if not t.reasons}
    if not predicted:
        raise ParameterError(
            f"omega = {p.omega:g}, target = {p.target!r}: no crossing for either"
            " selection; see theory.onset"
        )
    # Two sizes far apart decide most per second: the middle one adds a hundredth to the
    # precision.
    sizes = (p.d // 2, p.d, 2 * p.d) if request.full else (p.d // 4, p.d)
    checks, gaps = [], {}
    notes = [
        "",
        (
            f"omega = {p.omega:g}, {len(seeds)} seeds, d = infinity: linear in 1/d"
            f" through {', '.join(map(str, sizes))}"
        ),
    ]
    numbers: dict[str, Any] = {}
    more: list[int] = []
    for block in range(BLOCKS if request.full else 1):
        more += [seed + block * (max(seeds) + 1) for seed in seeds]
    for name, of in (("alpha_c", more), ("alpha_l", seeds)):
        centre = getattr(next(iter(predicted.values())), name)
        by_size = [_gap(name, p.replace(d=d), centre, of, options) for d in sizes]
        gaps[name] = over_d(by_size, sizes)
        measured, error = crossing(at_infinity(gaps[name]))
        width = scipy.stats.t.ppf(0.975, len(of) - 1) * error
        low, high = measured - width, measured + width
        notes.append(
            f"{name}: {measured:.4f}, 95% interval [{low:.4f}, {high:.4f}],"
            f" {len(of)} seeds"
        )
        numbers[name] = {
            "measured": measured,
            "standard_error": error,
            "interval_95": [low, high],
        }
        for selection, predictions in predicted.items():
            numbers[name][selection] = value = getattr(predictions, name)
            what = f"{name} by the {selection} prox"
            equation = "training_loss" if name == "alpha_c" else "test_error"
            checks.append(estimated(what, equation, value, measured, error, len(of)))
        if not np.isfinite(error):
            first, last = gaps[name].alpha.values[[0, -1]]
            notes.append(
                f"  not resolved: with single seeds left out it leaves [{first:.3g},"
                f" {last:.3g}] or the gap is not monotonic; more --seeds help"
            )
        inside = [k for k in predicted if low <= numbers[name][k] <= high]
        selections = ", ".join(inside) or "no selection"
        notes.append(f"  the interval contains the prediction of: {selections}")
    if request.full:
        trained_as = p, sizes, seeds, options
        checks += minima.order_parameters(*trained_as) + minima.untied_keys(*trained_as)
        for measured_by in (minima.concentration, minima.message_passing):
            more_checks, remarks = measured_by(*trained_as)
            checks += more_checks
            notes += remarks
        if not request.given:
            checks += extensions.everything(**options)
    else:
        notes += request.left_out(
            f"{SEEDS} seeds, order parameters at both minima, untied keys,"
            " concentration, message passing, low rank and Adam (an hour of training)"
        )
    return Report(
        checks,
        notes,
        numbers={"thresholds": numbers},
        draw=lambda: draw(p, gaps, numbers),
    )


def _gap(
    name: str, p: Parameters, centre: float, seeds: list[int], options: dict[str, Any]
) -> xr.DataArray:
    """Quantity over (seed, alpha) that rises through zero at the threshold."""
    grid = [f * centre for f in FACTORS[name]]
    if name == "alpha_c":
        p = p.replace(n_test=1)  # the test error is not used
        positional, semantic = (
            train(p.replace(start=k), seeds, alpha=grid, **options).train_loss
            for k in ("positional", "semantic")
        )
        return positional - semantic
    runs = train(p.replace(start="semantic"), seeds, alpha=grid, **options)
    semantic = runs.test_mse_half
    places = itertools.product(seeds, grid)
    fits = minima.each(fit_linear, [(p.replace(alpha=a), s) for s, a in places])
    errors = np.reshape([fit["half_test"] for fit in fits], semantic.shape)
    return semantic.copy(data=errors) - semantic


def overlaps(
    p: Parameters, branch: str, name: str, seeds: Sequence[int], options: dict[str, Any]
) -> xr.DataArray:
    """An overlap of students at d = infinity over (seed, alpha), from all ensembles of
    one branch that the command trains.
    """
    sizes = (p.d // 2, p.d, 2 * p.d)
    centre = thresholds(p.replace(prox="global")).alpha_c
    points = (*POINTS, WHERE_SELECTIONS_DIFFER)
    alphas = sorted(alpha for kind, alpha, _ in points if kind == branch)
    around = [f * centre for f in FACTORS["alpha_c"]]
    p = p.replace(start=branch)
    parts = [
        trained(p.replace(n_test=1), sizes, seeds, around, **options)[name],
        trained(p, sizes, seeds, alphas, **options)[name],
    ]
    return at_infinity(xr.concat(parts, "alpha")).sortby("alpha")


@plotting.panels(1, 2)
def draw(
    p: Parameters, gaps: dict[str, xr.DataArray], numbers: dict[str, Any], *axes: Any
) -> Any:
    """Mean gap over alpha for every d and extrapolated, the interval of the crossing,
    and both predictions.
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
        plotting.means(
            axis,
            gap.alpha,
            (1e4 * at_infinity(gap)).transpose("alpha", "seed"),
            fmt="ko-",
            ms=3,
            capsize=2,
            label=r"students, $d \to \infty$, standard error",
        )
        low, high = numbers[name]["interval_95"]
        if np.isfinite(low):
            axis.axvspan(
                low,
                high,
                color="0.5",
                alpha=0.25,
                lw=0,
                label="95% interval of the crossing",
            )
        for k, selection in enumerate(s for s in SELECTIONS if s in numbers[name]):
            value = numbers[name][selection]
            label = rf"$\{tex}$, {selection} prox: {value:.3f}"
            axis.axvline(value, color=f"C{k}", ls=("-", "--")[k], label=label)
        axis.axhline(0, color="0.4", lw=0.6)
        axis.set(xlabel=r"sample complexity $\alpha = n/d$", ylabel=labels[name])
    students = [(p, next(iter(gaps.values())).sizes["seed"])]
    return titles.title(students), described(students)
