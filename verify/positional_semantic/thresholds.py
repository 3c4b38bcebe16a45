"""alpha_c and alpha_l from trained students, with confidence intervals, against both selections of the minimiser.

A seed fixes teacher and sentences; both minima are found on the same sentences, so that what the losses have in
common cancels. alpha_c is where the mean gap of the training losses changes sign and alpha_l where the mean semantic test
error meets that of the linear layer, both by linear interpolation over alpha; intervals are by the jackknife. (A mean
of crossings seed by seed would lose the seeds that cross outside the grid.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
import xarray as xr

from simulate.positional_semantic import task, train
from simulate.positional_semantic.gamp import gamp
from simulate.positional_semantic.linear import fit_linear
from simulate.positional_semantic.student import initial_weights
from theory import cli, plotting
from theory.parameters import ParameterError
from theory.positional_semantic import Parameters, solve
from theory.positional_semantic.thresholds import thresholds
from verify.check import Z_MAX, Z_REASON, Check, normal_z, sampled
from verify.emergence import first_crossing

SEEDS = "8"
DEMO = Parameters(d=400, steps=300, n_test=4000)
FACTORS = {"alpha_c": (0.8, 0.9, 1.0, 1.1, 1.25), "alpha_l": (0.85, 1.0, 1.15)}  # of the predicted threshold
FINITE = "d is finite: corrections of order 1/d are of the size of the standard error"
NOT_REACHED = "the paper's selection; informed descent follows the local one (see the claims ledger)"
SAME = 1e-3  # relative; two selections this close are one prediction, at the accuracy of the quadrature
MORE = 8  # ensembles that are extrapolated in d have this many times the seeds
SIZES = (100, 200, 400)
POINTS = (("semantic", 2.0, ("q", "theta", "train_loss", "test_mse_half")),
          ("positional", 1.0, ("q", "m", "train_loss", "test_mse_half")))  # fmt: skip
WHERE_SELECTIONS_DIFFER = ("semantic", 0.57, ("q", "theta", "train_loss", "test_mse_half"))
SELECTIONS = ("global", "local")


@dataclass(frozen=True)
class Result:
    """Checks, remarks, numbers for machines, and what the figure shows."""

    checks: list[Check]
    notes: list[str]
    numbers: dict[str, Any]
    gaps: dict[str, xr.DataArray]


def verify(args: Any) -> Result:
    """All checks of the command."""
    seeds = cli.seeds(args.seeds, SEEDS)
    if len(seeds) < 3:
        raise ParameterError(f"--seeds {args.seeds}: a confidence interval needs at least 3 seeds")
    p = cli.parameters(args, DEMO).solvable()
    if p.alpha is not None:
        raise ParameterError("alpha: must be unset, the command sweeps it")
    options = {"device": args.device, "progress": not args.quiet}
    predicted = {k: t for k in SELECTIONS if not (t := thresholds(p.replace(prox=k))).reasons}
    if not predicted:
        raise ParameterError(f"omega = {p.omega:g}, target = {p.target!r}: no crossing for either selection; "
                             "see theory.onset")  # fmt: skip
    checks, notes, gaps = [], ["", f"d = {p.d}, omega = {p.omega:g}, {len(seeds)} seeds"], {}
    numbers: dict[str, Any] = {}
    for name in ("alpha_c", "alpha_l"):
        gaps[name] = _gap(name, p, getattr(next(iter(predicted.values())), name), seeds, options)
        measured, error = crossing(gaps[name])
        width = float(scipy.stats.t.ppf(0.975, len(seeds) - 1)) * error
        low, high = measured - width, measured + width
        notes.append(f"{name}: {measured:.4f}, 95% interval [{low:.4f}, {high:.4f}]")
        numbers[name] = {"measured": measured, "standard_error": error, "interval_95": [low, high]}
        for selection, found in predicted.items():
            value = getattr(found, name)
            numbers[name][selection] = value
            z = normal_z(abs(measured - value) / error, len(seeds))
            checks.append(Check(f"{name}, {selection} prox", "training_loss" if name == "alpha_c" else "test_error", value,
                                measured, z, Z_MAX, Z_REASON, "", error))  # fmt: skip
        inside = [k for k in predicted if low <= numbers[name][k] <= high]
        notes.append(f"  the interval contains the prediction of: {', '.join(inside) or 'no selection'}")
    more, remarks = order_parameters(p, seeds, options)
    scaling, remarks_2 = concentration(p, seeds, options)
    passing, remarks_3 = message_passing(p, seeds)
    return Result([*checks, *more, *scaling, *passing], [*notes, *remarks, *remarks_2, *remarks_3], numbers, gaps)


def _gap(name: str, p: Parameters, centre: float, seeds: list[int], options: dict[str, Any]) -> xr.DataArray:
    """What changes sign at the threshold, over (seed, alpha), rising."""
    grid = [f * centre for f in FACTORS[name]]
    semantic = train(p.replace(start="semantic"), grid, seeds, **options)
    if name == "alpha_c":
        return train(p.replace(start="positional"), grid, seeds, **options).train_loss - semantic.train_loss
    linear = [[fit_linear(p.replace(alpha=a), s)["half_test"] for a in grid] for s in seeds]
    return semantic.test_mse_half.copy(data=linear) - semantic.test_mse_half


def crossing(gap: xr.DataArray) -> tuple[float, float]:
    """Where the mean over seeds first rises through zero, and its standard error by the jackknife; NaN if nowhere."""
    rows = gap.transpose("seed", "alpha")
    means = [rows.mean("seed"), *(rows.drop_isel(seed=k).mean("seed") for k in range(rows.sizes["seed"]))]
    found = [float(first_crossing(m.expand_dims("seed"), 0.0).values[0]) for m in means]
    left_out = np.array(found[1:])
    return found[0], float(np.sqrt((left_out.size - 1) * left_out.var()))


def order_parameters(p: Parameters, seeds: list[int], options: dict[str, Any]) -> tuple[list[Check], list[str]]:
    """Overlaps and losses of both minima at d = infinity against both selections."""
    checks, sizes = [], (p.d // 2, p.d, 2 * p.d)
    for branch, alpha, names in (*POINTS, WHERE_SELECTIONS_DIFFER):
        points = {k: solve(p.replace(alpha=alpha, prox=k), branch) for k in SELECTIONS}
        if not points["local"].exists:
            continue
        runs = {d: train(p.replace(d=d, start=branch), alpha, range(MORE * len(seeds)), **options).isel(alpha=0)
                for d in sizes}  # fmt: skip
        for x in names:
            value, error = at_infinity({d: r[x].values for d, r in runs.items()})
            predicted = {k: f.summary()[x] for k, f in points.items()}
            if np.isclose(*predicted.values(), rtol=SAME):
                predicted = {"either": predicted["global"]}
            checks += [Check(f"{x} at d = infinity, {branch} at alpha = {alpha:g}, {k} prox", x, v, value,
                             abs(value - v) / error, Z_MAX, Z_REASON, NOT_REACHED if k == "global" else "", error)
                       for k, v in predicted.items()]  # fmt: skip
    return checks, ["", f"d = infinity: linear in 1/d through {', '.join(map(str, sizes))}, {MORE * len(seeds)} seeds each"]


def at_infinity(samples: dict[int, np.ndarray]) -> tuple[float, float]:
    """Mean over seeds, extrapolated linearly in 1/d from several d, and its standard error."""
    means = [v.mean() for v in samples.values()]
    errors = np.array([v.std(ddof=1) / np.sqrt(v.size) for v in samples.values()])
    line, covariance = np.polyfit(1 / np.array([*samples]), means, 1, w=1 / errors, cov="unscaled")
    return float(line[1]), float(np.sqrt(covariance[1, 1]))


def concentration(p: Parameters, seeds: list[int], options: dict[str, Any]) -> tuple[list[Check], list[str]]:
    """Scatter between seeds over d: order parameters concentrate as d^(-1/2)."""
    spreads, notes = [], ["", "standard deviation over seeds, semantic at alpha = 2:"]
    for d in SIZES:
        q = p.replace(d=d, start="semantic", teacher="gaussian")
        many = range(4 * len(seeds))  # a standard deviation needs more seeds than a mean
        values = train(q, 2.0, many, **options).theta.isel(alpha=0).values
        spreads.append(values.std(ddof=1))
        notes.append(f"  d = {d}: theta {values.mean():.4f} +- {spreads[-1]:.4f}")
    x = np.log(SIZES) - np.log(SIZES).mean()
    slope = float(x @ np.log(spreads) / (x @ x))
    # ln of a standard deviation from k samples scatters by 1/sqrt(2 (k - 1)).
    error = float(np.sqrt((x**2).sum()) / (x @ x) / np.sqrt(2 * (4 * len(seeds) - 1)))
    z = abs(slope + 0.5) / error
    return [Check("exponent of the scatter of theta in d", "Sec. 4: concentration", -0.5, slope, z, 4.0,
                  "|z| <= 4, from the scatter of a standard deviation", standard_error=error)], notes  # fmt: skip


def message_passing(p: Parameters, seeds: list[int]) -> tuple[list[Check], list[str]]:
    """GAMP against state evolution, both branches."""
    checks, notes = [], [""]
    for branch, alpha, names in POINTS:
        q = p.replace(alpha=alpha, start=branch, prox="global" if branch == "semantic" else "local")
        rows, last, gradients = [], [], []
        for seed in seeds:
            teacher, data = task.draw(q, seed)
            start = initial_weights(q, teacher, np.random.default_rng(seed))["Q"][:, 0]
            message = gamp(q, data, start, damping=0.7 if branch == "semantic" else 0.85, iterations=400)
            Q = message.weights
            rows.append(
                {"q": q.sigma**2 * (Q @ Q) / q.d, "m": abs(Q.mean()), "theta": q.sigma**2 * abs(Q @ teacher) / q.d}
            )
            last.append(message.steps[-1])
            gradients.append(message.gradient)
        point = solve(q, branch).summary()
        checks += [sampled(f"{x} of message passing, {branch} at alpha = {alpha:g}", "Algorithm 1", point[x],
                           [r[x] for r in rows], FINITE) for x in names if x in rows[0]]  # fmt: skip
        notes.append(f"message passing, {branch} ({q.prox} prox): last step {np.median(last):.1e}, "
                     f"gradient of the risk {np.median(gradients):.1e} (medians, per sqrt(d))")  # fmt: skip
    return checks, notes


def draw(result: Result) -> Any:
    """Gap over alpha: seeds as thin lines, their mean, the interval of the crossing, and both predictions."""
    figure, axes = plotting.figure(1, 2)
    labels = {"alpha_c": r"training loss, positional $-$ semantic $[10^{-4}]$",
              "alpha_l": r"test error, linear $-$ semantic $[10^{-4}]$"}  # fmt: skip
    for axis, (name, gap) in zip(axes, result.gaps.items(), strict=True):
        tex = name.replace("_", "_{") + "}"
        for row in gap.transpose("seed", "alpha").values:
            axis.plot(gap.alpha, 1e4 * row, color="0.75", lw=0.6)
        axis.plot(gap.alpha, 1e4 * gap.mean("seed"), "ko-", ms=3, label="students, mean")
        low, high = result.numbers[name]["interval_95"]
        if np.isfinite(low):
            axis.axvspan(low, high, color="0.5", alpha=0.25, lw=0, label="95% interval of the crossing")
        for k, selection in enumerate(s for s in SELECTIONS if s in result.numbers[name]):
            axis.axvline(result.numbers[name][selection], color=f"C{k}", ls=("-", "--")[k],
                         label=rf"$\{tex}$, {selection} prox: {result.numbers[name][selection]:.3f}")  # fmt: skip
        axis.axhline(0, color="0.4", lw=0.6)
        axis.set(xlabel=r"sample complexity $\alpha = n/d$", ylabel=labels[name])
        axis.legend(fontsize=7)
    return figure
