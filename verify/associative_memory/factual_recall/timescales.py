"""Times at which relation and subject are learned: quadrature, closed form, Euler map and
students.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from simulate.associative_memory.factual_recall import train
from theory.associative_memory.factual_recall import (
    Parameters,
    closed_form,
    flow,
    numbers,
    reduction,
    time_of_share,
    timescales,
)
from theory.associative_memory.factual_recall.dynamics import PARTS, Part
from theory.associative_memory.factual_recall.onset import SHARES
from theory.parameters import stated
from theory.runtime import plotting
from verify import ensemble
from verify.check import Band, Check, identity, sampled
from verify.emergence import first_crossing
from verify.report import Report, Request

SMALL = Parameters.small()
SEEDS = range(2)
SWEEPS: dict[str, tuple[tuple[float, ...], Callable[[Any], Parameters]]] = {
    "epsilon": ((1e-2, 1e-3, 1e-4, 1e-5), lambda v: SMALL.replace(epsilon=v)),
    "S": ((4, 8, 16), lambda v: SMALL.replace(S=v)),
    "R": ((2, 3, 4), lambda v: SMALL.replace(R=v)),
    "D": ((2, 4, 8), lambda v: SMALL.replace(D=v)),
}
FINITE_STEPS = (
    "finite learning rate: a step lags behind the flow by about eta lambda / 2, at most 0.4% here"
)
BATCH_NOISE = Band(-0.001, 0.001, "gradient noise of finite batches: a bias of second order")


def crossing(losses: xr.DataArray, share: float) -> np.ndarray:
    """Flow time at which the losses fall to a share of their initial value, per seed."""
    return first_crossing(-losses, -share * float(losses.isel(t=0).mean())).values


def report(request: Request) -> Report:
    """Checks on one ensemble, then on sweeps."""
    checks, notes = emergence(*ensemble.get(request))
    scaled, more, sweeps = scaling(progress=request.progress)
    return Report(checks + scaled, notes + more, draw=lambda: draw(sweeps))


def emergence(p: Parameters, runs: xr.Dataset) -> tuple[list[Check], list[str]]:
    """Crossing times of both parts of the loss, and the height of the plateau."""
    checks: list[Check] = []
    notes = [
        "",
        "steps at 90, 50, 10% of the initial value: flow (quadrature), full-batch descent, students",
    ]
    euler = (
        flow().descend(p, p.eta, int(runs.step[-1])).isel(t=runs.step.values)
    )  # interpolated between the same steps
    for part in PARTS:
        name = f"loss_{part.name}"
        goals = {label: _level(part, share) for label, share in SHARES.items()}
        events = flow().solve(
            p, at=[0.0], t=1.2 * time_of_share(p, part, min(SHARES.values())), events=goals
        )
        for label, share in SHARES.items():
            exact, found = time_of_share(p, part, share), crossing(runs[name], share)
            what = f"time of {label}% of the {part.name} loss"
            checks += [
                identity(
                    f"{what} by quadrature, against the integrator",
                    "hitting_time_exact",
                    timescales.equations()["hitting_time_exact"].evaluate(
                        {
                            **numbers.constants(p, part),
                            "theta": numbers.angle_of_share(p, part, share),
                        }
                    ),
                    events[label],
                    1e-7,
                    "relative tolerances: 1.5e-8 of the quadrature; 1e-12 of the integrator, amplified "
                    "along the exponential growth",
                ),
                identity(
                    f"{what} by the quadrature used elsewhere",
                    "flow",
                    exact,
                    events[label],
                    1e-8,
                    "relative tolerance 1e-12 of the integrator, amplified along the exponential growth",
                ),
                identity(
                    f"{what} in closed form",
                    "hitting_time",
                    closed_form(p, part, share),
                    exact,
                    10 * p.epsilon,
                    "corrections of relative order epsilon",
                ),
            ]
            if np.isnan(found).any():
                notes.append(f"  {what}: not reached by all seeds in {int(runs.step[-1])} steps")
                continue
            slow = float(crossing(euler[name].expand_dims("seed"), share)[0])
            lag = p.eta * numbers.constants(p, part)["lambda_recall"]
            checks += [
                identity(
                    f"{what} by the flow, students",
                    "flow",
                    exact,
                    found.mean(),
                    max(0.01, lag),
                    FINITE_STEPS if lag < 0.01 else "finite learning rate: eta lambda",
                ),
                sampled(
                    f"{what} by full-batch descent, students",
                    "flow",
                    slow / p.eta,
                    found / p.eta,
                    band=BATCH_NOISE,
                ),
            ]
            spread = found.std(ddof=1) / p.eta
            notes.append(
                f"  {what}: {exact / p.eta:.0f}, {slow / p.eta:.1f}, {found.mean() / p.eta:.1f} (s.d. {spread:.1f})"
            )
    half, last = (
        crossing(runs[f"loss_{q}"], s).mean() for q, s in (("relation", 0.1), ("subject", 0.9))
    )
    if half < last:
        middle = runs.loss.interp(t=(half + last) / 2)
        height = float(reduction.equations()["plateau"].evaluate(p.values()))
        there = float(flow().solve(p, at=[(half + last) / 2], t=last).loss[0])
        notes.append(
            f"plateau: ln D = {height:.4f}, flow half way {there:.4f}, students {float(middle.mean()):.4f}"
        )
        checks += [
            identity(
                "flow half way along the plateau",
                "plateau",
                height,
                there,
                0.02,
                "what is left of the relation, and what is gained of the subject",
            ),
            identity(
                "loss half way along the plateau",
                "flow",
                there,
                float(middle.mean()),
                0.01,
                "the same lag on a curve that falls slowly",
            ),
        ]
    checks.append(
        identity(
            "loss at the start",
            "initial_loss",
            reduction.equations()["initial_loss"].evaluate(p.values()),
            float(runs.loss.isel(t=0).mean()),
            1e-6,
            "single precision",
        )
    )
    return checks, notes


def _level(part: Part, share: float) -> Any:
    """Expression that crosses zero when a part of the loss reaches a share of its initial value."""
    goal = timescales.equations()["gain_at_share"].rhs.subs(
        {timescales.share: share, timescales.K: part.choices}
    )
    return part.w * part.delta - goal


def plateau_steps(p: Parameters) -> float:
    """Number of steps of the flow between half the relation loss and half the subject loss."""
    relation, subject = (time_of_share(p, part, 0.5) for part in PARTS)
    return (subject - relation) / p.eta


def scaling(progress: bool = False) -> tuple[list[Check], list[str], dict[str, Any]]:
    """Length of the plateau over epsilon, S, R and D: students against full-batch descent and the
    flow.
    """
    checks, sweeps = [], {}
    notes = [
        "",
        "plateau length in steps (relation half known to subject half known): flow, students",
    ]
    for name, (grid, make) in SWEEPS.items():
        rows = []
        for value in grid:
            p = make(value)
            times = [time_of_share(p, part, 0.5) for part in PARTS]
            length = plateau_steps(p)
            p = p.run_to(1.3 * max(times) + 60 * p.eta)
            runs = train(p, seeds=SEEDS, progress=progress)
            euler = flow().descend(p, p.eta, p.steps)
            relation, subject = (crossing(runs[f"loss_{q.name}"], 0.5) for q in PARTS)
            slow = [
                float(crossing(euler[f"loss_{q.name}"].expand_dims("seed"), 0.5)[0]) for q in PARTS
            ]
            rows.append(
                {
                    "value": value,
                    "flow": length,
                    "descent": (slow[1] - slow[0]) / p.eta,
                    "students": (subject - relation) / p.eta,
                }
            )
            checks.append(
                identity(
                    f"plateau length at {name} = {value:g}",
                    "flow",
                    rows[-1]["descent"],
                    rows[-1]["students"].mean(),
                    0.02,
                    "batches of 256: gradient noise of a few percent, averaged "
                    "over hundreds of steps",
                )
            )
            notes.append(
                f"  {name} = {value:g}: {rows[-1]['flow']:.0f}, {rows[-1]['students'].mean():.0f}"
            )
        sweeps[name] = rows
    rows = sweeps["epsilon"]
    slope = np.polyfit(
        np.log([1 / r["value"] for r in rows]), [r["flow"] * SMALL.eta for r in rows], 1
    )[0]
    rates = {
        timescales.rates[q.name].name: numbers.constants(SMALL, q)["lambda_recall"] for q in PARTS
    }
    grown = [
        float(timescales.equations()["plateau_length"].evaluate({**rates, "epsilon": np.exp(-x)}))
        for x in (1, 2)
    ]
    checks.append(
        identity(
            "plateau length grows by 1/lambda_s - 1/lambda_r per e-fold of 1/epsilon",
            "plateau_length",
            grown[1] - grown[0],
            slope,
            1e-3,
            "epsilon^2 ln epsilon at the largest epsilon, 1e-2",
        )
    )
    return checks, notes, sweeps


def draw(sweeps: dict[str, Any]) -> Any:
    """Plateau length over each swept parameter: flow as line, full-batch descent and students as
    marks.
    """
    figure, axes = plotting.figure(1, len(sweeps), width=2.9, height=2.7)
    labels = {
        "epsilon": r"initial weight $\epsilon$",
        "S": "subjects $S$",
        "R": "relations $R$",
        "D": "answers per relation $D$",
    }
    for axis, (name, rows) in zip(np.atleast_1d(axes), sweeps.items(), strict=True):
        at = [r["value"] for r in rows]
        grid, make = SWEEPS[name]
        whole = name != "epsilon"  # only some sizes are allowed: one mark each
        fine = at if whole else np.geomspace(min(grid), max(grid), 33).tolist()
        lengths = [plateau_steps(make(v)) for v in fine]
        axis.plot(fine, lengths, "k_" if whole else "k--", ms=22, label="flow")
        axis.plot(
            at, [r["descent"] for r in rows], "x", color="C1", ms=7, label=r"descent, finite $\eta$"
        )
        for k, r in enumerate(rows):
            axis.plot(
                [r["value"]] * len(r["students"]),
                r["students"],
                "o",
                mfc="none",
                color="C0",
                label="students" if k == 0 else None,
            )
        axis.set(
            xlabel=labels[name],
            ylabel="plateau length [steps]",
            xscale="log" if name == "epsilon" else "linear",
        )
        if name != "epsilon":
            axis.set_xticks(at)
    plotting.inside(np.atleast_1d(axes)[0])
    shared = {n: getattr(SMALL, n) for n in ("epsilon", "S", "R", "D", "eta", "batch_size")}
    plotting.headline(
        figure, f"{stated(shared)}; but for what is swept; {len(SEEDS)} seeds, a mark each"
    )
    return figure
