"""Start-up cost: ratios, subtracted times, and exit code 1 if a ratio exceeds its limit."""

import importlib.util

import pytest

from theory import registry
from verify import start


@pytest.mark.parametrize("model", registry.MODELS)
def test_a_model_is_imported_from_where_it_lives(model):
    """A model that a package brings is not in our wings."""
    name = next(n for n in start.commands(model) if n.startswith("import ")).split()[1]
    assert importlib.util.find_spec(name)


@pytest.mark.parametrize(("onset", "code"), [(3.0, 0), (3.2, 1)])
def test_ratios(monkeypatch, capsys, onset, code):
    """Libraries 2 s, torch 1 s more; 3 s for an onset is 1.5 times and allowed, 3.2 s is not."""
    spent = {
        start.LIBRARIES: 2.0,
        f"{start.LIBRARIES}, torch": 3.0,
        "theory.onset": onset,
        "theory.latex": 8.0,
        "verify.gradients": 9.0,
    }
    monkeypatch.setattr(start, "seconds", lambda words: (spent.get(words[1], 2.0), ""))
    assert start.main(["state_tracking", "--rounds", "2"]) == code
    rows = {row.split("  ")[0]: row for row in capsys.readouterr().out.splitlines()}
    assert (
        "4.00" in rows["verify.gradients state_tracking"]
        and "import torch" in rows["verify.gradients state_tracking"]
    )
    assert ("NO" in rows["theory.onset state_tracking --json"]) == bool(code)


def test_sources_are_compiled_once(monkeypatch):
    """As libraries' are, though the shell forbids it."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    _, said = start.seconds(["-c", "import sys; print(sys.dont_write_bytecode)"])
    assert said.strip() == "False"
