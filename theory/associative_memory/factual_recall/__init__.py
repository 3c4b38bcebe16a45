"""Factual recall by linear attention, with a loss plateau at which the subject is
ignored (slides; Nichani et al. 2024).
"""

from dataclasses import replace
from typing import Any

import xarray as xr

from theory import Equation, Onset, of_onset, until
from theory.associative_memory.factual_recall import dynamics, timescales
from theory.associative_memory.factual_recall.dynamics import (
    PARTS,
    RECALL,
    RELATION,
    SUBJECT,
    Parameters,
    Part,
    applies,
    flow,
)
from theory.associative_memory.factual_recall.timescales import (
    closed_form,
    time_of_share,
)
from theory.associative_memory.symbols import eta
from theory.call import scope
from theory.dynamics import prediction
from theory.dynamics.catalogue import catalogue
from theory.dynamics.onset import tabulated

__all__ = [
    "PARTS",
    "Parameters",
    "Part",
    "applies",
    "closed_form",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "onset",
    "predict",
    "sections",
    "time_of_share",
]


# Predicted curves of a training run


@until("t")
@scope.pointwise(RECALL)
def predict(
    p: Parameters, runs: xr.Dataset | None = None, *, until: float | None = None
) -> xr.Dataset:
    """Predict a training run: descent by the students' optimiser without batch noise,
    the same for every seed.

    Parameters
    ----------
    p : Parameters
        Parameters of the training run.
    runs : Dataset, optional
        Students over ``(seed, t)``; the curve is evaluated at their times.
    until : float, optional
        Length of the curve without runs, in units of ``eta * steps``; ``p.steps`` by
        default.

    Returns
    -------
    Dataset
        Variables of the flow over ``t``. The flow's ``accuracy`` is renamed
        ``probability``, because the students' accuracy counts correct answers.

    Raises
    ------
    ParameterError
        If the runs lack their steps or were trained with other parameters.
    """
    return prediction.descent(flow(), p, runs, until).rename(accuracy="probability")


flows, sections, equations = catalogue(
    {
        "Factual recall: exact reduction": [dynamics.losses],
        "Factual recall: flow": [dynamics, flow],
        "Factual recall: hitting times": [timescales],
    },
    flow,
)


# When facts are recalled

Rows = dict[str, tuple[Any, ...]]
# Shares of the initial value of either part of the loss, and what they are called.
SHARES = {"90": (0.9, "90%"), "50": (0.5, "half"), "10": (0.1, "10%")}


@until("t")
@scope.pointwise(RECALL)
def onset(p: Parameters, until: float | None = None) -> Onset:
    """Numbers and curves of factual recall.

    Parameters
    ----------
    p : Parameters
        Sizes, start and learning rate.
    until : float, optional
        Length of the curves in the flow time ``t = eta * steps`` (also ``t=``); 1.6
        times the last crossing by default.

    Returns
    -------
    Onset
        ``steps_relation_90`` ... ``steps_subject_10``: steps (flow time / eta) at which
        each part of the loss has decreased to that percentage of its initial value;
        ``plateau`` = ln D, ``initial_loss`` = ln(R D), ``learning_rate``,
        ``growth_ratio`` of the two exponential growth rates, ``plateau_steps`` between
        the halves.
    """
    rows: Rows = {}
    crossings: Rows = {}
    flow = dynamics.flow()
    in_steps = replace(flow, rhs={x: eta * rate for x, rate in flow.rhs.items()})
    for part in PARTS:
        for label, (share, words) in SHARES.items():
            name = f"steps_{part.name}_{label}"
            steps = timescales.time_of_share(p, part, share) / p.eta
            text = f"steps until the {part.name} loss is down to {words}"
            rows[name] = steps, text, "steps"
            crossings[name] = (in_steps, p, timescales.level(part, share))
    values = p.values()
    losses = dynamics.losses()
    height = losses["plateau"].number(values)
    start = losses["initial_loss"].number(values)
    ratio = timescales.equations()["growth_ratio"].number(values)
    length = rows["steps_subject_50"][0] - rows["steps_relation_50"][0]
    rows["plateau"] = height, "loss while only the relation is known, ln D"
    rows["initial_loss"] = start, "loss at the start, ln(R D)"
    rows["learning_rate"] = p.eta, "flow time per step"
    rows["growth_ratio"] = ratio, "growth rate of the relation / of the subject"
    text = "steps from half the relation loss to half the subject loss"
    rows["plateau_steps"] = length, text
    notes = []
    if ratio <= 1:
        notes.append(
            "the subject is learned no later than the relation: no plateau at ln D"
        )
    elif rows["steps_subject_90"][0] < rows["steps_relation_10"][0]:
        notes.append("the two transitions overlap: the plateau at ln D is not flat")
    end = 1.6 * p.eta * max(rows[f"steps_{part.name}_10"][0] for part in PARTS)

    def equations() -> list[Equation]:
        derived = losses | flow.equations() | dynamics.equations()
        return [*(derived | timescales.equations()).values()]

    return tabulated(
        rows,
        curves=lambda: {"flow": curve(p, until or end)},
        equations=equations,
        plot=draw,
        notes=notes,
        setting={name: values[name] for name in ("S", "R", "D", "epsilon", "eta")},
        crossings=crossings,
    )


emergence_times = of_onset(onset)


def curve(p: Parameters, end: float) -> xr.Dataset:
    """Solution of the flow up to the time ``end``,
    with steps as a second coordinate.
    """
    solution = dynamics.flow().solve(p, t=end)
    return solution.assign_coords(step=("t", solution.t.values / p.eta))


def draw(result: Onset, axes: Any) -> None:
    """Loss with its plateau (left), and its two parts with their crossings (right),
    over steps.
    """
    from theory.runtime import plotting  # imports matplotlib, needed for figures only

    loss, parts = axes
    curve = result.curves()["flow"]
    numbers = result.numbers
    loss.plot(curve.step, curve.loss, label="loss, flow")
    start = numbers["initial_loss"]
    nothing = r"$\ln(RD)$: nothing known"
    loss.axhline(start, color="0.5", lw=0.9, ls="--", label=nothing)
    ignored = r"$\ln D$: relation known, subject ignored"
    loss.axhline(numbers["plateau"], color="0.5", lw=0.9, ls=":", label=ignored)
    loss.set(ylabel="cross-entropy [nats]", ylim=(0, 1.05 * start))
    shares = [share for share, _ in SHARES.values()]
    for part, colour in ((RELATION, "C0"), (SUBJECT, "C1")):
        name = part.name
        share = curve[f"loss_{name}"] / curve[f"loss_{name}"][0]
        parts.plot(curve.step, share, color=colour, label=f"{name}, flow")
        steps = [numbers[f"steps_{name}_{label}"] for label in SHARES]
        parts.plot(steps, shares, "o", color=colour, ms=4)
    parts.plot([], [], "ko", ms=4, label="down to 90, 50, 10%")
    parts.set(ylabel="part of the loss / its start", ylim=(0, 1.05))
    for axis in axes:
        axis.set(xlabel=r"training step = $t/\eta$", xlim=(0, float(curve.step[-1])))
        plotting.below(axis)
