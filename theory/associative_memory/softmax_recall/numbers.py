"""Time at which the relation is found, as a number."""

from typing import Any

import numpy as np

from theory import Limit, Scope, scope, sweep
from theory.associative_memory.softmax_recall.emergence import relation_time

FIRST = 2  # how much faster the relation has to be


def ahead(p: Any) -> float:
    """Time of the subject divided by that of the relation, each alone, for many tokens."""
    return float(p.S / p.R * np.sqrt((p.R - 1) / (p.D - 1)))


SCOPE = Scope(
    "softmax_recall_emergence",
    "gradient descent in small steps from zero weights, where the relation comes first",
    (
        Limit("T", "at least 8", lambda p, runs: p.T >= 8),
        Limit("n", "at least R", lambda p, runs: p.n >= p.R, reads=("R",)),
        Limit(
            "S",
            f"at least {FIRST} R sqrt((D - 1)/(R - 1)), with R and D at least 2",
            lambda p, runs: min(p.R, p.D) > 1 and ahead(p) >= FIRST,
            reads=("R", "D"),
        ),
    ),
    free=("eta", "steps", "eval_every", "batch_size"),
)
applies = scope.applies({"emergence": SCOPE})


@scope.guard(SCOPE)
@sweep.over_fields
def emergence_time(p: Any) -> float:
    """Time at which attention to the relation is 1/2, by the integral of
    `softmax_recall_emergence`.

    In time of the flow, at any learning rate; `emergence_times` refuses those with few steps.
    """
    return relation_time(p.S, p.R, p.D, p.T, p.n)


def plateau(p: Any) -> float:
    """Loss while only the relation is known."""
    return float(np.log(p.D))


NUMBERS = {
    "plateau": (plateau, "loss while only the relation is known, ln D"),
    "t_relation": (
        emergence_time,
        "time at which attention to the relation is 1/2, by an integral",
    ),
}
