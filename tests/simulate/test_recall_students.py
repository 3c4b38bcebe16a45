"""Students of factual recall: task, hand-written gradients, exact resumption, and the
flow they follow.
"""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp
import torch

from simulate.associative_memory import __main__ as command
from simulate.associative_memory import factual_recall
from simulate.associative_memory.factual_recall import (
    Learner,
    LinearAttention,
    Parameters,
)
from simulate.store import runs
from theory.associative_memory.factual_recall import (
    PARTS,
    dynamics,
    equations,
    flow,
    time_of_share,
)
from theory.associative_memory.symbols import T
from theory.call.refusal import ParameterError
from verify.compare.emergence import first_crossing

SMALL = Parameters.small().replace(steps=700)


def test_facts_are_balanced():
    """Every answer has S/D subjects, and every relation its own block."""
    p = Parameters()
    table = factual_recall.fact_table(p)
    assert (np.bincount(table.ravel(), minlength=p.answers) == p.S // p.D).all()
    assert (table // p.D == np.arange(p.R)).all()
    assert table[5, 2] == 2 * p.D + 5 * p.D // p.S


def test_logits_are_the_equations():
    """Of sequences of five tokens, any weights: the sum over positions, spelled out."""
    rng, p = np.random.default_rng(4), Parameters(S=2, R=2, D=2, noise_tokens=2, T=5)
    student = LinearAttention(p)
    w, V = rng.normal(size=p.vocabulary), rng.normal(size=(p.vocabulary, p.answers))
    student.w.data, student.V.data = torch.tensor(w), torch.tensor(V)
    tokens = rng.integers(p.vocabulary, size=(4, p.T))
    found = student(torch.tensor(tokens)).detach().numpy()
    form = equations()["recall_logit"].rhs.subs(T, p.T).doit()
    for (row, answer), logit in np.ndenumerate(found):
        spelled = form.subs(
            {dynamics.token[n + 1]: int(x) for n, x in enumerate(tokens[row])}
        )
        spelled = spelled.subs(dynamics.a, answer)
        values = {
            x: w[int(x.indices[0])]
            for x in spelled.atoms(sp.Indexed)
            if len(x.indices) == 1
        }
        for x in spelled.atoms(sp.Indexed) - values.keys():
            values[x] = V[tuple(map(int, x.indices))]
        assert float(spelled.subs(values)) == pytest.approx(
            logit, rel=1e-12
        )  # five terms


def test_sequences_and_counts_agree_in_law():
    """Every sequence holds one subject, one relation, T - 3 noise tokens and the end
    token; counts have the same law.
    """
    p = Parameters(S=8, R=2, D=4, noise_tokens=6, T=8)
    rng = np.random.default_rng(3)
    table = factual_recall.fact_table(p)
    tokens, answer = factual_recall.draw_sequences(p, 4000, table, rng)
    counted = factual_recall.token_counts(p, tokens)
    drawn, _ = factual_recall.sample(p, 4000, table, rng)
    for counts in (counted, drawn):
        assert (counts[:, : p.S].sum(1) == 1).all() and (
            counts[:, p.S : p.S + p.R].sum(1) == 1
        ).all()
        assert (counts.sum(1) == p.T).all() and (counts[:, -1] == 1).all()
    subject, relation = (
        counted[:, : p.S].argmax(1),
        counted[:, p.S : p.S + p.R].argmax(1),
    )
    assert (table[subject, relation] == answer).all() and (
        tokens[:, -1] == p.vocabulary - 1
    ).all()
    gap = counted.mean(0) - drawn.mean(0)
    error = np.sqrt((counted.var(0) + drawn.var(0)) / 4000) + 1e-12
    assert (np.abs(gap / error) < 4).all()  # 4 standard errors, 17 tokens
    places = (tokens < p.S).argmax(1)
    assert np.bincount(places, minlength=p.T)[:-1] == pytest.approx(
        4000 / 7, abs=4 * np.sqrt(4000 / 7)
    )


def test_students_follow_full_batch_descent(tmp_path):
    """Crossing times of both parts within 1% of the Euler map, and of the flow up to
    its lag.
    """
    found = factual_recall.train(
        SMALL, seeds=2, store=tmp_path, workers=1, progress=False
    )
    euler = flow().descend(SMALL, SMALL.eta, SMALL.steps).isel(t=found.step.values)
    for part in PARTS:
        times = [
            first_crossing(-x, -0.5 * float(x.isel(t=0).mean())).values.mean()
            for x in (found[f"loss_{part.name}"], euler[f"loss_{part.name}"])
        ]
        assert times[0] == pytest.approx(times[1], rel=0.01)
        assert time_of_share(SMALL, part, 0.5) == pytest.approx(
            times[0], rel=0.03
        )  # eta lambda = 0.035 for the relation
    assert float(found.noise_spread.max()) < 1e-3  # frozen up to the noise of batches
    assert float(found.accuracy.isel(t=-1).min()) == 1


@pytest.mark.parametrize("draw", [1, 4, 8])
def test_uneven_facts_have_their_plateau_at_the_conditional_entropy(draw):
    """Answers drawn at random: on the plateau the subject part of the loss is the
    entropy of a given r, below ln D, and what is predicted is p(a|r), whatever the
    subject.
    """
    p = SMALL.replace(S=16)
    table = np.arange(p.R) * p.D + np.random.default_rng(draw).integers(
        p.D, size=(p.S, p.R)
    )
    learner = Learner(p, 0, table=table)
    for number in range(500):
        learner.step(number)
    shares = [
        np.bincount(table[:, r] - r * p.D, minlength=p.D) / p.S for r in range(p.R)
    ]
    entropy = np.mean([-(q[q > 0] * np.log(q[q > 0])).sum() for q in shares])
    found = learner.measure()
    assert found["loss_relation"] < 0.01 and entropy < np.log(p.D) - 0.05
    assert found["loss_subject"] == pytest.approx(
        entropy, abs=0.005
    )  # the subject has just begun to be learned
    student = LinearAttention(p)
    student.w.data, student.V.data = (
        torch.tensor(x, dtype=torch.float64) for x in (learner.w, learner.V)
    )
    fact = np.zeros((p.S, p.R, p.vocabulary))
    fact[np.arange(p.S), :, np.arange(p.S)] = 1
    fact[:, np.arange(p.R), p.S + np.arange(p.R)] = 1
    fact[..., p.S + p.R : -1], fact[..., -1] = (p.T - 3) / p.noise_tokens, 1
    predicted = (
        torch.softmax((torch.tensor(fact) * student.w) @ student.V, 2).detach().numpy()
    )
    by_relation = np.zeros((p.R, p.answers))
    for r, share in enumerate(shares):
        by_relation[r, r * p.D : (r + 1) * p.D] = share
    assert np.abs(predicted - by_relation).max() < 0.05  # noise of batches: 0.02
    assert predicted.std(0).max() < 1e-3  # over subjects


def test_command(capsys, tmp_path):
    """Table, file, and one line for wrong input."""
    words = [
        "k_hop",
        "--set",
        "k=2",
        "--set",
        "steps=4",
        "--seeds",
        "2",
        "--quiet",
        "--workers",
        "1",
        "--out",
        str(tmp_path / "x.nc"),
    ]
    assert command.main(words) == 0
    assert "product" in capsys.readouterr().out
    assert runs.read(tmp_path / "x.nc").sizes == {"seed": 2, "t": 2, "hop": 2}
    for wrong, message in (
        (["k_hops"], "did you mean 'k_hop'"),
        (["k_hop", "--set", "k=0"], "k = 0: must be >= 1"),
        (["k_hop", "--text", "x"], "only for trigger_task"),
        (["k_hop", "--seeds", "0"], "--seeds 0"),
    ):
        with pytest.raises(ParameterError, match=message):
            command.main([*wrong, "--quiet"])
    with pytest.raises(ParameterError, match="distinct whole numbers"):
        factual_recall.train(SMALL, seeds=[1, 1], store=tmp_path, progress=False)
