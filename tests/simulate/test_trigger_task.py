"""The trigger task: distribution of the sequences, tables, probes, causality of
students.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from simulate.associative_memory import __main__ as command
from simulate.associative_memory.trigger_task import (
    Learner,
    Parameters,
    Table,
    sample,
    synthetic_table,
    table_of_text,
    train,
)
from simulate.associative_memory.trigger_task.student import Transformer, fixed_triggers
from theory.associative_memory import trigger_task
from theory.call.refusal import ParameterError
from verify.associative_memory.trigger_task import planted

P = Parameters(N=12, K=3, T=40)


@pytest.mark.parametrize("triggers", ["fixed", "drawn"])
def test_triggers_are_followed_by_their_output(triggers):
    """After a trigger its output of this sequence, always; predictable from its second
    occurrence on.
    """
    p = P.replace(triggers=triggers)
    table = synthetic_table(p.N)
    data = sample(p, 200, table, np.random.default_rng(0))
    if triggers == "fixed":
        assert (data.triggers == fixed_triggers(p, table)).all()
        assert (
            table.unigram[data.triggers[0]].min()
            >= np.delete(table.unigram, data.triggers[0]).max()
        )
    for row in range(200):
        output = dict(zip(data.triggers[row], data.outputs[row], strict=True))
        assert len(output) == p.K
        seen = set()
        for t in range(p.T):
            now, following = data.tokens[row, t : t + 2]
            assert data.predictable[row, t] == (now in output and now in seen)
            if now in output:
                assert following == output[now]
            seen.add(now)


def test_other_tokens_follow_the_table():
    """Transitions from tokens that are no triggers: counts within 4 standard errors;
    outputs uniform, no self-loops on demand.
    """
    table = synthetic_table(P.N)
    data = sample(
        P.replace(T=200, self_loops=False), 400, table, np.random.default_rng(1)
    )
    assert (data.outputs != data.triggers).all()
    counts = np.zeros((P.N, P.N))
    np.add.at(counts, (data.tokens[:, :-1], data.tokens[:, 1:]), 1)
    free = np.setdiff1d(np.arange(P.N), data.triggers[0])
    total = counts[free].sum(1, keepdims=True)
    expected = table.bigram[free]
    error = np.sqrt(np.maximum(expected * (1 - expected), 1e-12) / total)
    z = np.abs(counts[free] / total - expected) / error
    assert z[expected * total > 20].max() < 4.5  # about a hundred cells
    uniform = sample(P, 4000, table, np.random.default_rng(2)).outputs.ravel()
    assert np.bincount(uniform, minlength=P.N) == pytest.approx(
        1000, abs=4 * np.sqrt(1000)
    )
    by_table = sample(
        P.replace(outputs="bigram"), 4000, table, np.random.default_rng(2)
    )
    q = by_table.triggers[0, 0]
    share = (by_table.outputs[:, 0] == table.bigram[q].argmax()).mean()
    assert share == pytest.approx(table.bigram[q].max(), abs=4 * 0.5 / np.sqrt(4000))


def test_table_of_text():
    """Counts of a text by hand; a last character that nothing follows continues with
    the unigram law.
    """
    table, alphabet = table_of_text("abacad")
    assert alphabet == "abcd"
    np.testing.assert_allclose(table.unigram, [3 / 6, 1 / 6, 1 / 6, 1 / 6])
    np.testing.assert_allclose(table.bigram[0], [0, 1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(table.bigram[3], table.unigram)
    with pytest.raises(ParameterError, match="must have at least 3"):
        table_of_text("abab")
    with pytest.raises(ParameterError, match="bigram: must be probabilities"):
        Table(np.ones(3) / 3, np.ones((3, 3)))


def test_shipped_table_is_stationary():
    """The unigram law is the chain's own, to the accuracy of 1000 half steps."""
    table = synthetic_table(65)
    np.testing.assert_allclose(table.unigram @ table.bigram, table.unigram, atol=1e-12)


@pytest.mark.parametrize("student", ["simplified", "transformer"])
def test_students_read_the_past_only(student):
    """Changing the last token changes no earlier logit."""
    p = Parameters(N=12, K=3, T=12, d=16, student=student)
    learner = Learner(p, 0)
    for w in learner.student.parameters():
        torch.nn.init.normal_(w, std=0.3)
    tokens = torch.as_tensor(
        sample(p, 4, synthetic_table(12), np.random.default_rng(0)).tokens[:, :-1]
    )
    other = tokens.clone()
    other[:, -1] = (other[:, -1] + 1) % 12
    before, after = learner.student(tokens), learner.student(other)
    torch.testing.assert_close(
        before[:, :-1], after[:, :-1], rtol=0, atol=1e-5
    )  # single precision
    assert (before[:, -1] - after[:, -1]).abs().max() > 1e-3
    assert not isinstance(learner.student, Transformer) or learner.student(
        tokens
    ).shape == (4, 12, 12)


def test_planted_memories_solve_the_task():
    """Target memories in a simplified student: all probes 1, accuracy near 1;
    untrained, near chance.
    """
    p = Parameters(N=16, K=3, T=24, d=256, n_test=64)
    found = planted(p).measure()
    assert found["probe_W_O2"] == found["probe_W_K2"] == found["probe_W_K1"] == 1
    assert found["in_context_accuracy"] > 0.9
    assert Learner(p, 0).measure()["in_context_accuracy"] < 0.3


def test_probes_are_shares_of_right_recalls():
    """Planted memories that noise has spoiled in part: each recall on its own, and the
    mean of the hits by the equation.
    """
    p = Parameters(N=24, K=12, T=24, d=32)
    learner = planted(p)
    student, random = learner.student, torch.Generator().manual_seed(0)
    with torch.no_grad():
        for w in (student.W_O2, student.W_K2, student.W_K1):
            w += 2.5 * w.std() * torch.randn(w.shape, generator=random)
    e, x = student.tokens, student.positions
    triggers = [int(q) for q in learner.triggers]
    scores = {
        "probe_W_O2": [
            [u @ student.W_O2 @ student.W_V2 @ e[z] for u in student.unembedding]
            for z in range(p.N)
        ],
        "probe_W_K2": [
            [e[q] @ student.W_K2 @ student.W_OV1 @ e[r] for r in triggers]
            for q in triggers
        ],
        "probe_W_K1": [
            [x[t] @ student.W_K1 @ x[s] for s in range(p.T)] for t in range(1, p.T)
        ],
    }
    form, found = (
        trigger_task.equations()["probe"].rhs,
        student.probes(learner.triggers),
    )
    for name, rows in scores.items():
        hits = [int(max(row) == row[k]) for k, row in enumerate(rows)]
        share = form.subs(trigger_task.size, len(hits)).doit()
        share = share.subs({trigger_task.hit[k]: hit for k, hit in enumerate(hits, 1)})
        assert found[name] == pytest.approx(float(share), rel=1e-12)
        assert 0.1 < found[name] < 1, name


def test_training_learns_and_stages_freeze(tmp_path):
    """A few joint steps lower the loss; in the first stage of staged training only W_O2
    moves.
    """
    p = Parameters(
        N=12, K=3, T=24, d=32, n_test=64, batch_size=32, steps=30, eval_every=15
    )
    found = train(p, [0], store=tmp_path, workers=1, progress=False)
    assert float(found.loss[0, -1]) < float(found.loss[0, 0]) - 0.2
    learner = Learner(p.replace(schedule="staged"), 0)
    for number in range(5):
        learner.step(number)
    moved = {
        name: float(w.detach().abs().max()) > 0
        for name, w in learner.student.named_parameters()
    }
    assert moved == {"W_O2": True, "W_K2": False, "W_K1": False}
    # Frozen ones are drawn anew for every seed, with variance 1/d: 1024 entries scatter
    # by 4%.
    drawn = [Learner(p, seed).student.W_OV1 for seed in (0, 1)]
    assert (drawn[0] != drawn[1]).all()
    assert all(float(w.var() * p.d) == pytest.approx(1, abs=0.2) for w in drawn)


def test_own_text(tmp_path, capsys):
    """From a file, by the command; stored apart from runs on the shipped table; wrong
    sizes and files refused.
    """
    source = tmp_path / "input.txt"
    source.write_text("to be, or not to be: that is the question. " * 20)
    store = tmp_path / "runs"
    words = [
        "trigger_task",
        "--text",
        str(source),
        "--set",
        "d=16",
        "--set",
        "T=16",
        "--set",
        "steps=2",
        "--quiet",
        "--workers",
        "1",
    ]
    assert command.main([*words, "--out", str(store)]) == 0
    assert "in_context_accuracy" in capsys.readouterr().out
    table, alphabet = table_of_text(source.read_text())
    p = Parameters(N=len(alphabet), d=16, T=16, steps=2)
    train(p, [0], store=store, workers=1, progress=False)
    assert len(list(store.glob("*/seed-00000.nc"))) == 2
    with pytest.raises(ParameterError, match=f"N = 5: must be {len(alphabet)}"):
        train(p.replace(N=5, K=2), [0], table=table, store=store)
    source.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ParameterError, match="must be a text file"):
        command.main(words)


@pytest.mark.parametrize("triggers", ["fixed", "drawn"])
def test_probes_are_of_the_tokens_that_may_be_triggers(triggers, monkeypatch):
    """The most frequent ones, or all of them if triggers are drawn; their recall is
    measured.
    """
    learner, asked = Learner(P.replace(triggers=triggers, n_test=4), 0), []
    most = fixed_triggers(P, synthetic_table(P.N)).tolist()
    probes = learner.student.probes
    monkeypatch.setattr(
        learner.student, "probes", lambda t: asked.append(t) or probes(t)
    )
    measured = learner.measure()
    assert asked[0].tolist() == (most if triggers == "fixed" else list(range(P.N)))
    assert probes(asked[0]).items() <= measured.items()


def test_what_a_student_or_table_does_not_have_is_refused():
    """A transformer has no matrices to train in stages; a token that only follows
    itself has no other output.
    """
    with pytest.raises(
        ParameterError, match="schedule = staged: must be joint with student"
    ):
        Parameters(student="transformer", schedule="staged")
    p = Parameters(N=3, K=1, outputs="bigram", self_loops=False)
    table = Table(
        np.array([0.6, 0.2, 0.2]), np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0]])
    )
    with pytest.raises(ParameterError, match="self_loops = False"):
        sample(p, 2, table, np.random.default_rng(0))
