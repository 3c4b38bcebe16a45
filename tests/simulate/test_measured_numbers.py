"""What is measured without a training run, at tiny sizes: `golden/numbers.json` has the
numbers.

Could see: another seed, stream, sign, index or mean in whatever these functions return,
also where what follows from them (a fixed point, an accuracy) hides it.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import simulate
import theory
from simulate.associative_memory import gradient_steps, noisy_bigram, superposition
from simulate.positional_semantic import student
from simulate.positional_semantic.gamp import gamp
from simulate.positional_semantic.learner import TINY as SENTENCES
from simulate.positional_semantic.linear import fit_linear
from simulate.state_tracking import Parameters as Tracking
from simulate.state_tracking.learner import TINY as TRACKING
from simulate.state_tracking.measure import untrained_statistics
from simulate.training.pool import one_thread
from tests import frozen
from theory.positional_semantic import Parameters as Sentences

P = Sentences(**SENTENCES)


def message(prox):
    """Message passing far from its fixed point, where the minimisers differ."""
    p = P.replace(prox=prox, alpha=0.5)
    teacher, data = student.sample(p, 3)
    start = 3 * teacher + np.linspace(-1, 1, p.d) ** 3
    return dataclasses.asdict(gamp(p, data, start, damping=0.6, iterations=4))


def three_steps(samples=300):
    """Gradients, probes, accuracies."""
    p = gradient_steps.Parameters(N=12, T=8, samples=samples, first_step=1.0)
    return dataclasses.asdict(gradient_steps.run(p, seed=3))


MEASURED = {
    "recall": lambda: superposition.recall(
        superposition.Parameters(d=8, N=12, M=5, draws=6), 3, np.arange(12.0)
    ),
    "trained memories": lambda: [
        superposition.train_linear(12, 4, 3, steps=6),
        superposition.train_mlp(12, 4, 5, 3, outputs=6, steps=20),
    ],
    "three steps": three_steps,
    "one step": lambda: noisy_bigram.one_step(
        noisy_bigram.Parameters(N=64, n=6, draws=12), 3
    ),
    "linear layer": lambda: [fit_linear(P, 3, method) for method in ("exact", "adam")],
    "message passing, global": lambda: message("global"),
    "message passing, local": lambda: message("local"),
    "untrained students": lambda: untrained_statistics(Tracking(**TRACKING), 3),
}


@pytest.mark.parametrize("name", MEASURED)
def test_measured_numbers_are_what_they_were(name):
    """All that is returned."""
    with one_thread():
        frozen.hold_all(f"measured, {name}", MEASURED[name]())


def test_meanings_name_the_equations_that_they_named():
    """Numbers in what tables and datasets say that a quantity is, of every package."""
    found = 0
    for package in (simulate, theory):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            text = Path(module.module_finder.path, module.name.rpartition(".")[2])
            text = text / "__init__.py" if module.ispkg else text.with_suffix(".py")
            if "\nMEANING" in text.read_text():
                meanings = importlib.import_module(module.name).MEANING
                frozen.hold_all(f"meanings, {module.name}", meanings)
                found += 1
    assert found >= 10
