"""Every model of the registry has the same subpackages and interfaces in every wing."""

import inspect
import re
from pathlib import Path

import pytest

from simulate import systems
from simulate.training.plan import System
from theory.models.model import COMMANDS
from theory.models.registry import MODELS, TABLE

EVERY = pytest.mark.parametrize(
    "model", [pytest.param(m, id=m.name) for m in TABLE.values()]
)
WHOLE = pytest.mark.parametrize(
    "model", [pytest.param(m, id=m.name) for m in MODELS.values()]
)
TRAIN = ["p", "seeds", "until", "store", "device", "dtype", "workers", "progress"]


@EVERY
def test_theory(model):
    """Parameters with presets, flows, equations by section; a model says what it is."""
    wing = model.wing("theory")
    assert model.title and model.paper
    assert wing.Parameters.presets() and isinstance(wing.flows(), dict)
    assert set(wing.equations()) == {
        e.name for s in wing.sections().values() for e in s
    }


@WHOLE
def test_students(model):
    """`train` has the one signature; systems are found by name."""
    wing = model.wing("simulate")
    given = inspect.signature(wing.train).parameters
    assert [n for n, v in given.items() if v.kind is not v.VAR_KEYWORD][
        : len(TRAIN)
    ] == TRAIN
    assert wing.SYSTEMS and all(isinstance(s, System) for s in wing.SYSTEMS.values())
    if not model.package:
        assert all("" in system.tiny for system in wing.SYSTEMS.values())
    for short in wing.SYSTEMS:
        assert systems.find(f"{model.name}.{short}") == (short, wing.SYSTEMS[short])


@EVERY
def test_checks(model):
    """Every command a model answers to has a `report` of one request; a family has its
    systems'.
    """
    assert model.checks and set(model.checks) <= set(COMMANDS)
    for command in model.checks:
        for m in model.offering(command):
            assert list(inspect.signature(m.command(command)).parameters) == ["request"]
    assert set(model.checks) == {c for m in model.systems or [model] for c in m.checks}


@WHOLE
def test_paper(model):
    """Figures have titles and functions, claims and evidence are stored."""
    ledger = model.ledger()
    folder = Path(ledger.__file__).parent
    assert ledger.FIGURES and all(
        re.fullmatch(r"[\w-]+", str(name)) for name in ledger.FIGURES
    )
    for name in ("claims.toml", "evidence.json"):
        assert (folder / name).read_text()
