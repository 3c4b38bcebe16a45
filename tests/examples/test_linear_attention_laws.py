"""Laws of the model from outside: each equation, wrong by 5%, fails."""

from dataclasses import replace

import pytest
from linear_attention import gradients, laws, merged, separate
from test_linear_attention import ALONE

from verify.checks.check import failed

# Laws: each equation, wrong by 5%, fails.
LAWS = [
    (laws.early, ("merged_v_early", "merged_u_early", "merged_rate"), ()),
    (laws.flow, ("T_drop", "T_unbalanced", "merged_s"), pytest.mark.slow),
    (laws.steps, ("T_step", "t_step"), pytest.mark.slow),
    (laws.aligned, ("t_aligned", "t_leading"), pytest.mark.slow),
    (laws.rank, ("plateau",), pytest.mark.slow),
]


@pytest.fixture
def quick(monkeypatch):
    """One seed of the flows, and each flow once: no law changes it."""
    monkeypatch.setattr(laws, "SEEDS", range(1))
    flow, kept = laws.follow, {}

    def once(p, begun, until, **more):
        start = tuple(w.numpy().tobytes() for w in begun.values())
        key = p, until, start, str(more.get("at")), tuple(more.get("events", ()))
        if key not in kept:
            kept[key] = flow(p, begun, until, **more)
        return kept[key]

    monkeypatch.setattr(laws, "follow", once)


@pytest.mark.parametrize(
    ("group", "equations"),
    [pytest.param(*row[:2], id=row[0].__name__, marks=row[2]) for row in LAWS],
)
def test_a_fault_in_a_law_is_caught(group, equations, quick):
    """By a row that cites the equation."""
    table = merged.equations() | separate.equations()
    assert not failed(group(table))
    for name in equations:
        faulty = table | {name: replace(table[name], rhs=1.05 * table[name].rhs)}
        assert failed([c for c in group(faulty) if c.equation == name]), name


@pytest.mark.slow
def test_the_other_laws_hold(quick):
    """Any Lambda, exponents, drawn prompts, generic heads, students."""
    table = merged.equations() | separate.equations()
    rows = [*laws.spectra(table), *gradients.drawn(table)]
    rows += [*laws.generic(table), *laws.exponents(table)]
    assert not failed(rows) and {c.verdict for c in rows} <= {
        "exact",
        "agrees",
        "bound",
    }
    assert not failed(
        laws.merged_students(table, **ALONE) + laws.separate_students(table, **ALONE)
    )
