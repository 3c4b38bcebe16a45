"""Factual recall: the statement and the code that trains against autograd, times of
relation and subject, curves of students.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import xarray as xr

from simulate.associative_memory import factual_recall
from simulate.associative_memory.factual_recall import Learner, LinearAttention, train
from theory.associative_memory.factual_recall import (
    SHARES,
    Parameters,
    closed_form,
    dynamics,
    equations,
    flow,
    predict,
    time_of_share,
)
from theory.associative_memory.factual_recall import timescales as times
from theory.associative_memory.factual_recall.dynamics import NAMES, PARTS, recall
from theory.call.parameters import stated
from theory.runtime import plotting
from theory.statement.derivation import remedies
from verify import trajectories as curves
from verify.checks import ensemble_source
from verify.checks.check import Band, Check, Sides, identity, sampled, with_notes
from verify.checks.report import Report, Request, Table, derivations
from verify.compare.emergence import first_crossing
from verify.statement.printed import Point, generic, numbers_of

# The statement of factual recall against autograd

AUTOGRAD = 1e-12, "autograd in float64"
P = Parameters(S=6, R=4, D=3, noise_tokens=5, T=5, epsilon=0.5)


def derived(_: Table) -> list[Check]:
    """Loss, sizes, gradients of all weights, frozen ones among them, and steps of
    descent.
    """
    return generic(remedies.derived(recall()))


def printed(eq: Table) -> list[Check]:
    """Factorised loss and its two parts, of every fact; rates of attention and value
    gains.
    """
    made = remedies.derived(recall())
    x = Point(made, dynamics.flow(), NAMES, numbers_of(P, made))
    sides = Sides(eq, *AUTOGRAD)
    sides.add("loss", "recall_loss", x.known, x.each["loss"])
    for part in ("relation", "subject"):
        sides.add(f"{part} part", f"loss_{part}", x.known, x.each[f"loss_{part}"])
    scaled = np.exp(x.known["X"] + x.known["Y"]) / x.each["accuracy"]
    sides.add("normalisation, least logit 0", "recall_partition", x.known, scaled)
    for name, rate in x.rates.items():
        sides.add(f"d{name}/dt", f"d{name}_dt", x.known, rate)
    return sides.checks()


def training(_: Table) -> list[Check]:
    """The code that trains, from counts, against autograd of the module that reads
    tokens. That the module is the statement's student is tested
    (`tests/simulate/statement/test_plain_students.py`).
    """
    rng = np.random.default_rng(1)
    tokens, answers = factual_recall.draw_sequences(
        P, 32, factual_recall.fact_table(P), rng
    )
    learner, module = Learner(P, 0), LinearAttention(P)
    for name in "wV":
        value = rng.normal(size=getattr(learner, name).shape)
        setattr(learner, name, value)
        getattr(module, name).data = torch.tensor(value)
    logits = module(torch.as_tensor(tokens))
    loss = torch.nn.functional.cross_entropy(logits, torch.as_tensor(answers))
    slopes = torch.autograd.grad(loss, [module.w, module.V])
    gradient = learner.gradient(factual_recall.token_counts(P, tokens), answers)
    return [
        identity(
            f"training gradient of {name}", "engine", mine, theirs.numpy(), *AUTOGRAD
        )
        for name, mine, theirs in zip("wV", gradient, slopes, strict=True)
    ]


GRADIENTS = (printed, derived, training)

checks, gradients = derivations(GRADIENTS, equations)


# Times at which relation and subject are learned

SMALL = Parameters.small()
SEEDS = range(2)
SWEPT = {  # values, and what the axis is called
    "epsilon": ((1e-2, 1e-3, 1e-4, 1e-5), r"initial weight $\epsilon$"),
    "S": ((4, 8, 16), "subjects $S$"),
    "R": ((2, 3, 4), "relations $R$"),
    "D": ((2, 4, 8), "answers per relation $D$"),
}
BY_QUADRATURE = (
    "relative tolerances: 1.5e-8 of the quadrature; 1e-12 of the integrator, amplified "
    "along the exponential growth"
)
AMPLIFIED = (
    "relative tolerance 1e-12 of the integrator, amplified along the exponential growth"
)
FINITE_STEPS = (
    "finite learning rate: a step lags behind the flow by about eta lambda / 2, at most"
    " 0.4% here"
)
BATCH_NOISE = Band(
    -0.001, 0.001, "gradient noise of finite batches: a bias of second order"
)
BATCHES = (
    "batches of 256: gradient noise of a few percent, averaged over hundreds of steps"
)


def crossing(losses: xr.DataArray, share: float) -> np.ndarray:
    """Flow time at which the losses fall to a share of
    their initial value, per seed.
    """
    return first_crossing(-losses, -share * float(losses.isel(t=0).mean())).values


def timescales(request: Request) -> Report:
    """Checks on one ensemble, then on sweeps."""
    checks, notes = emergence(*ensemble_source.get(request))
    scaled, more, sweeps = scaling(progress=request.progress)
    return Report(checks + scaled, notes + more, draw=lambda: draw(sweeps))


@with_notes
def emergence(p: Parameters, runs: xr.Dataset) -> Iterator[Check | str]:
    """Crossing times of both parts of the loss, and the height of the plateau."""
    yield from (
        "",
        (
            "steps at 90, 50, 10% of the initial value: flow (quadrature), full-batch"
            " descent, students"
        ),
    )
    euler = flow().descend(p, p.eta, int(runs.step[-1])).isel(t=runs.step.values)
    exactly = times.equations()["hitting_time_exact"]
    for part in PARTS:
        shares = {label: share for label, (share, _) in SHARES.items()}
        last = 1.2 * time_of_share(p, part, min(shares.values()))
        goals = {label: times.level(part, share) for label, share in shares.items()}
        events = flow().solve(p, at=[0.0], t=last, events=goals)
        known = times.constants(p, part)
        losses = runs[f"loss_{part.name}"]
        slower = euler[f"loss_{part.name}"].expand_dims("seed")
        for label, share in shares.items():
            exact = time_of_share(p, part, share)
            time = crossing(losses, share)
            what = f"time of {label}% of the {part.name} loss"
            by_angle = exactly.evaluate(
                known | {"theta": times.angle_of_share(p, part, share)}
            )
            by = f"{what} by quadrature, against the integrator"
            yield identity(
                by, "hitting_time_exact", by_angle, events[label], 1e-7, BY_QUADRATURE
            )
            by = f"{what} by the quadrature used elsewhere"
            yield identity(by, "flow", exact, events[label], 1e-8, AMPLIFIED)
            by, small = f"{what} in closed form", closed_form(p, part, share)
            why = "corrections of relative order epsilon"
            yield identity(by, "hitting_time", small, exact, 10 * p.epsilon, why)
            if np.isnan(time).any():
                yield (
                    f"  {what}: not reached by all seeds in {int(runs.step[-1])} steps"
                )
                continue
            slow = crossing(slower, share)[0]
            lag = p.eta * known["lambda_recall"]
            why = FINITE_STEPS if lag < 0.01 else "finite learning rate: eta lambda"
            by = f"{what} by the flow, students"
            yield identity(by, "flow", exact, time.mean(), max(0.01, lag), why)
            steps, by = time / p.eta, f"{what} by full-batch descent, students"
            yield sampled(by, "flow", slow / p.eta, steps, band=BATCH_NOISE)
            at = f"{steps.mean():.1f} (s.d. {steps.std(ddof=1):.1f})"
            yield f"  {what}: {exact / p.eta:.0f}, {slow / p.eta:.1f}, {at}"
    half, last = (
        crossing(runs[f"loss_{q}"], s).mean()
        for q, s in (("relation", 0.1), ("subject", 0.9))
    )
    if half < last:
        time = (half + last) / 2
        middle = float(runs.loss.interp(t=time).mean())
        height = dynamics.losses()["plateau"].number(p.values())
        there = float(flow().solve(p, at=[time], t=last).loss[0])
        yield (
            f"plateau: ln D = {height:.4f}, flow half way {there:.4f}, students"
            f" {middle:.4f}"
        )
        why = "what is left of the relation, and what is gained of the subject"
        yield identity(
            "flow half way along the plateau", "plateau", height, there, 0.02, why
        )
        why = "the same lag on a curve that falls slowly"
        yield identity(
            "loss half way along the plateau", "flow", there, middle, 0.01, why
        )
    begun = dynamics.losses()["initial_loss"].evaluate(p.values())
    measured = float(runs.loss.isel(t=0).mean())
    why = "single precision"
    yield identity("loss at the start", "initial_loss", begun, measured, 1e-6, why)


def plateau_steps(p: Parameters) -> float:
    """Number of steps of the flow between half the relation loss and half the subject
    loss.
    """
    relation, subject = (time_of_share(p, part, 0.5) for part in PARTS)
    return (subject - relation) / p.eta


def measured_steps(p: Parameters, curves: xr.Dataset) -> np.ndarray:
    """The same of each trained or integrated curve."""
    halves = [crossing(curves[f"loss_{part.name}"], 0.5) for part in PARTS]
    return np.diff(halves, axis=0)[0] / p.eta


def scaling(progress: bool = False) -> tuple[list[Check], list[str], dict[str, Any]]:
    """Length of the plateau over epsilon, S, R and D: students against full-batch
    descent and the flow.
    """
    checks = []
    sweeps: dict[str, Any] = {}
    title = (
        "plateau length in steps (relation half known to subject half known): flow,"
        " students"
    )
    notes = ["", title]
    for name, (grid, _) in SWEPT.items():
        sweeps[name] = rows = []
        for value in grid:
            p = SMALL.replace(**{name: value})
            slowest = max(time_of_share(p, part, 0.5) for part in PARTS)
            p = p.run_to(1.3 * slowest + 60 * p.eta)
            runs = train(p, seeds=SEEDS, progress=progress)
            euler = flow().descend(p, p.eta, p.steps).expand_dims("seed")

            (descent,) = measured_steps(p, euler)
            students = measured_steps(p, runs)
            limit = plateau_steps(p)
            row = {"value": value, "flow": limit}
            rows.append(row | {"descent": descent, "students": students})
            what = f"plateau length at {name} = {value:g}"
            mean = students.mean()
            checks.append(identity(what, "flow", descent, mean, 0.02, BATCHES))
            notes.append(f"  {name} = {value:g}: {limit:.0f}, {mean:.0f}")
    rows = sweeps["epsilon"]
    x = [np.log(1 / r["value"]) for r in rows]
    y = [r["flow"] * SMALL.eta for r in rows]
    slope = np.polyfit(x, y, 1)[0]
    rates = {
        times.rates[q.name].name: times.constants(SMALL, q)["lambda_recall"]
        for q in PARTS
    }
    length = times.equations()["plateau_length"]
    shorter, longer = (length.number({**rates, "epsilon": np.exp(-k)}) for k in (1, 2))
    what = "plateau length grows by 1/lambda_s - 1/lambda_r per e-fold of 1/epsilon"
    why = "epsilon^2 ln epsilon at the largest epsilon, 1e-2"
    growth = longer - shorter
    checks.append(identity(what, "plateau_length", growth, slope, 1e-3, why))
    return checks, notes, sweeps


def draw(sweeps: dict[str, Any]) -> Any:
    """Plateau length over each swept parameter: flow as line, full-batch descent and
    students as marks.
    """
    figure, axes = plotting.figure(1, len(sweeps), height=2.7)
    for axis, (name, rows) in zip(np.atleast_1d(axes), sweeps.items(), strict=True):
        (grid, label), whole = SWEPT[name], name != "epsilon"
        values = [r["value"] for r in rows]
        fine = values if whole else np.geomspace(min(grid), max(grid), 33).tolist()
        lengths = [plateau_steps(SMALL.replace(**{name: v})) for v in fine]
        # Only some sizes are allowed: one mark each.
        axis.plot(fine, lengths, "k_" if whole else "k--", ms=22, label="flow")
        slow = [r["descent"] for r in rows]
        axis.plot(values, slow, "x", color="C1", ms=7, label=r"descent, finite $\eta$")
        drawn = axis.plot(
            values, [r["students"] for r in rows], "o", mfc="none", color="C0"
        )
        drawn[0].set_label("students")
        axis.set(xlabel=label, ylabel="plateau length [steps]")
        axis.set_xscale("linear" if whole else "log")
        if whole:
            axis.set_xticks(values)
    # The flow is a line over epsilon, a mark over sizes.
    for axis in np.atleast_1d(axes)[:2]:
        plotting.below(axis)
    names = ("epsilon", "S", "R", "D", "eta", "batch_size")
    shared = stated({name: getattr(SMALL, name) for name in names})
    plotting.headline(
        figure, f"{shared}; but for what is swept; {len(SEEDS)} seeds, a mark each"
    )
    return figure


# Curves of factual recall

BIAS = (
    "gradient noise of batches of about a thousand sequences, of order eta/batch, the"
    " same sign in all seeds"
)
RELATION, SUBJECT = ("relation", "C0"), ("subject", "C1")
PANELS = {
    "cross-entropy [nats]": {
        "loss": ("loss", "C2"),
        "loss_relation": RELATION,
        "loss_subject": SUBJECT,
    },
    "attention weight": {"w_r": RELATION, "w_s": SUBJECT},
    "value gain": {"delta_r": RELATION, "delta_s": SUBJECT},
}
trajectories = curves.trajectories(predict, flow, PANELS, Band(-0.01, 0.01, BIAS))
