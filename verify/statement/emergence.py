"""Emergence times of students of a statement against a formula, and against descent on
the flow.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from simulate.statement import of
from theory.statement import model, onset
from theory.statement.words.stated import Statement
from verify.checks.check import Band, Check, identity, sampled, with_notes
from verify.compare.emergence import first_crossing
from verify.rates import rates

LONGER = 1.2  # runs, than the predicted time
NOISE = Band(-0.005, 0.005, "noise of batches, which moves class means in second order")


def setting(stated: Statement, p: Any) -> str:
    """Sizes and numbers of a setting."""
    return ", ".join(f"{s.name} = {getattr(p, s.name)}" for s in stated.symbols)


def by_flow(
    stated: Statement, p: Any, variable: str, level: float, until: float
) -> float:
    """Time at which a variable of the flow reaches a level."""
    flow = onset.at_sizes(stated, p).flow
    shown = flow.observables.get(variable) or next(
        x for x in flow.state if x.name == variable
    )
    event = {"time": shown - level}
    return float(flow.solve(p, at=[0.0], t=until, events=event)["time"])


def approached(
    stated: Statement,
    settings: Sequence[Any],
    variable: str,
    predicted: Callable[[Any], float],
    equation: str,
    small: Callable[[Any], float],
    order: float | None = 1,
    level: float = 0.5,
) -> Check:
    """Row: the power of something small with which the flow's time approaches a
    formula.

    Parameters
    ----------
    stated, settings, variable, predicted, equation, level
        As for `emergence`.
    small : callable
        What is small, at given parameters.
    order : float or None
        The power; None for a formula that is exact.
    """
    times = [predicted(p) for p in settings]
    found = [
        by_flow(stated, p, variable, level, LONGER * t)
        for p, t in zip(settings, times, strict=True)
    ]
    shares = [x / t for x, t in zip(found, times, strict=True)]
    name = (
        f"power in which the formula for {variable} = {level:g} is approached, from"
        f" {setting(stated, settings[0])}"
    )
    return rates(1.0, shares, [small(p) for p in settings], order).check(name, equation)


@with_notes
def emergence(
    stated: Statement,
    settings: Sequence[Any],
    variable: str,
    predicted: Callable[[Any], float],
    equation: str,
    off: Band | None = None,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    level: float = 0.5,
    progress: bool = False,
) -> Iterator[Check | str]:
    """Checks of a formula for the time at which a variable of the flow reaches a level.

    Parameters
    ----------
    stated : Statement
    settings : sequence of Parameters
    variable : str
        Name of an order parameter or observable.
    predicted : callable
        The time at given parameters.
    equation : str
        The formula's name.
    off : Band, optional
        How far the formula may be from the flow, and why; steps are of the same order.
        Not needed where `approached` compares the two.
    seeds : sequence of int
        Of the students at each setting.
    level : float
    progress : bool

    Returns
    -------
    checks, notes
        Formula against flow, students against formula, students against descent in
        equal steps.
    """
    yield f"time at which {variable} = {level:g}: formula, flow, descent, students"
    for p in settings:
        time = predicted(p)
        p = p.run_to(LONGER * time)
        exact = by_flow(stated, p, variable, level, LONGER * time)
        runs = of(stated).train(p, seeds=tuple(seeds), progress=progress)
        times = first_crossing(runs[variable], level).values
        descent = model.theory_of(stated).predict(p, runs)[variable].expand_dims("seed")
        slow = float(first_crossing(descent, level).values[0])
        where = setting(stated, p)
        what = f"time of {variable} = {level:g}"
        if off:
            by, why = f"{what} by the flow, {where}", off.why
            yield identity(by, equation, time, exact, off.high, why)
            yield sampled(f"{what}, students, {where}", equation, time, times, band=off)
        yield sampled(
            f"{what} by descent, students, {where}", "flow", slow, times, band=NOISE
        )
        values = ", ".join(f"{x:.5g}" for x in (time, exact, slow, times.mean()))
        yield f"  {where}: {values}"
