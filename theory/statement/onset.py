"""Growth rates and emergence times of a stated model."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import xarray as xr

from theory.linearised import linearised
from theory.onset import Onset, tabulated
from theory.parameters import ParameterError
from theory.statement import kept
from theory.statement.derived import Derived
from theory.statement.stated import Statement
from theory.statement.tree import require

SHARES = (0.1, 0.5, 0.9)  # of what the loss falls by
FIRST, LONGEST = 1.0, 1e9  # lengths of a run that looks for its own end
SETTLED = 0.02  # part of the loss's fall that the second half of a run may add
AT = 401  # times of a curve


def onset(made: Derived, p: Any, until: float | None = None) -> Onset:
    """Times at which the loss falls, and growth rates at small weights.

    Parameters
    ----------
    made : Derived
    p : Parameters
        As `theory.statement.model.parameters` makes them.
    until : float, optional
        Length of the run; by default one that doubles until its second half adds little.

    Raises
    ------
    ParameterError
        If a size or number has no value.
    """
    flow = concrete(made, p).flow
    curve = _run(flow, p, until)
    end, begun, fall = (
        float(curve.t[-1]),
        float(curve.loss[0]),
        float(curve.loss[0] - curve.loss[-1]),
    )
    numbers: dict[str, tuple[Any, ...]] = {
        "run": (end, "length of the run"),
        "loss_start": (begun, "loss at the start"),
        "loss_end": (begun - fall, "loss at the end of the run"),
    }
    events = {f"t_{share:.0%}".rstrip("%"): share for share in SHARES if fall > 0}
    loss = flow.observables["loss"]
    crossed = {name: loss - (begun - share * fall) for name, share in events.items()}
    times = flow.solve(p, at=[end], events=crossed, t=end) if events else {}
    for name, share in events.items():
        label = f"time at which the loss has done {share:.0%} of its fall"
        numbers[name] = (float(times[name]), label, "t")
    try:
        modes, notes = linearised(flow, dict.fromkeys(flow.state, 0), p), []
    except ParameterError:
        modes, notes = [], ["zero weights are no fixed point: no growth rates there"]
    for k, mode in enumerate(modes, 1):
        numbers[f"growth_{k}"] = (
            float(np.real(mode.rate)),
            "growth rate at zero weights, real part",
        )
    return tabulated(
        numbers,
        curves=lambda: {"flow": curve},
        equations=lambda: list(made.equations().values()),
        absent=dict.fromkeys(events, "not within the run"),
        notes=notes,
        setting={s.name: getattr(p, s.name) for s in made.statement.symbols},
    )


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
    said = f"statement {stated.name}: of a closure over teachers there are no students yet"
    require(not made.shared, said)
    return made


@functools.lru_cache(maxsize=16)  # the flow of written sums takes seconds
def _written(stated: Statement, sizes: tuple[tuple[str, int], ...]) -> Derived:
    return kept.derived(stated).written(dict(sizes))


def sized(stated: Statement, p: Any) -> dict[str, int]:
    """Sizes of a statement at given parameters.

    Raises
    ------
    ParameterError
        If a size or number has no value.
    """
    for s in stated.symbols:
        said = f"{s.name}: has no value; set it by --set {s.name}=VALUE, or by values= in the statement"
        require(getattr(p, s.name) is not None, said)
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
