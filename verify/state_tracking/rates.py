"""How the time of A = 1/2 approaches its expansions at large L and N."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import sympy as sp

from theory.state_tracking import composite, exact, thermodynamic_limit
from theory.state_tracking.composite import lock_function
from theory.state_tracking.onset import equations as onset_equations
from theory.state_tracking.quadrature import emergence_time
from verify.checks.check import Check, listed
from verify.rates import rates

LENGTHS = 4.0 ** np.arange(6, 11)
STATES = 2.0 ** np.arange(5, 9)
ROUNDING = 1e-12  # of quadratures


def sized(L: Any, N: Any) -> dict[str, Any]:
    """As many actions as states, from A = 1/L and no logits; of arrays, too."""
    zero = dict.fromkeys(("zeta", "R_0", "S_0"), 0.0)
    return zero | {
        "L": L,
        "N": N,
        "d_g": N,
        "tau": 1 / N,
        "A_0": 1 / L,
        "eta": 0.5,
        "c_omega": 2.0,
    }


@listed
def of_sizes() -> Iterator[Check]:
    """Where N and d_g grow like L, and where they grow at L = 10."""
    v = sized(LENGTHS, LENGTHS)
    half = composite.H(sp.sqrt(2) * sp.sqrt(-sp.log(1 - exact.level)))
    steep = exact.equations()["kappa"].evaluate(v) / LENGTHS
    v |= {"a": 0.5, "kappa_L": steep, half: lock_function(np.sqrt(2 * np.log(2)))}
    times = emergence_time(sized(LENGTHS, LENGTHS))
    for name, order in (("alpha_level_large_L", 1.5), ("alpha_star", 0.5)):
        stated = (composite.equations() | onset_equations())[name]
        told = np.broadcast_to(stated.evaluate(v), LENGTHS.shape)
        rate = rates(told, times, 1 / LENGTHS, order, rounding=ROUNDING)
        yield rate.check(f"power of 1/L in what {name} leaves out", name)
    limit = thermodynamic_limit()
    event = {"half": limit.state[0] - sp.Rational(1, 2)}
    sizes = sized(10.0, STATES)
    expressions = (*limit.expanded.values(), *limit.initial.values())
    symbols = set().union(*(each.free_symbols for each in expressions))
    kept = {x.name: sizes[x.name] for x in symbols if x.name in sizes}
    solved = limit.solve(kept, at=[0.0], alpha=30.0, events=event)
    endless = float(solved["half"])
    rate = rates(endless, emergence_time(sizes), 1 / STATES, rounding=ROUNDING)
    yield rate.check(
        "power of 1/N in what the thermodynamic limit leaves out", limit.name
    )


GROUPS = (of_sizes,)
