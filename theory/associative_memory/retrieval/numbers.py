"""Time at which attention emerges, as a number."""

from typing import Any

import numpy as np

from theory import Limit, Scope, scope, sweep
from theory.associative_memory.retrieval import emergence
from theory.associative_memory.retrieval.emergence import K, half_time


@np.errstate(over="ignore")  # beyond all sizes that the limits allow
def half(p: Any) -> float:
    """Weight of the right value in the softmax's normaliser at attention 1/2, over M."""
    square = emergence.equations()["retrieval_read_out"]
    read_out = np.sqrt(square.evaluate({**p.as_dict(), K.name: float(np.log(p.P - 1))}))
    return float(np.exp(read_out / 2) / p.M)


SCOPE = Scope(
    "retrieval_emergence",
    "gradient descent in small steps from zero weights, whose attention emerges while most of the "
    "probability lies on values that are not shown",
    (
        Limit("P", "at least 3", lambda p, runs: p.P >= 3),
        Limit(
            "M",
            "above P, as nothing leaves zero weights where every value is shown",
            lambda p, runs: p.M > p.P,
            reads=("P",),
        ),
        Limit(
            "N",
            "so small that exp(read-out/2) stays below M/2 until attention is 1/2",
            lambda p, runs: p.P < 3 or half(p) < 1 / 2,
            reads=("M", "P"),
        ),
    ),
    free=("eta", "steps", "eval_every", "batch_size"),
)
applies = scope.applies({"emergence": SCOPE})


@scope.guard(SCOPE)
@sweep.over_fields
def emergence_time(p: Any) -> float:
    """Time at which attention to the right key is 1/2, by the integral of `retrieval_emergence`.

    In time of the flow, at any learning rate; `emergence_times` refuses those with few steps.

    Parameters
    ----------
    p : Parameters
        Of the softmax head.
    """
    return half_time(p.N, p.M, p.P)


TIMES = {"t_half": (emergence_time, "time at which attention is 1/2, by an integral")}
