"""All weights against the network: its own flow, its descent, and faults that must be
seen.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

from simulate.induction_heads import Parameters, assemble, student
from simulate.induction_heads.student import attention
from simulate.training.pool import one_thread
from theory.induction_heads.all_weights import descent as times
from theory.induction_heads.all_weights import law, plateau, running, scores
from verify.induction_heads.all_weights import all_weights_equations, all_weights_times

NAMES = [*scores.equations(), *scores.loss_equations()]
QUICK = (
    "all_key_own_label",
    "all_key_query_inclusive",
    "all_retrieved_item",
    "all_output_label_inclusive",
)


euler = functools.cache(times.euler)


def table():
    """Equations of all weights."""
    return {**scores.equations(), **scores.loss_equations(), **plateau.equations()}


def notices(name):
    """Whether 5% more on an equation is seen by the checks that use it."""
    eq = table()
    faulty = {**eq, name: replace(eq[name], rhs=1.05 * eq[name].rhs)}
    masks = (
        ("strict", "inclusive")
        if name == "all_loss"
        else ("inclusive",)
        if name.endswith("_inclusive")
        else ("strict",)
    )
    with one_thread():
        return not all(
            c.within for c in all_weights_equations.row_by_row(faulty, masks)
        )


@pytest.mark.parametrize("name", QUICK)
def test_fault_is_seen(name):
    """In one equation of each kind."""
    assert notices(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n for n in NAMES if n not in QUICK and "attention" not in n]
)
def test_fault_is_seen_in_every_equation(name):
    """Attention of the first layer enters the others by its derivation: see the next
    test.
    """
    assert notices(name)


def test_attention_of_the_first_layer():
    """Rows of the equations sum to one, both masks, with the right number of each kind
    of column, and each is the network's entry at the row and column of its left-hand
    side.
    """
    eq, theta = (
        table(),
        dict(zip(running.NAMES, all_weights_equations.point(5), strict=True)),
    )
    values = {**theta, "N": 6, "k": 4, "q": 2, "l": 3}
    for end, own in (("", 0), ("_inclusive", 1)):

        def weight(name, end=end):
            return float(eq[f"all_attention_{name}{end}"].evaluate(values))

        others = 2 * 4 - 2
        assert own * (weight("item_self") if own else 0) + others * weight(
            "item_other"
        ) == pytest.approx(1, rel=1e-14)
        rows = (
            weight("label_item")
            + (weight("label_self") if own else 0)
            + others * weight("label_other")
        )
        assert rows == pytest.approx(1, rel=1e-14)
        assert (1 + own) * weight("query_item") + 11 * weight(
            "query_other"
        ) == pytest.approx(1, rel=1e-14)
        size, at = 6, {"k": 4, "q": 2, "l": 3, "N": 6}
        mask = "inclusive" if own else "strict"
        p = Parameters(N=size, D=12, data="orthonormal", query="last", mask=mask)
        drawn = student.orthonormal(
            p, 1, torch.Generator().manual_seed(0), torch.float64
        )
        X = student.batch_of(*drawn, torch.tensor([at["q"] - 1])).X
        first = assemble(theta, 12)["W1"]
        T = attention(X @ first @ X.mT, mask)[0].numpy()
        named = [
            n for n in eq if "attention" in n and n.endswith("_inclusive") == bool(own)
        ]
        for name in named:
            row, column = (
                int(x.subs({v: at[v.name] for v in x.free_symbols})) - 1
                for x in eq[name].lhs.indices
            )
            assert eq[name].evaluate(values) == pytest.approx(
                T[row, column], rel=1e-12
            ), name
        assert len(named) == 5 + 2 * own


@pytest.mark.parametrize(
    "name",
    [
        "plateau_Phi",
        "plateau_Gamma_uniform",
        *(
            pytest.param(f"plateau_{x}", marks=pytest.mark.slow)
            for x in ("delta", "phi", "loss", "Gamma")
        ),
    ],
)
def test_fault_in_the_plateau_is_seen(name):
    """5% more, and the five numbers no longer follow all of them."""
    eq = plateau.equations()
    faulty = {**eq, name: replace(eq[name], rhs=1.05 * eq[name].rhs)}
    assert not all(c.within for c in all_weights_equations.five_numbers(faulty))


def test_times_of_the_networks_own_flow(monkeypatch):
    """Autograd through the whole network under the same integrator, averaged over the
    queries; at N = 8 with `make test-all`.
    """
    monkeypatch.setattr(all_weights_times, "MASKS", ("strict",))
    monkeypatch.setattr(all_weights_times, "QUERIES", {"uniform": "uniform q"})
    assert all(c.within for c in all_weights_times.against_network(2))


@pytest.mark.slow
def test_times_of_the_networks_own_flow_at_eight():
    """The bar: 1e-6 at N = 8, both queries, both masks."""
    assert all(c.within for c in all_weights_times.against_network())


def test_a_wrong_gradient_shows_in_the_times():
    """Half a percent on one number's gradient moves the
    drop far beyond the tolerance.
    """

    def wrong(theta):
        value, gradient = running.loss_and_gradient(theta, 4, 4)
        gradient[running.NAMES.index("gamma_4")] *= 1.005
        return value, gradient

    found, right = (
        times.crossings(times.descend(of, 4, times.moving("strict"), rtol=1e-7), 4)[
            "T_drop"
        ]
        for of in (wrong, lambda theta: running.loss_and_gradient(theta, 4, 4))
    )
    assert abs(found / right - 1) > 100 * all_weights_times.FLOW


def test_descent_step_by_step(tmp_path):
    """Training in the nineteen directions is the Euler map of the closed gradient."""
    assert all(
        c.within
        for c in all_weights_times.descent(
            4, 40, store=tmp_path, progress=False, workers=1, device="cpu"
        )
    )


@pytest.mark.parametrize(("more", "within"), [(1.0, True), (3.0, False)])
def test_law_is_held_to_the_flow(more, within, monkeypatch):
    """A flow that is late by N ln N is within 2 ln N / N, one that is late by three
    times as much is not; either is what its smaller sizes say.
    """
    names = (*times.LEVELS, "T_drop")
    late = {N: dict.fromkeys(names, N**2 + more * N * np.log(N)) for N in (16, 32, 64)}
    monkeypatch.setattr(all_weights_times, "flow_times", lambda N, query: late[N])
    monkeypatch.setattr(law, "predicted", lambda N, query: dict.fromkeys(names, N**2))
    checks, _ = all_weights_times.against_law((16, 32), 64)
    plain = [c for c in checks if "corrected" not in c.name]
    assert len(plain) == len(checks) / 2 == 2 * len(names)
    assert all(c.within == (within or c not in plain) for c in checks)
    assert {c.measured for c in checks} == {late[64]["T_drop"]}


@pytest.mark.slow
def test_law():
    """Largest size from nothing, and from smaller sizes."""
    assert all(c.within for c in all_weights_times.against_law()[0])


@pytest.mark.slow
def test_law_quickly():
    """The same at sizes of seconds."""
    checks, notes = all_weights_times.against_law((16, 32), 64)
    assert all(np.isfinite(c.error) for c in checks) and len(notes) == 8
    assert all(c.within for c in checks if "corrected" not in c.name)


@pytest.mark.parametrize(("late", "agrees"), [(0.0, True), (0.02, False)])
def test_students_are_held_to_the_descent_with_their_step(monkeypatch, late, agrees):
    """Students that are the descent itself, a thousandth apart, agree; two percent
    later they do not.
    """
    monkeypatch.setattr(all_weights_times, "STUDENT_SIZES", (3,))
    monkeypatch.setattr(all_weights_times, "RATE", 0.02)
    monkeypatch.setattr(all_weights_times, "QUERIES", {"last": "q = N"})
    monkeypatch.setattr(times, "euler", euler)

    def train(p, seeds):
        assert p.eval_every > 1  # or a clock of steps would pass for one of records
        path = euler(p.N, "last", p.mask, p.time_per_step, p.steps)[:: p.eval_every]
        loss = [running.loss_and_gradient(x, p.N, p.N)[0] for x in path]
        at = p.time_per_step * p.eval_every * np.arange(len(loss))
        stretched = [1 + late + 1e-3 * s for s in range(-4, 5)]
        curves = [np.interp(at, at * factor, loss) for factor in stretched]
        return xr.Dataset({"loss": (("seed", "t"), curves)}, coords={"t": at})

    monkeypatch.setattr(all_weights_times, "train", train)
    checks, _ = all_weights_times.students()
    assert len(checks) == 2 and {c.within for c in checks} == {agrees}
