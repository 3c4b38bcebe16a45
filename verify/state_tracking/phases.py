"""Weight decay: what students keep, lose and never learn, on both sides of both critical decays."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from simulate.state_tracking import continued, train
from theory.runtime import progress
from theory.state_tracking import Parameters
from theory.state_tracking.numbers.decay import decay_thresholds, late_states
from verify.check import Band, Check, at_least, at_most, near

BASE = Parameters.demo().replace(eta=2.0, n_train=4096, n_test=16)
SETTINGS = {
    "small": BASE,
    "L = 4": BASE.replace(L=4),
    "N = 24, d_g = 12, d_h = 64, L = 6": BASE.replace(N=24, d_g=12, d_h=64, L=6),
}
SEEDS = range(620, 622)  # the bands below are from 300 and 301
LEARNED = 1e-3  # decay under which the learned state is learned
KEPT, LOST = 0.9, 1.1  # of decay_lost, from the learned state
GROWS, DIES = 0.75, 1.25  # of decay_unlearned, from scratch
# Length of runs, in times 1 / (eta decay).
AGES = {"learned": 6.0, "kept": 10.0, "lost": 16.0, "grows": 10.0, "dies": 8.0}
NEAR_GUESSING = 0.1  # of A, beyond 1/L
UNEQUAL = "attention differs between positions and actions; unequal shares of the training set"
# Measured deviations of what students keep: attention on wrong actions is not uniform.
BANDS = {
    "A": Band(-0.03, 0.01, UNEQUAL),
    "R": Band(-0.03, 0.01, UNEQUAL),
    "P": Band(-0.01, 0.04, UNEQUAL),
}
WORDS = {"A": "attention", "R": "overlap R", "P": "squared norm of keys"}


def aged(p: Parameters, rate: float, age: float) -> Parameters:
    """Parameters of a run of so many times 1 / (eta decay), measured at its end."""
    steps = round(age / (p.eta * rate))
    return p.replace(weight_decay=float(rate), epochs=steps, eval_every=steps)


def ends(runs: xr.Dataset) -> dict[str, float]:
    """A, R and the squared norm of keys in the end, mean over seeds."""
    found = {x: float(runs[x].isel(alpha=-1).mean()) for x in "AR"}
    squares = [(runs[f"{w}_end"] ** 2).sum(("head", "model")).mean() for w in ("W_Q", "W_K")]
    return {**found, "P": float(np.mean(squares))}


def rows(
    title: str,
    p: Parameters,
    seeds: Iterable[int],
    bands: Mapping[str, Band] = BANDS,
    **training: Any,
) -> list[Check]:
    """One setting: the learned state below and above `decay_lost`, and learning from scratch below
    and above `decay_unlearned`.
    """
    seeds, edges = [*seeds], decay_thresholds(p)
    lost, scratch = float(edges.decay_lost), float(edges.decay_unlearned)
    start = train(aged(p, LEARNED, AGES["learned"]), seeds, keep=True, **training)
    kept, gone = (
        ends(continued.train(aged(p, f * lost, AGES[name]), seeds, start=start, **training))
        for name, f in (("kept", KEPT), ("lost", LOST))
    )
    grown, dead = (
        ends(train(aged(p, f * scratch, AGES[name]), seeds, keep=True, **training))
        for name, f in (("grows", GROWS), ("dies", DIES))
    )
    theory = late_states(p.replace(weight_decay=KEPT * lost)).sel(state="learned")
    of_A, guess = "decay_of_A", 1 / p.L + NEAR_GUESSING
    return [
        *(
            near(
                f"{words} of the learned state at {KEPT:g} times its largest decay, {title}",
                of_A,
                float(theory[x]),
                kept[x],
                0.0,
                UNEQUAL,
                None,
                bands[x],
            )
            for x, words in WORDS.items()
        ),
        at_most(
            f"attention from the learned state at {LOST:g} times its largest decay, {title}",
            of_A,
            guess,
            gone["A"],
            "only A = 1/L is left",
        ),
        at_least(
            f"attention from scratch at {GROWS:g} times the decay that prevents it, {title}",
            "decay_unlearned",
            float(edges.A_lost),
            grown["A"],
            "beyond it the learned state attracts",
        ),
        at_most(
            f"attention from scratch at {DIES:g} times the decay that prevents it, {title}",
            "decay_unlearned",
            guess,
            dead["A"],
            "keys and queries die out",
        ),
    ]


def checks(**training: Any) -> list[Check]:
    """All settings."""
    named = progress.each(SETTINGS.items(), "decays", lambda item: item[0])
    return [row for title, p in named for row in rows(title, p, SEEDS, **training)]
