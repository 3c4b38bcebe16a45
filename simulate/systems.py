"""All kinds of students by name: ``MODEL`` for a model's headline, ``MODEL.SYSTEM`` for
any kind; and a tiny setting of each, for tests and for
`verify.checks.students_on_device`.
"""

from __future__ import annotations

import functools
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


@functools.cache
def tiny() -> dict[str, Mapping[str, Any]]:
    """Parameters of runs of a moment, of every kind of student: by system and, after a
    comma, what is particular about them.
    """
    settings = {}
    for name, system in every().items():
        for particular, values in system.tiny.items():
            settings[", ".join(filter(None, (name, particular)))] = values
    return settings


def student(name: str, **changes: Any) -> tuple[System, Any]:
    """System and parameters of a name of `tiny`."""
    _, system = find(name.partition(",")[0])
    return system, system.parameters(**{**tiny()[name], **system.settings, **changes})
