"""All kinds of students by name: ``MODEL`` for a model's headline, ``MODEL.SYSTEM`` for
any kind; and a tiny setting of each, for tests and for
`verify.checks.students_on_device`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from simulate.training.plan import System
from theory.models import plugins, registry
from theory.runtime import cli


def of(model: str) -> Mapping[str, System]:
    """Systems of a model by short name, headline first.

    Raises
    ------
    ParameterError
        If there is no such model.
    """
    return registry.find(model).wing("simulate").SYSTEMS


def of_model(model: registry.Model) -> list[System]:
    """Kinds of students of a model, or of one system of a family; headline first."""
    family, _, short = model.name.rpartition(".")
    there = of(family) if family else model.wing("simulate").SYSTEMS
    return [there[short]] if short in there else [*there.values()]


def find(name: str) -> tuple[str, System]:
    """Short name and system of ``MODEL`` or ``MODEL.SYSTEM``; ``MODEL`` may be a file
    with a statement.

    Raises
    ------
    ParameterError
        If there is none; the message names the nearest.
    """
    file = re.match(r".*\.py(:\w+)?(?=\.|$)", name)
    model = file[0] if file else name.partition(".")[0]
    short = name[len(model) + 1 :]
    there = of(model)
    short = short or next(iter(there))
    return short, cli.choose("SYSTEM", short, there)


def every() -> dict[str, System]:
    """Systems of all models by full name."""
    systems: dict[str, System] = {}
    for model in registry.MODELS.values():
        with plugins.skip_on_error(model):
            systems |= {
                f"{model.name}.{short}": s for short, s in of(model.name).items()
            }
    return systems


STEPS = dict(steps=24, eval_every=4)
TRACKING = dict(N=6, L=4, d_g=5, d_h=8, n_train=64, n_test=32, epochs=24, eval_every=4)
BLOCK = dict(d_model=8, d_ff=8, batch_size=16)
SENTENCES = dict(d=20, alpha=2.0, steps=24, n_test=50)
HEADS = dict(N=2, D=4, batch_size=8, **STEPS)
TRIGGER = dict(N=8, K=2, T=6, d=8, batch_size=4, n_test=16, **STEPS)
COUNTING = dict(
    length=3, alphabet=3, samples=60, width=4, hidden=8, epochs=14, unfrozen_epochs=10
)

# Keys: system and, after a comma, variant.
STUDENTS: dict[str, dict[str, Any]] = {
    "state_tracking.student": TRACKING,
    "state_tracking.student, adamw, minibatches": dict(
        TRACKING, optimizer="adamw", eta=0.02, batch_size=20
    ),
    "state_tracking.student, embedding": dict(TRACKING, fix_embedding=False, d_model=3),
    "induction_heads.disentangled": dict(HEADS, trained="projected"),
    "induction_heads.three": HEADS,
    "induction_heads.nineteen": HEADS,
    "induction_heads.all": HEADS,
    "induction_heads.standard": dict(
        D=8, vocabulary=8, block=9, pairs=2, batch_size=4, **STEPS
    ),
    "induction_heads.bursty": dict(N=6, B=2, **STEPS),
    "positional_semantic.attention": SENTENCES,
    "positional_semantic.attention, adam": dict(
        SENTENCES, optimizer="adam", polish=False
    ),
    "positional_semantic.attention, value": dict(SENTENCES, value=True, tied=False),
    "positional_semantic.linear": SENTENCES,
    "positional_semantic.linear, adam": dict(SENTENCES, optimizer="adam"),
    "positional_semantic.histogram": COUNTING,
    "associative_memory.factual_recall": dict(batch_size=16, **STEPS),
    "associative_memory.trigger_task": TRIGGER,
    "associative_memory.trigger_task, transformer": dict(
        TRIGGER, student="transformer"
    ),
    "associative_memory.noisy_bigram": dict(N=8, batch_size=4, **STEPS),
    "associative_memory.k_hop": dict(N=3, k=2, batch_size=8, curriculum=True, **STEPS),
    "associative_memory.pointers": dict(N=3, layers=1, batch_size=4, **STEPS),
}


def student(name: str, **changes: Any) -> tuple[System, Any]:
    """System and parameters of a row."""
    _, system = find(name.partition(",")[0])
    return system, system.parameters(**{**STUDENTS[name], **system.settings, **changes})
