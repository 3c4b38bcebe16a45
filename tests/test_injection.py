"""What `tests.injection` found is complete, and nothing went unseen."""

import json
from dataclasses import replace
from functools import partial

import pytest

from papers import evidence
from tests import injection
from theory.associative_memory import noisy_bigram
from theory.models import registry
from verify.checks.check import Check

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
    """Whatever stored evidence of the command cites of this system's equations got both
    faults.
    """
    command, model, system = SYSTEMS[key]
    stored = json.loads(evidence.place(model).read_text())[command]["checks"]
    rows = [Check(c["name"], c["equation"], 0.0, 0.0, 0.0, 0.0, "") for c in stored]
    cited = {
        n for n in injection.names(system) if any(injection.cites(c, n) for c in rows)
    }
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


def test_a_fault_is_put(forked):
    """In the equation of that name alone, and once: not again in what is made of it.
    Two processes, in which nothing was derived before.
    """

    def read(factor):
        noisy_bigram.samples_equations.cache_clear()
        injection.put(
            registry.find("associative_memory.noisy_bigram"), "bigram_fail", factor
        )
        both = noisy_bigram.equations()
        one, other = (both[n] for n in ("bigram_fail", "bigram_fail_scaled"))
        made = [
            one,
            replace(one, rhs=one.rhs),
            one.subs({}),
            one.subs({"a_noise": 0.5}),
            other,
        ]
        print([float(e.evaluate(noisy_bigram.Parameters(n=8).values())) for e in made])

    wrong, sound = (json.loads(forked(partial(read, f)).stdout) for f in (2.0, 1.0))
    assert wrong[:-1] == pytest.approx([2 * x for x in sound[:-1]])
    assert wrong[-1] == sound[-1]
