"""Which students the theory of factual recall describes."""

from __future__ import annotations

import xarray as xr

from theory import scope
from theory.optimisers import Optimiser
from theory.scope import Limit, Scope


def optimiser(runs: xr.Dataset | None) -> Optimiser | None:
    """The optimiser of students; none if it is plain descent."""
    stored = scope.configuration(runs).get("optimizer")
    return None if stored is None else Optimiser(**stored)


def linear(how: Optimiser | None) -> bool:
    """Whether steps are linear in the gradients, so that the noise of batches averages out."""
    return how is None or (how.optimizer == "sgd" and how.clip is None)


# The weights of noise tokens do not change, and batches only add noise.
LINEAR = Limit(
    "batch_size",
    "of sgd without clipping (other optimisers divide by the size of a batch's gradient)",
    lambda p, runs: linear(optimiser(runs)),
    lambda p, runs: f"{p.batch_size} under {getattr(optimiser(runs), 'optimizer', 'sgd')}",
)
RECALL = Scope(
    "the flow of factual recall",
    "linear attention on balanced facts",
    (LINEAR,),
    ("noise_tokens", "steps", "eval_every"),
)
SCOPES = {"flow": RECALL}
applies = scope.applies(SCOPES)
