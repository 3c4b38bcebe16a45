"""Time at which attention emerges, as a number."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from theory import numeric, scope, sweep
from theory.associative_memory.retrieval import emergence
from theory.associative_memory.retrieval.emergence import K, path
from theory.associative_memory.retrieval.statement import M, N, P
from theory.scope import Limit, Scope
from theory.special import gauss_legendre

NODES = 60  # of the integral over the root of the score, which is analytic


@cache
def compiled() -> Any:
    """The integrand, and the read-out beside it, at a score."""
    read_out = sp.sqrt(emergence.law())
    integrand = emergence.emergence().function.subs(path, read_out)
    return [numeric.function(x, (K, N, M, P)) for x in (integrand, read_out)]


def half(p: Any) -> float:
    """Share of what is left, one value each, in the sum behind the softmax that is the right
    value's at attention 1/2.
    """
    return float(np.exp(compiled()[1](np.log(p.P - 1), p.N, p.M, p.P) / 2) / p.M)


SCOPE = Scope(
    "retrieval_emergence",
    "gradient descent in small steps from zero weights, whose attention emerges while most of the "
    "probability lies on values that are not shown",
    (
        Limit("P", "at least 3", lambda p, runs: p.P >= 3, lambda p, runs: p.P),
        Limit(
            "N",
            "so small that exp(read-out/2) stays below M until attention is 1/2",
            lambda p, runs: p.P < 3 or half(p) < 1,
            lambda p, runs: p.N,
            ("M", "P"),
        ),
    ),
    free=("eta", "steps", "eval_every", "batch_size"),
)
applies = scope.applies({"emergence": SCOPE})


@scope.guard(SCOPE)
@sweep.over_fields
def emergence_time(p: Any) -> float:
    """Time at which attention to the right key is 1/2, by the integral of `retrieval_emergence`.

    Parameters
    ----------
    p : Parameters
        Of the softmax head.
    """
    root, weights = gauss_legendre(NODES, 0, float(np.sqrt(np.log(p.P - 1))))
    values = compiled()[0](root**2, p.N, p.M, p.P)
    return float(2 * (weights * root * values).sum())


def numbers(p: Any) -> dict[str, tuple[float, str]]:
    """For the onset: where it applies."""
    if SCOPE.applies(p):
        return {}
    return {"t_half": (emergence_time(p), "time at which attention is 1/2, by an integral")}


