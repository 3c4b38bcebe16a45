"""Which students the theories of state tracking describe."""

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from theory.call.scope import FEWEST, FULL_BATCH, Limit, Scope, configuration, only
from theory.dynamics.optimisers import Optimiser
from theory.numbers import numeric
from theory.state_tracking.model.symbols import c_omega, eta

MEASURED = ("n_test", "epochs", "eval_every")  # run length and measurement
WEIGHTS = Limit(
    "fix_embedding",
    "True (embeddings held at unity)",
    lambda p, runs: p.fix_embedding,
    reads=("d_model",),
)
OPTIMISER = tuple(f.name for f in dataclasses.fields(Optimiser))
ADAM = (
    "beta_1",
    "beta_2",
    "epsilon",
    "nesterov",
)  # at their defaults where nothing uses them
PLAIN = ("optimizer", "weight_decay", "momentum", "schedule", "warmup", "clip")
DESCENT = (
    WEIGHTS,  # first, so that another architecture is refused as such
    only("optimizer", "sgd"),
    FULL_BATCH,
    *(only(name, getattr(Optimiser(), name)) for name in PLAIN[1:]),
)
UNUSED = (*ADAM, "unit")  # by descent with all data
DRAWN = Limit(
    "permutations",
    "drawn, iid or distinct, or a group by name (else level fixed_disorder, or"
    " flow('tau'))",
    lambda p, runs: "given_permutations" not in configuration(runs),
    lambda p, runs: "given by the user",
)
GRADIENT = "full-batch gradient descent on the weights themselves"
TRAINING = (
    "training of the weights themselves, by any optimiser, with the seed's own batches"
)
ARCHITECTURE = Scope(
    "the attention constant and the variance of the logits",
    "attention with embeddings held at unity",
    (WEIGHTS,),
    ("eta", "n_train", "data_draw", "batch_size", "unit", *OPTIMISER, *MEASURED),
)


SHARP_ONSET = sp.pi / (eta * sp.sqrt(2 * c_omega))  # in alpha; derived in `onset`


@cache
def sharp_onset() -> Any:
    """`SHARP_ONSET` as a function of eta and c_omega."""
    return numeric.function(SHARP_ONSET, (eta, c_omega))


def steps_to_emergence(values: Mapping[str, Any]) -> Any:
    """Steps of descent until the sharp onset, infinite where attention does not move;
    for arrays, too.
    """
    constant, L, d_g = (np.asarray(values[n], float) for n in ("c_omega", "L", "d_g"))
    with np.errstate(divide="ignore"):
        star = sharp_onset()(values["eta"], constant)
    moving = (constant > 0) & (L > 1) & (d_g > 1)
    return np.where(moving, star * values["N"] * d_g, np.inf)


def _steps_of(p: Any) -> Any:
    """Steps to the onset of one point."""
    return steps_to_emergence(p.values())


STEPS = Limit(
    "eta",
    f"so small that A = 1/2 takes at least {FEWEST} steps",
    lambda p, runs: _steps_of(p) >= FEWEST,
    lambda p, runs: f"{p.eta:g} ({_steps_of(p):.2g} steps)",
    ("N", "L", "d_g", "d_h", "rope", "rope_theta"),
    pointwise=False,
)
DRAWN_DESCENT = (*DESCENT, DRAWN)
AS_FLOW = (*DRAWN_DESCENT, STEPS)


def _named(limit: Limit) -> Limit:
    """A limit that `predict` does not have names it."""
    if limit.field not in ("optimizer", "batch_size"):
        return limit
    words = f"{limit.words} (theory.state_tracking.predict has others)"
    return replace(limit, words=words)


FLOW = Scope(
    "the flow (15)",
    f"{GRADIENT}, teachers drawn",
    tuple(_named(limit) for limit in AS_FLOW),
    ("data_draw", *UNUSED, *MEASURED),
)


def flow_of(
    permutations: str, length: int | None = None, states: int | None = None
) -> Scope:
    """Scope of the flow (15) for one way of drawing teachers; for a given overlap, of
    any teachers. ``regular``: of a group acting on itself, for given L and N.
    """
    if permutations == "tau":
        return replace(FLOW, limits=DESCENT)
    if permutations == "regular":
        itself = Limit(
            "permutations",
            "a group acting on itself, as A_5_regular",
            lambda p, runs: p.teachers == "group" and p.N == p.d_g,
            reads=("N", "d_g"),
        )
        short = "the flow of a group acting on itself"
        sizes = (only("L", length), only("N", states))
        return replace(FLOW, theory=short, limits=(*FLOW.limits, itself, *sizes))
    words = "a group" if permutations == "group" else permutations
    kind = Limit(
        "permutations",
        f"{words} as the flow's teachers",
        lambda p, runs: p.teachers == permutations,
    )
    return replace(FLOW, limits=(*FLOW.limits, kind))


APART = only(
    "permutations", "iid", "distinct", words="iid or distinct (or level fixed_disorder)"
)
ONE_START = Scope(
    "the theory of one start",
    f"{GRADIENT}, teachers drawn",
    (*DRAWN_DESCENT, APART),
    FLOW.free,
)


REALISATION = Scope(
    "the theory of one realisation",
    TRAINING,
    (WEIGHTS,),
    ("n_test", "eval_every"),
    ("eta", "data_draw", "n_train", "batch_size", "unit", "epochs", *OPTIMISER),
)
# How often each pair of action and state is seen; students were held against it at 40
# and more.
AMPLE = Limit(
    "n_train",
    "at least 40 N d_g / L",
    lambda p, runs: p.n_train * p.L >= 40 * p.N * p.d_g,
    reads=("N", "d_g", "L"),
)


def at_least(field: str, least: int) -> Limit:
    """A limit from below."""
    return Limit(field, f"at least {least}", lambda p, runs: getattr(p, field) >= least)
