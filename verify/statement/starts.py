"""Students of a statement from random initial weights, against the flow of their class
means.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from simulate.statement import of as students
from theory.call.refusal import ParameterError
from theory.runtime import plotting
from theory.statement import model, onset
from theory.statement.randomness import passage, random_starts
from theory.statement.words.stated import Statement
from verify.checks import ensemble_source
from verify.checks.check import Check, at_least, sampled, vanishing, with_notes
from verify.checks.report import Report, Request
from verify.compare.emergence import first_crossing

DRAWS = 4000
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SLACK = 1.1  # of a run, over the time that 99% of drawn starts take
LEAST = 0.7  # power of the error of a single seed: 1 in theory, 0 if starts were wrong
# error of a variance that a verdict must be able to see: entries of a class not counted
WIDE = 1.0


def report(stated: Statement, request: Request) -> Report:
    """Law of the starts, times of single seeds, and how their error falls with the
    weights.
    """
    if request.runs is None and request.until is None:
        p = request.parameters(ensemble_source.of(request.model).base)
        request = dataclasses.replace(request, until=length(stated, p))
    p, runs = ensemble_source.get(request)
    drawn = model.theory_of(stated).emergence_times(p, seeds=DRAWS)
    rows, notes = checks(stated, p, runs, drawn)
    if half := halved(stated, p):
        q = half.run_to(length(stated, half))
        seeds = tuple(runs.seed.values.tolist())
        smaller = students(stated).train(q, seeds, **request.training)
        rows.append(rate(stated, (p, runs), (q, smaller), drawn))
    else:
        notes.append(
            "sizes of initial weights that are one number(...) would show a rate, too"
        )
    return Report(rows, notes, draw=lambda: draw(runs, drawn))


def length(stated: Statement, p: Any) -> float:
    """Time that nearly all drawn starts take until the loss is half-way."""
    drawn = model.theory_of(stated).emergence_times(p, seeds=DRAWS).t_50
    known = drawn.values[np.isfinite(drawn.values)]
    return SLACK * float(np.quantile(known, 0.99))


def halved(stated: Statement, p: Any) -> Any:
    """Parameters with initial weights half as large, if one number gives the size of
    all.
    """
    sizes = {
        law.size
        for law in random_starts.laws(model.theory_of(stated).derived()).values()
    }
    size = sizes.pop()
    single = not sizes and size.is_Symbol and getattr(p, size.name)
    return p.replace(**{size.name: getattr(p, size.name) / 2}) if single else None


def level(drawn: xr.Dataset) -> float:
    """Loss half-way."""
    return (drawn.attrs["loss_start"] + drawn.attrs["loss_end"]) / 2


def times(stated: Statement, p: Any, runs: xr.Dataset, loss: float) -> tuple[Any, Any]:
    """Measured and predicted times of every student at which its loss falls below a
    level.
    """
    curve = model.theory_of(stated).predict(p, runs)
    one, two = (first_crossing(-x.loss, -loss).values for x in (runs, curve))
    return one, two


@with_notes
def checks(
    stated: Statement, p: Any, runs: xr.Dataset, drawn: xr.Dataset
) -> Iterator[Check | str]:
    """Law of the start, times from the same starts, and shares of circuits."""
    made = onset.at_sizes(stated, p)
    first = np.array([runs[x.name].isel(t=0).values for x in made.flow.state])
    spread = np.diag(passage.covariance(made, p))[:, None]
    random = spread[:, 0] > 0
    squares = (first[random] ** 2 / spread[random]).mean(0)
    yield sampled(
        "variance of class means at the start over the predicted one",
        "starts",
        1.0,
        squares,
        required=WIDE,
    )
    measured, predicted = times(stated, p, runs, level(drawn))
    both = np.isfinite(measured) & np.isfinite(predicted)
    late = int((np.isfinite(measured) != np.isfinite(predicted)).sum())
    name = "students of which one of theory and training alone is half-way"
    yield vanishing(name, "flow", late, 0, "counted")
    if both.sum() > 1:
        usual = float(drawn.t_50.values[np.isfinite(drawn.t_50)].mean())
        luck = float(predicted[both].mean()) / usual - 1
        yield (
            f"luck of these seeds: their starts take {luck:+.1%} of the mean over"
            f" {DRAWS} drawn ones"
        )
        try:
            found = passage.passage(
                made, p, level(drawn), round(drawn.attrs["run"] / p.eta)
            )
            shift = float(np.nan_to_num(passage.beside(made, p, found, level(drawn))))
            yield f"what scatter about class means adds to the mean time: {shift:.3g}"
        except ParameterError as error:
            found, shift = "", 0.0
            yield (
                "what scatter about class means adds to the mean time is left out:"
                f" {error}"
            )
        mean = float(predicted[both].mean())
        values = measured[both] - predicted[both] + mean
        what = "time at which the loss is half-way, from the same start"
        yield sampled(what, "flow", mean + shift, values)
        if (
            isinstance(found, passage.Passage) and not found.saddle
        ):  # there to all times alike
            predicted = predicted + shift
        off = predicted[both] / measured[both] - 1
        ours, theirs = (np.quantile(x[both], QUANTILES) for x in (predicted, measured))
        worst = np.abs(ours / theirs - 1).max()
        yield (
            f"single students off by {np.sqrt((off**2).mean()):.2%} (root mean square),"
            f" quantiles 5 to 95% by {worst:.2%}"
        )
    x = random_starts.ordered(made, random_starts.starts(made, p, DRAWS))
    ends = random_starts.Bulk(made.flow, p).at(x, runs.step.values[-1:])
    for name in made.observables:
        share = float((ends[name] > 0).mean())
        if 0 < share < 1:
            end = runs[name].isel(t=-1).values > 0
            what = f"share of students with {name} > 0 at the end, from sizes alone"
            yield sampled(what, "flow", share, end.astype(float), required=WIDE)


def rate(stated: Statement, one: Any, two: Any, drawn: xr.Dataset) -> Check:
    """How the error of single seeds falls as their initial weights are halved: as
    these.
    """
    errors = []
    for p, runs in (one, two):
        measured, predicted = times(stated, p, runs, level(drawn))
        off = measured - predicted
        errors.append(np.sqrt(np.nanmean(off**2)))
    power = float(np.log2(errors[0] / errors[1]))
    name = "power of initial weights in the error of a student's time"
    return at_least(
        name, "flow", LEAST, power, "1 in theory, and 0 if students started elsewhere"
    )


@plotting.panels(1, 2, height=3.0)
def draw(runs: xr.Dataset, drawn: xr.Dataset, *axes: Any) -> Any:
    """Loss of all students; share of them that is half-way, and of drawn starts."""
    for loss in runs.loss.transpose("seed", "t"):
        axes[0].plot(runs.t, loss, "C0", lw=0.7)
    found = first_crossing(-runs.loss, -level(drawn)).values
    for values, style, label in (
        (drawn.t_50.values, "k-", "drawn starts"),
        (found, "C0-", "students"),
    ):
        x = np.sort(values[np.isfinite(values)])
        axes[1].step(
            x, np.arange(1, len(x) + 1) / len(values), style, where="post", label=label
        )
    axes[0].set(xlabel="$t$ = learning rate times steps", title="loss")
    axes[1].set(xlabel="time at which the loss is half-way", title="share of students")
    plotting.below(axes[1])
