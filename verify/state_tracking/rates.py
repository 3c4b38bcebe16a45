"""How the exact solution approaches its expansions at large L, N and d_g and early times; and
momentum plain descent.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import sympy as sp

from theory.state_tracking import composite, exact, inversion
from theory.state_tracking import flows as made
from theory.state_tracking.numbers import composite as by_D
from theory.state_tracking.numbers.quadrature import emergence_time
from theory.state_tracking.onset import equations as onset_equations
from verify.check import Check, listed
from verify.rates import rates
from verify.state_tracking import clocks

LENGTHS = 4.0 ** np.arange(6, 11)
STATES = 2.0 ** np.arange(5, 9)  # at L = 10
TIMES = np.array([0.4, 0.2, 0.1, 0.05])
ENDLESS = 1e12
ROUNDING = 1e-12  # of quadratures
LOCKED = float(np.sqrt(2 * np.log(2)))  # sqrt(kappa) D where A = 1/2


def sized(L: float, N: float) -> dict[str, Any]:
    """Numbers of a system of any size: as many actions as states, from A = 1/L and no logits."""
    zero = dict.fromkeys(("zeta", "R_0", "S_0"), 0.0)
    return zero | {"N": N, "d_g": N, "L": L, "eta": 0.5, "c_omega": 2.0, "tau": 1 / N, "A_0": 1 / L}


@listed
def of_composite() -> Iterator[Check]:
    """At all times: A to order 1/L, R to L^(-3/2), where N and d_g grow like L."""
    gaps = []
    for L in LENGTHS:
        v, knee = sized(L, L), 8 * np.sqrt(2 / L)
        path = [np.linspace(0, knee, 200), np.linspace(knee, 6 + np.log(L), 100)[1:]]
        curve = by_D.composite(v, np.concatenate(path))
        there = inversion.states(v, curve["alpha"])
        gaps.append([np.abs(curve[x] - there[x]).max() for x in "AR"])
    for x, order, found in zip("AR", (1, 1.5), np.transpose(gaps), strict=True):
        name = f"power of 1/L in the error of {x} in the composite solution"
        yield rates(0.0, found, 1 / LENGTHS, order).check(name, "alpha_composite")


@listed
def of_onset() -> Iterator[Check]:
    """Times of A = 1/2 at large L, its limit, and the limit of many states; A at early times."""
    points = [sized(L, L) for L in LENGTHS]
    times = [float(emergence_time(v)) for v in points]
    lock = composite.H(sp.sqrt(2) * sp.sqrt(-sp.log(1 - exact.level)))
    more = {"a": 0.5, lock: by_D.lock_function(LOCKED)}
    steep = [exact.equations()["kappa"].evaluate(v) / v["L"] for v in points]
    known = composite.equations() | onset_equations()
    for name, order in (("alpha_level_large_L", 1.5), ("alpha_star", 0.5)):
        told = [
            float(known[name].evaluate({**v, **more, "kappa_L": k}))
            for v, k in zip(points, steep, strict=True)
        ]
        rate = rates(told, times, 1 / LENGTHS, order, rounding=ROUNDING)
        yield rate.check(f"power of 1/L in what {name} leaves out", name)
    limit = made()["state_tracking, thermodynamic limit"]
    event = {"half": limit.state[0] - sp.Rational(1, 2)}
    endless = float(limit.solve(sized(10.0, 1.0), at=[0.0], alpha=30.0, events=event)["half"])
    finite = [float(emergence_time(sized(10.0, N))) for N in STATES]
    name = "power of 1/N in what the thermodynamic limit leaves out of the time of A = 1/2"
    yield rates(endless, finite, 1 / STATES).check(name, limit.name)
    v = sized(ENDLESS, ENDLESS)
    shares = inversion.states(v, TIMES)["A"] / known["onset_A"].evaluate(v | {"alpha": TIMES})
    departure = known["onset_departure"].evaluate(v | {"alpha": TIMES})
    for name, told, found, order in (
        ("onset_A", 1.0, shares, 4),
        ("onset_departure", departure, np.log(shares), 6),
    ):
        rate = rates(told, found, TIMES, order, rounding=ROUNDING)
        yield rate.check(f"power of alpha in what {name} leaves out", name)


GROUPS = (of_composite, of_onset, clocks.on_flow)
