"""The gradient flow of all weights of the reduced model, with events and checks for both
systems.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import xarray as xr

from linear_attention.simulate import student
from linear_attention.simulate.student import Weights
from linear_attention.theory.onset import level
from linear_attention.theory.parameters import Parameters
from simulate.gradient_flow import integrate
from verify.check import Check, identity, near, vanishing
from verify.emergence import first_crossing
from verify.report import Report, Request, Table, gathered

ODE = 1e-6, "ODE of all weights at 1e-10"


def flow(p: Parameters, begun: Weights, until: float, **more: Any) -> Any:
    """Weights at some times, and times of events, of the flow of every reduced weight."""
    loss = student.population(p)
    return integrate(lambda weights: loss(weights) / 2, begun, until, **more)


def losses(p: Parameters, path: list[Weights]) -> list[float]:
    """Loss along a path."""
    return [float(x) for x in map(student.population(p), path)]


def dropping(p: Parameters) -> dict[str, Any]:
    """Event: the loss has completed three quarters of its total decrease."""
    loss, at = student.population(p), level(p)
    return {"drop": lambda weights: loss(weights) - at}


def learning(p: Parameters, directions: range) -> dict[str, Any]:
    """Events: a direction, counted from 0, is half learned."""
    half = student.final(p) / 2
    return {
        str(d): lambda weights, d=d: student.matrix(weights)[d, d] - half[d] for d in directions
    }


def conserved(table: Table, system: str, name: str, begun: Weights, last: Weights) -> list[Check]:
    """Checks that the invariants at the end of a flow equal those at its start and those of the
    equation.
    """
    known: dict[str, Any] = {x: v.detach().numpy() for x, v in last.items()}
    H, *_, D = known["U" if "U" in known else "K"].shape
    sizes = {"D": D, "R": known["K"].shape[1] if "K" in known else None}
    pairs = [(g, h) for g in range(1, H + 1) for h in range(1, H + 1)]
    places = pairs if system == "merged" else [(g, g) for g in range(1, H + 1)]
    by_equation = [table[name].evaluate({**known, **sizes, "g": g, "h": h}) for g, h in places]
    found = student.invariants(last)
    drift, there = found - student.invariants(begun), found[: len(places)].numpy()
    what = f"{system} invariants"
    return [
        vanishing(f"{what} along training", name, drift, 1e-7, ODE[1]),
        identity(f"{what} by the equation", name, by_equation, there, 1e-9, "rounding of sums"),
    ]


def added_by_steps(
    table: Table, name: str, base: float, known: Any, learned: xr.DataArray, at: str
) -> Check:
    """Delay by finite steps, relative to the time ``base`` at which the flow is half-way."""
    adds = float(first_crossing(learned, 0.5).values[0]) - base
    shift = float(table[name].evaluate(known)) - base
    return near(f"what a step adds, {at}", name, shift, adds, 0.04, "next order in eta")


def report(
    request: Request, table: Table, groups: Sequence[Any], students: Callable[..., list[Check]]
) -> Report:
    """Everything on the derived equations."""
    return Report([*gathered(groups, table), *students(table, **request.training)])
