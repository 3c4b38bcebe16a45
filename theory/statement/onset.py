"""Growth rates and emergence times of a stated model."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from theory.call import scope
from theory.call.refusal import ParameterError
from theory.dynamics.conserved import linearised
from theory.dynamics.onset import Onset, tabulated
from theory.dynamics.sensitivities import Fall
from theory.equations.equation import Equation
from theory.statement.derivation import remedies
from theory.statement.derivation.derived import Derived
from theory.statement.randomness import passage, random_starts, rare_starts
from theory.statement.randomness.random_starts import EVENTS
from theory.statement.words.stated import Statement
from theory.statement.words.tree import require

FIRST, LONGEST = 1.0, 1e9  # lengths of a run that looks for its own end
SETTLED = 0.02  # part of the loss's fall that the second half of a run may add
AT = 401  # times of a curve
FINE = 3e-14  # relative error of a step that sets a time: the finest of LSODA
DRAWS = 4000  # starts of an onset
SHOWN = 5  # whose loss is drawn
QUANTILES = (0.05, 0.95)
LEFT_OUT = 0.1  # relative size of the next order at which a closed form is none
# of half of the fall, by batches: at 5% leading order was seen to be off by a quarter
DELAY = 0.01
# by which, and to what size, entries outside of the classes may grow
GROWN, SMALL = 3, 1 / 3


def onset(
    made: Derived, p: Any, until: float | None = None, fluctuations: bool = False
) -> Onset:
    """Times at which the loss falls, and growth rates at small weights.

    Parameters
    ----------
    made : Derived
    p : Parameters
        As `theory.statement.model.parameters` makes them.
    until : float, optional
        Length of the run; by default one that doubles until its second half adds
        little.
    fluctuations : bool
        Also what steps and batches of descent do to these times and to the curve, and
        where batches delay half of the fall; of weights that start at random what
        entries beside the means of their classes do.

    Raises
    ------
    ParameterError
        If a size or number has no value, or there are no fluctuations
        (`theory.dynamics.solution.solve`).
    """
    made = concrete(made, p)
    if random_starts.laws(made):
        return _random(made, p, until, fluctuations)
    flow = made.flow
    curve = _run(flow, p, until)
    end = float(curve.t[-1])
    begun = float(curve.loss[0])
    fall = float(curve.loss[0] - curve.loss[-1])
    numbers: dict[str, tuple[Any, ...]] = {
        "run": (end, "length of the run"),
        "loss_start": (begun, "loss at the start"),
        "loss_end": (begun - fall, "loss at the end of the run"),
    }
    events = EVENTS if fall > 0 else {}
    loss = flow.observables["loss"]
    crossed = {name: loss - (begun - share * fall) for name, share in events.items()}
    trained = ["eta", "batch_size"] * fluctuations
    absent = dict.fromkeys(events, "not within the run")
    fine: dict[str, Any] = {"events": crossed, "t": end, "rtol": FINE}
    times = flow.solve(p, at=[end], **fine) if events else {}
    if fluctuations and events:
        times = curve = flow.solve(p, at=curve.t, fluctuations=True, **fine)
    for name, share in events.items():
        label = f"time at which the loss has done {share:.0%} of its fall"
        numbers[name] = (float(times[name]), label, "t")
    if fluctuations and events:
        numbers |= (noise := _noise(p, times))
        absent |= dict.fromkeys(
            noise, "not claimed: too large, near a minimum, or no delay"
        )
    try:
        modes = linearised(flow, dict.fromkeys(flow.state, 0), p)
        notes = []
    except ParameterError:
        modes = []
        notes = ["zero weights are no fixed point: no growth rates there"]
    for k, mode in enumerate(modes, 1):
        numbers[f"growth_{k}"] = (
            float(np.real(mode.rate)),
            "growth rate at zero weights, real part",
        )
    fields = [s.name for s in made.statement.symbols] + trained
    return tabulated(
        numbers,
        curves=lambda: {"flow": curve.drop_vars(numbers, errors="ignore")},
        equations=lambda: list(made.equations().values()),
        absent=absent,
        notes=notes,
        setting={name: getattr(p, name) for name in fields},
        crossings={name: (flow, p, event) for name, event in crossed.items()},
        falls={name: (Fall(loss, share), end) for name, share in events.items()},
    )


def _noise(p: Any, times: Any) -> dict[str, tuple[float, str]]:
    """What steps and batches of descent do to times, and how much batches delay half of
    the fall, to leading order.
    """
    numbers = {}
    for name in EVENTS:
        shift, spread = (float(times[f"{name}_{x}"]) for x in ("bias", "sd"))
        numbers[f"{name}_bias"] = (
            shift,
            f"what steps and batches add to the mean {name}",
        )
        numbers[f"{name}_sd"] = (
            spread,
            f"standard deviation of {name} over students, to order (eta / B)^(1/2)",
        )
    noise = times.t_50_bias.attrs["noise"] / float(times.t_50)
    delay = noise * p.batch_size / p.eta
    most = DELAY / delay if delay > 0 else np.nan
    numbers["delay"] = (delay, "relative delay of t_50 by batches, per eta / B")
    numbers["eta_B_1"] = (most, f"eta / B at which batches delay t_50 by {DELAY:.0%}")
    return numbers


def _random(made: Derived, p: Any, until: float | None, fluctuations: bool) -> Onset:
    """Times of drawn starts, and their closed form."""
    narrow(made, p)
    drawn = random_starts.times(made, p, DRAWS, until=until)
    run, begun, end = (drawn.attrs[k] for k in ("run", "loss_start", "loss_end"))
    numbers: dict[str, tuple[Any, ...]] = {
        "draws": (DRAWS, "starts that were drawn"),
        "run": (run, "length of the run"),
        "loss_start": (begun, "loss at the mean of the start"),
        "loss_end": (end, "least loss at the end of a run"),
    }
    for name, share in EVENTS.items():
        label = f"time at which the loss has done {share:.0%} of its fall, median"
        numbers[name] = (float(drawn[name].median()), label, "t")
    for q in QUANTILES:
        label = f"half of its fall, by {q:.0%} of starts"
        value = np.quantile(drawn.t_50, q, method="inverted_cdf")
        numbers[f"t_50_{q:.0%}".rstrip("%")] = (float(value), label, "t")
    never, error = rare_starts.share(
        made, p, drawn, lambda of: np.isinf(np.asarray(of["t_90"]))
    )
    label = "share of starts that do not get through it within the run"
    numbers["never"] = (never, label + (f", +- {error:.2g}" if error else ""))
    notes = [f"{random_starts.ASSUMED}; against students: verify.trajectories"]
    for name in made.observables:
        share, error = rare_starts.share(made, p, drawn, _positive(name))
        if 0 < share < 1 - never:
            numbers[f"P_{name}"] = (
                share,
                f"share of starts with {name} > 0 then, +- {error:.2g}",
            )
    found = passage.passage(made, p, half := (begun + end) / 2, round(run / p.eta))
    if fluctuations:
        label = "what scatter about class means adds to the mean t_50, to order sigma^2"
        numbers["beside_means"] = (passage.beside(made, p, found, half), label, "t")
    if isinstance(found, str):
        notes.append(f"no closed form: {found}")
    elif found.next > LEFT_OUT:
        notes.append(
            f"no closed form: the next order would be {found.next:.0%} of the time"
        )
        found = ""
    else:
        more = (0.03 / found.next) ** (1 / found.power) if found.next > 0 else np.inf
        notes.append(
            f"closed form: the next order is {found.next:.2g} of the time, and 3% for"
            f" initial weights {more:.3g} times as large"
        )
        for q in (QUANTILES[0], 0.5, QUANTILES[1]):
            label = f"half of its fall, by {q:.0%} of starts, closed form"
            numbers[f"closed_{q:.0%}".rstrip("%")] = (found.quantile(q), label)
        if found.saddle:
            numbers["Lambda"] = (
                found.rate,
                "growth rate of the fastest direction, in steps",
            )
            numbers["directions"] = (found.many, "that grow as fast")
    notes += within(made, p, min(numbers["t_50"][0], run))
    absent = {name: "not within the run" for name in numbers if name.startswith("t_")}
    absent["beside_means"] = (
        "not claimed: too large, or times without a closed form of one direction"
    )

    def equations() -> list[Equation]:
        closed = [] if isinstance(found, str) else found.equations(made)
        return [*made.equations().values(), *closed]

    return tabulated(
        numbers,
        curves=lambda: _curves(made, p, drawn, found),
        equations=equations,
        absent=absent,
        notes=notes,
        setting={s.name: getattr(p, s.name) for s in made.statement.symbols},
    )


def _positive(name: str) -> Callable[[Any], np.ndarray]:
    return lambda of: np.asarray(of[name]) > 0


def narrow(made: Derived, p: Any) -> float:
    """Refuse entries that scatter widely about the means of their classes; the largest
    standard deviation.
    """
    scatter = {w: math.sqrt(x) for w, x in random_starts.variances(made, p).items()}
    for w, size in scatter.items():
        if (
            size > SMALL
        ):  # at 0.5 the 5% quantile of a copying head was seen to be off by 8%
            begun = (
                f"start of {w.name}: entries of {w.start} have standard deviation"
                f" {size:.3g}"
            )
            theory = "the flow of class means, which leaves it out"
            scope.refuse([f"{begun}: must be at most {SMALL:.2g} for {theory}"])
    return max(scatter.values())


def within(made: Derived, p: Any, time: float) -> list[str]:
    """Refuse students that class means do not describe, as entries scatter widely about
    them, or directions outside of the classes grow by a time; a note if inputs are too
    many to know.

    Raises
    ------
    ParameterError
        Unless called with ``beyond=True``.
    """
    widest = narrow(made, p)
    rates = _growth(made.statement, p)
    if rates is None:
        return [
            "growth outside of the classes: not known, as the inputs are too many to"
            " list"
        ]
    grown = np.exp(min(rates[1] * time, 700.0))
    if grown > GROWN and widest * grown > SMALL:
        names = ", ".join(f"start of {w.name}" for w in random_starts.laws(made))
        scope.refuse(
            [
                f"{names}: entries leave the means of their classes at the rate"
                f" {rates[1]:.3g} (these grow at {rates[0]:.3g}): no flow of classes"
                " describes these students; train them"
            ]
        )
    return []


@functools.lru_cache(maxsize=16)
def _growth(stated: Statement, p: Any) -> tuple[float, float] | None:
    return passage.outside(at_sizes(stated, p), p)


def _curves(
    made: Derived, p: Any, drawn: xr.Dataset, found: Any
) -> dict[str, xr.Dataset]:
    """Share of starts that have got through half of the fall, and the loss of some."""
    t = np.linspace(0, 1.2 * float(drawn.t_50.where(np.isfinite(drawn.t_50)).max()), AT)
    shares = {"drawn starts": ("t", (drawn.t_50.values[:, None] <= t).mean(0))}
    if not isinstance(found, str):
        shares["closed form"] = ("t", 1 - found.later(t))
    x = random_starts.ordered(made, random_starts.starts(made, p, SHOWN))
    steps = np.unique(np.rint(t / p.eta).astype(int))
    losses = random_starts.Bulk(made.flow, p).at(x, steps)["loss"]
    each = {f"start {k}": ("t", loss) for k, loss in enumerate(losses, 1)}
    return {
        "loss": xr.Dataset(each, {"t": p.eta * steps}, {"marks": []}),
        "share of starts, loss half-way": xr.Dataset(
            shares, {"t": t}, {"marks": ["t_50_5", "t_50", "t_50_95"]}
        ),
    }


def concrete(made: Derived, p: Any) -> Derived:
    """A derivation at the sizes of the parameters, if sums have to be written out.

    Raises
    ------
    ParameterError
        If a size or number has no value.
    """
    return made.written(sized(made.statement, p))


def at_sizes(stated: Statement, p: Any) -> Derived:
    """Derived results of a statement at the sizes of parameters.

    Raises
    ------
    ParameterError
        If a size or number has no value, or the student has no classes (a closure).
    """
    made = _written(stated, tuple(sized(stated, p).items()))
    message = (
        f"statement {stated.name}: of a closure over teachers there are no students yet"
    )
    require(not made.shared, message)
    return made


@functools.lru_cache(maxsize=16)  # the flow of written sums takes seconds
def _written(stated: Statement, sizes: tuple[tuple[str, int], ...]) -> Derived:
    return remedies.derived(stated).written(dict(sizes))


def sized(stated: Statement, p: Any) -> dict[str, int]:
    """Sizes of a statement at given parameters.

    Raises
    ------
    ParameterError
        If a size or number has no value.
    """
    for s in stated.symbols:
        message = (
            f"{s.name}: has no value; set it by --set {s.name}=VALUE, or by values= in"
            " the statement"
        )
        require(getattr(p, s.name) is not None, message)
    return {s.name: getattr(p, s.name) for s in stated.symbols if s.is_integer}


def _run(flow: Any, p: Any, until: float | None) -> xr.Dataset:
    end = until or FIRST
    while True:
        curve = flow.solve(p, at=np.linspace(0, end, AT), t=end)
        fall = curve.loss - curve.loss[0]
        late = abs(float(fall[-1] - fall[AT // 2]))
        moved = float(abs(fall).max()) > 1e-3 * max(abs(float(curve.loss[0])), 1e-12)
        if until or end > LONGEST or (moved and late < SETTLED * abs(float(fall[-1]))):
            return curve
        end *= 2
