"""How the flow approaches its expansions at large N,
and descent of a network the flow.
"""

from collections.abc import Iterator

import numpy as np

from theory import induction_heads as ih
from verify.checks.check import Check, listed
from verify.induction_heads import flow_laws
from verify.induction_heads.all_weights import all_weights_equations
from verify.induction_heads.flow_laws import emergence
from verify.rates import rates

SIZES = (32, 64, 128, 256)
LEVEL = 0.1  # of the times of which the leading term alone is known
ROUNDING = 1e-12  # of `emergence`, where nothing cancels


@listed
def of_times() -> Iterator[Check]:
    """Emergence times, of order N^2, without next terms of order 1/N,
    of thresholds N.
    """
    paths = [emergence.Path(N) for N in SIZES]
    times = {
        "T_beta": (3, [flow_laws.times(N)["T_beta"] for N in SIZES]),
        "T_alpha": (3, [flow_laws.times(N)["T_alpha"] for N in SIZES]),
        "T_beta_theta": (1, [path.of_beta(LEVEL) for path in paths]),
        "T_alpha_theta": (1, [path.of_alpha(LEVEL) for path in paths]),
    }
    inverse = 1 / np.array(SIZES)
    for name, (order, exact) in times.items():
        law = [ih.equations()[name].number({"N": N, "theta": LEVEL}) for N in SIZES]
        rate = rates(1.0, np.array(exact) / law, inverse, order, rounding=ROUNDING)
        yield rate.check(
            f"power of 1/N in the share of {name} that it leaves out", name
        )


def of_five() -> list[Check]:
    """The flow of five pseudo-parameters."""
    rows = all_weights_equations.five_numbers(ih.equations())
    return [row for row in rows if "order of its error" in row.name]


def of_exponents() -> list[Check]:
    """Theorem 2."""
    return [row for row in flow_laws.exponents()[0] if row.name.endswith("in N, flow")]


GROUPS = (of_times, of_five, of_exponents)
