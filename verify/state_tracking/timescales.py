"""Emergence times of the state-tracking model: of attention, of rollouts, and how they
scale.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xarray as xr

from simulate.state_tracking import train
from theory import state_tracking as st
from theory.call.parameters import stated
from theory.runtime import plotting
from theory.state_tracking import Parameters, inversion, quadrature
from theory.state_tracking.onset import HALF
from theory.state_tracking.onset import equations as onset_equations
from theory.state_tracking.single_students.levels import own_start
from verify.checks import ensemble_source
from verify.checks.check import Band, Check, Noted, at_least, identity, listed, sampled
from verify.checks.report import Report, Request
from verify.compare.emergence import first_crossing, power
from verify.rates import rates
from verify.state_tracking.ensemble import CLOSURE, PAPER_TIMES, bands

SMALL = Parameters(N=8, L=5, d_g=8, d_h=16, n_train=1024, n_test=256, eval_every=5)
SEEDS = range(16)
SWEEPS: dict[str, tuple[tuple[float, ...], Callable[[Any], Parameters]]] = {
    "eta": ((0.25, 0.5, 1.0), lambda v: SMALL.replace(eta=v)),
    "L": ((3, 5, 8), lambda v: SMALL.replace(L=v)),
    "N": ((6, 8, 12), lambda v: SMALL.replace(N=v, d_g=v)),
    "d_h": ((8, 16, 32), lambda v: SMALL.replace(d_h=v)),
}
# Exponents by Eq. (15) from every seed's own initial values: (students' - predicted) /
# |predicted| on the sixteen seeds 100 to 115, which no check uses, 4 standard errors to
# either side. That of eta is exact as eta -> 0: a rate.
EXPONENTS = {
    "L": Band(-0.35, -0.122, CLOSURE),
    "N": Band(0.025, 0.203, CLOSURE),
    "d_h": Band(-0.148, 0.306, CLOSURE),
}
BY_CAVITY = "by level cavity"
# fraction of the onset time scale, in which the quartic term stays below the noise
WINDOW = 0.4


def onset_fit(
    alpha: np.ndarray, values: np.ndarray, window: float, degree: int = 2
) -> np.ndarray:
    """Coefficients of alpha, alpha^2, ... of ln(A/A_0) on ``alpha <= window``."""
    inside = (alpha <= window) & (alpha > 0)
    powers = alpha[inside, None] ** np.arange(1, degree + 1)
    return np.linalg.lstsq(powers, np.log(values[inside] / values[0]), rcond=None)[0]


@listed
def exact_solution(p: Parameters) -> Iterator[Check]:
    """Exact solution against the integrated flow, and the departure of (81) from the
    flow of a large system.
    """
    half = quadrature.emergence_time(p.values())
    flow = st.flow(p.teachers)
    solution = flow.solve(p, at=[0.0], events=HALF, alpha=1.5 * float(half))
    yield identity(
        "time of A = 1/2 by the exact solution",
        "kappa, pace, margin_of_D",
        half,
        solution.alpha_half.item(),
        1e-9,
        "event times of the integrator",
    )
    size = 1e8
    # All sizes at once at this c_omega, as an independent number.
    v = dict.fromkeys(("N", "d_g", "L"), size) | dict.fromkeys(("tau", "A_0"), 1 / size)
    v |= dict.fromkeys(("R_0", "S_0", "zeta"), 0.0)
    v |= {"eta": p.eta, "c_omega": st.c_omega(p)}
    times = onset_equations()["alpha_star"].evaluate(v) * np.array([0.05, 0.9])
    grown = inversion.states(v, times)["A"]
    sharp, printed, departure = (
        onset_equations()[q].evaluate(v | {"alpha": times})
        for q in ("onset_sharp", "onset_A", "onset_departure")
    )
    yield identity(
        "A L at 0.9 alpha_star, L = 1e8",
        "onset_sharp",
        size * sharp[1],
        size * grown[1],
        1e-5,
        "1/L over the distance to the pole, squared",
    )
    yield identity(
        "ln(A/A_(81)) at 0.05 alpha_star, L = 1e8",
        "onset_departure",
        departure[0],
        np.log(grown[0] / printed[0]),
        5e-3,
        "next term: 4/15 of (eta alpha)^2 c_omega/2",
    )


def report(request: Request) -> Report:
    """Checks of one ensemble against theory, then of the exponents."""
    checks, notes = emergence(*ensemble_source.get(request))
    if not request.full:
        notes += request.left_out(
            "exponents of students in eta, L, N and d_h (minutes of training)"
        )
        return Report(checks, notes)
    scaled, more, sweeps = scaling(**request.training)
    with_exponents = Report(checks + scaled, notes + more, draw=lambda: draw(sweeps))
    return with_exponents


def emergence(p: Parameters, runs: xr.Dataset) -> Noted:
    """Times of A = 1/2 and rollout = 1/2, and the onset rate, against theory."""
    exact, scale = (
        float(onset_equations()[x].evaluate(p.values()))
        for x in ("onset_coefficient", "onset_time_scale")
    )
    fine = np.linspace(0, 0.1 * scale, 41)
    flow = st.flow(p.teachers).solve(p, at=fine, alpha=float(fine[-1]))
    from_flow = onset_fit(flow.alpha.values, flow.A.values, float(fine[-1]), degree=5)[
        1
    ]
    checks = [
        identity(
            "onset rate of the flow",
            "onset_coefficient",
            exact,
            from_flow,
            1e-5,
            "sixth-order term on alpha <= 0.1 T_alpha",
        )
    ]
    window = WINDOW * scale
    rates = [
        onset_fit(runs.alpha.values, runs.A.sel(seed=s).values, window)[1]
        for s in runs.seed.values
    ]
    checks.append(sampled("onset rate of students", "onset_coefficient", exact, rates))
    notes = [
        "",
        (
            "onset rate fitted as linear + quadratic in alpha on alpha <="
            f" {window:.3g} (0.4 T_alpha)"
        ),
    ]
    curves = own_start(p, runs)
    for name, variable in (
        ("time of A = 1/2", "A"),
        ("time of rollout = 1/2", "rollout_accuracy"),
    ):
        times = first_crossing(runs[variable], 0.5)
        notes.append(times.summary(name))
        predicted = first_crossing(curves[variable].transpose("seed", ...), 0.5).values
        reached = np.isfinite(times.values)
        ratio = (times.values / predicted)[reached & np.isfinite(predicted)]
        if reached.sum() > 1 >= ratio.size:  # without a comparison nothing agrees
            what = f"{name} by Eq. (15): seeds in which theory gets there, too"
            checks.append(
                at_least(what, "flow (15)", 2, float(ratio.size), "students do")
            )
        if ratio.size > 1:
            checks.append(
                sampled(
                    f"{name} by Eq. (15), measured / predicted",
                    "flow (15)",
                    1.0,
                    ratio,
                    band=bands(PAPER_TIMES, p)[variable],
                )
            )
            notes.append(
                "  by Eq. (15): rms relative error over single seeds"
                f" {np.sqrt(np.mean((1 / ratio - 1) ** 2)):.1%}"
            )
    checks += exact_solution(p)
    rates_of = p.eta * np.array([0.5, 1.0])
    half = (
        st.flow()
        .solve(p, at=[0.0], events=HALF, alpha=80 * scale, eta=rates_of)
        .alpha_half
    )
    one, two = rates_of * half.values
    name = "eta x time of A = 1/2 does not depend on eta"
    checks.append(
        identity(name, "flow (15)", one, two, 1e-9, "event times of the integrator")
    )
    return checks, notes


def scaling(**training: Any) -> tuple[list[Check], list[str], dict[str, Any]]:
    """Exponents of the time of A = 1/2 in eta, L, N = d_g and d_h, seed by seed:
    students against two levels of theory.
    """
    checks, sweeps = [], {}
    notes = ["", "time of A = 1/2, students (mean over seeds) and flow:"]
    for name, (grid, make) in SWEEPS.items():
        exponents: dict[str, list[np.ndarray]] = {
            "students": [],
            "by Eq. (15)": [],
            BY_CAVITY: [],
        }
        flow = []
        for value in grid:
            p = make(value)
            flow.append(float(quadrature.emergence_time(p.values())))
            p = p.run_to(2.5 * flow[-1])
            runs = train(p, seeds=SEEDS, **training)
            times = first_crossing(runs.A, 0.5)
            cavity = st.predict(p, runs, level="cavity", accuracies=False)
            for level, curves in zip(
                exponents, (runs, own_start(p, runs), cavity), strict=True
            ):
                exponents[level].append(
                    first_crossing(curves.A.transpose("seed", ...), 0.5).values
                )
            notes.append(
                "  " + times.summary(f"{name} = {value:g} (flow {flow[-1]:.3f})")
            )
        # NaN for a seed that is censored anywhere
        slopes = {level: power(grid, v) for level, v in exponents.items()}
        for level in ("by Eq. (15)", BY_CAVITY):
            gap = slopes["students"] - slopes[level]
            gap = gap[np.isfinite(gap)]
            if gap.size > 1:
                label = "N = d_g" if name == "N" else name
                what = f"exponent of the time of A = 1/2 in {label} {level}, students"
                if name == "eta":
                    reached = xr.DataArray(
                        exponents["students"], dims=("eta", "seed")
                    ).dropna("seed")
                    checks.append(
                        rates(0, [*reached], grid, -1).check(what, "flow (15)")
                    )
                    break
                predicted = float(np.nanmean(slopes[level]))
                band = EXPONENTS[name] if level == "by Eq. (15)" else None
                checks.append(
                    sampled(what, "flow (15)", predicted, predicted + gap, band=band)
                )
        sweeps[name] = (grid, flow, exponents["students"])
    return checks, notes, sweeps


def draw(sweeps: dict[str, Any]) -> Any:
    """Figure: time of A = 1/2 over each swept parameter; flow as line, students as mean
    and marks.
    """
    figure, axes = plotting.figure(1, len(sweeps), height=2.7)
    axes = np.atleast_1d(axes)
    for axis, (name, (grid, _, students)) in zip(axes, sweeps.items(), strict=True):
        fine = np.geomspace(grid[0], grid[-1], 25)
        if name != "eta":
            fine = np.unique(
                2 * np.round(fine / 2) if name == "d_h" else np.round(fine)
            ).astype(int)
        curve = [
            float(quadrature.emergence_time(SWEEPS[name][1](v.item()))) for v in fine
        ]
        axis.loglog(
            fine,
            curve,
            "k--" if name == "eta" else "k.--",
            ms=4,
            lw=1,
            label="flow (15)",
        )
        for value, times in zip(grid, students, strict=True):
            axis.plot(
                np.full(len(times), value), times, ".", color="C0", alpha=0.35, ms=4
            )
        axis.plot(
            [], [], ".", color="C0", alpha=0.35, ms=4, label="students, one mark each"
        )
        axis.plot(
            grid,
            [np.nanmean(t) for t in students],
            "o-",
            color="C0",
            ms=4,
            label="students, mean",
        )
        label = {
            "eta": r"learning rate $\eta$",
            "N": "$N = d_g$",
            "L": "$L$",
            "d_h": "$d_h$",
        }[name]
        axis.set(
            xlabel=label,
            ylabel=r"time of $A = 1/2$, in $\alpha$",
            xticks=grid,
            xticklabels=[f"{g:g}" for g in grid],
        )
        axis.minorticks_off()
    times = []
    for _, theory, students in sweeps.values():
        times += [np.ravel(v) for v in (theory, *students)]
    lowest, highest = (f(np.concatenate(times)) for f in (np.nanmin, np.nanmax))
    ticks = np.array([1, 2, 3, 5, 7, 10, 15, 20, 30])
    for axis in axes:
        axis.set(yticks=ticks, yticklabels=[f"{t}" for t in ticks])
        axis.set_ylim(0.9 * lowest, 1.1 * highest)
    plotting.below(axes[0])
    names = ("N", "L", "d_g", "d_h", "eta")
    shared = {n: v for n, v in SMALL.values().items() if n in names}
    setting = stated(shared | {"n_train": SMALL.n_train})
    plotting.headline(figure, f"{setting}; but for what is swept; {len(SEEDS)} seeds")
    return figure
