"""What `tests.injection` found is complete, and nothing went unseen."""

import json
import subprocess
import sys

import pytest

from papers import evidence
from tests import injection
from theory import registry
from verify.check import Check

RESULTS = json.loads(injection.RESULTS.read_text())
SYSTEMS = {
    f"{command} {system.name}": (command, model, system)
    for command in injection.COMMANDS
    for model in registry.MODELS.values()
    for system in model.offering(command)
    if f"{command} {system.name}" not in injection.ASIDE
}


@pytest.mark.parametrize("key", SYSTEMS)
def test_every_fault_is_seen(key):
    """By a row that cites the equation, or the command stops."""
    assert [r for r in RESULTS[key]["rows"] if not r["seen by"]] == []


def test_results_are_of_what_there_is():
    """No command or system that is gone."""
    assert RESULTS.keys() == SYSTEMS.keys()


@pytest.mark.parametrize("key", SYSTEMS)
def test_no_equation_is_left_out(key):
    """Whatever stored evidence of the command cites of this system's equations got both faults."""
    command, model, system = SYSTEMS[key]
    stored = json.loads(evidence.place(model).read_text())[command]["checks"]
    rows = [Check(c["name"], c["equation"], 0.0, 0.0, 0.0, 0.0, "") for c in stored]
    cited = {n for n in injection.names(system) if any(injection.cites(c, n) for c in rows)}
    # A name of two systems may be cited by the rows of either: tried in one at least.
    tried = {
        r["equation"]
        for k, (c, m, _) in SYSTEMS.items()
        if (c, m) == (command, model)
        for r in RESULTS[k]["rows"]
    }
    assert cited <= tried
    own = [r["equation"] for r in RESULTS[key]["rows"]]
    assert all(own.count(n) == 2 for n in own)


def test_a_fault_is_put():
    """In the equation of that name alone, and once: not again in what is made of it."""
    asked = (
        "from dataclasses import replace\n"
        "from tests.injection import put\n"
        "from theory.registry import find\n"
        "put(find('associative_memory.noisy_bigram'), 'bigram_fail', 2.0)\n"
        "from theory.associative_memory.noisy_bigram import Parameters, equations\n"
        "one, other = (equations()[n] for n in ('bigram_fail', 'bigram_fail_scaled'))\n"
        "made = [one, replace(one, rhs=one.rhs), one.subs({}), one.subs({'a_noise': 0.5}), other]\n"
        "print([float(e.evaluate(Parameters(n=8).values())) for e in made])"
    )
    wrong, sound = (
        json.loads(
            subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            ).stdout
        )
        for code in (asked, asked.replace("'bigram_fail', 2.0", "'bigram_fail', 1.0"))
    )
    assert wrong[:-1] == pytest.approx([2 * x for x in sound[:-1]])
    assert wrong[-1] == sound[-1]
