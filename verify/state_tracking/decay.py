"""Weight decay: the overlaps of students in the end."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from simulate.state_tracking import train
from theory.state_tracking import Parameters
from theory.state_tracking.decay import late_overlap
from verify.check import Check, at_most, listed, near
from verify.measured import measured

DECAYS = (3e-4, 1e-3)  # at 3e-3 these students do not learn
STUDENTS = Parameters.demo().replace(eta=2.0, n_train=8192, n_test=16)
SEEDS = range(620, 622)
AGE = 6.0  # of runs, in times 1 / (eta decay): e^-6 of the start is left
REST = 0.005  # of R: attention below 1, unequal shares of the training set
ALIKE = 0.01  # S over R


@measured
def ends(p: Parameters, seeds: Iterable[int], **training: Any) -> np.ndarray:
    """R and S of students in the end."""
    steps = round(AGE / (p.eta * p.weight_decay))
    runs = train(p.replace(epochs=steps, eval_every=steps), seeds, **training)
    return np.stack([runs[name].isel(alpha=-1).values for name in "RS"])


@listed
def checks(
    p: Parameters = STUDENTS,
    decays: Iterable[float] = DECAYS,
    seeds: Iterable[int] = SEEDS,
    **training: Any,
) -> Iterator[Check]:
    """R against its closed form, S against zero."""
    for decay in decays:
        q = p.replace(weight_decay=decay)
        R, S = ends(q, seeds, **training)
        title = f"decay {decay:g}, N = {p.N}"
        yield from [
            near(
                f"R in the end, {title}",
                "R_decayed",
                float(late_overlap(q)),
                float(R.mean()),
                REST,
                "attention below 1; unequal shares of the training set",
            ),
            at_most(
                f"size of S over R in the end, {title}",
                "R_decayed",
                ALIKE,
                float(np.abs(S / R).max()),
                "nothing drives it but other teachers that agree by chance",
            ),
        ]


# Rows by title.
GROUPS = {f"ends under decay {x:g}": functools.partial(checks, decays=(x,)) for x in DECAYS}
