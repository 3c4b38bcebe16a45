"""Different runs are kept apart: settings in the name of a run, seeds in its data, test
sentences.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tiny import ALONE, STUDENTS, student

from simulate.associative_memory import superposition
from simulate.associative_memory.k_hop import PointerLearner
from simulate.associative_memory.noisy_bigram import Learner as Bigram
from simulate.associative_memory.noisy_bigram import Parameters as BigramParameters
from simulate.positional_semantic import student as positional_semantic_student
from simulate.positional_semantic.gamp import gamp
from simulate.positional_semantic.student import initial_weights
from simulate.store import joined_runs, runs
from simulate.training import arguments
from theory.associative_memory.k_hop import Pointers
from theory.call.refusal import ParameterError
from theory.models import registry
from theory.positional_semantic import Parameters as Sentences
from theory.positional_semantic import prox

# Fields that place a theory alone; all others identify a run.
OF_THEORY = {"zeta", "A_0", "R_0", "S_0", "prox", "order"}


def other_values(field, value):
    """What a field may hold instead."""
    if field.metadata.get("choices"):
        return [c for c in field.metadata["choices"] if c != value]
    if isinstance(value, bool):
        return [not value]
    if value is None:
        return [2, 0.5, "1.0,0.5"]
    if isinstance(value, int | float):
        tried = (value + 1, 2 * value, value + 2, 3 * value, value - 1, value / 2 + 0.3)
        return [v for v in tried if v != value]
    return ["1.1,0.7"]


@pytest.mark.parametrize("name", STUDENTS)
def test_every_setting_of_training_is_in_the_name_of_a_run(name):
    """And nothing else: two settings, two runs."""
    system, p = student(name)
    own, tried = system.configuration(p, torch.float32), 0
    aside = OF_THEORY
    for field in dataclasses.fields(p):
        if field.name in system.settings:  # what makes it this system
            continue
        for value in other_values(field, getattr(p, field.name)):
            try:
                other = system.configuration(
                    p.replace(**{field.name: value}), torch.float32
                )
            except ParameterError:
                continue
            tried += 1
            assert (other == own) == (field.name in aside), (field.name, value)
            break
    assert tried >= len(dataclasses.fields(p)) / 2
    assert system.configuration(p, torch.float64) != system.configuration(
        p, torch.float32
    )


def test_fields_of_theory_are_these():
    """A field of training that is marked as one of theory would share runs."""
    found = {
        f.name
        for m in registry.OWN
        for f in dataclasses.fields(getattr(m.wing("theory"), "Parameters", Sentences))
        if f.metadata.get("theory_only")
    }
    assert found == OF_THEORY


@pytest.mark.parametrize(
    "name", ["positional_semantic.attention", "positional_semantic.linear"]
)
def test_sentences_of_the_test_are_no_training_sentences(name, tmp_path, monkeypatch):
    """Drawn from streams of their own."""
    right, drawn = positional_semantic_student.draw_sentences, []

    def draw(p, n, rng):
        x = right(p, n, rng)
        drawn.append((n, float(x[0, 0, 0])))
        return x

    monkeypatch.setattr(positional_semantic_student, "draw_sentences", draw)
    system, p = student(name)
    system.train(p, [0, 1], store=tmp_path, **ALONE)
    first = {n: {x for m, x in drawn if m == n} for n in (p.n, p.n_test)}
    assert (
        len(first[p.n]) == len(first[p.n_test]) == 2
        and not first[p.n] & first[p.n_test]
    )


def test_runs_are_joined_in_the_order_of_what_is_swept(tmp_path):
    """Whatever comes first."""
    system, p = student("associative_memory.noisy_bigram")
    for value in (0.3, 0.1, 0.2):
        system.train(p.replace(eta=value), [0], store=tmp_path, **ALONE)
    pieces = [(v, runs.open(tmp_path).sel(eta=v, drop=True)) for v in (0.3, 0.1, 0.2)]
    for order in (pieces, pieces[::-1]):
        found = joined_runs.Grid(
            ["eta"], [(v,) for v, _ in order], [d for _, d in order]
        ).dataset({})
        assert found.eta.values.tolist() == [0.1, 0.2, 0.3]
        for value, one in pieces:
            assert (
                found.sel(eta=value, drop=True).loss.values.tolist()
                == one.loss.values.tolist()
            )


def test_without_the_feed_forward_path_the_value_memory_answers():
    """A student in which the two differ: noise with the path,
    the clean answer without.
    """
    learner = Bigram(BigramParameters(N=8, T=4, batch_size=4), 0, None, torch.float64)
    with torch.no_grad():
        learner.student["feed_forward"][-1] = 100.0
        learner.student["value"][:8] = torch.eye(8, dtype=torch.float64)
        learner.student["score"].fill_(5.0)
    found = learner.measure()
    assert (found["in_context"], found["distributional"]) == (0.0, 1.0)
    assert found["in_context_ablated"] > 0.95 and found["distributional_ablated"] == 0.0


def test_a_trained_memory_is_as_good_as_its_best_step():
    """Not as its last."""
    weight = torch.zeros(1, requires_grad=True)
    scripted = iter([[0, 1, 2, 0], [0, 1, 0, 0], [1, 0, 0, 0]])

    def logits():
        return (
            torch.nn.functional.one_hot(torch.tensor(next(scripted)), 4) + 0.0 * weight
        )

    assert superposition._descend([weight], logits, torch.arange(4), 3, 0.1) == 0.75


def passed(branch, d):
    """Where message passing ends: tokens, variances of the weights by finite
    differences of the minimiser, entry by entry, and their mean as the algorithm has
    it.
    """
    p = Sentences(d=d, alpha=2.0, start=branch, omega=0.35, prox="local")
    teacher, data = positional_semantic_student.sample(p, 3)
    weights = initial_weights(p, teacher, np.random.default_rng(0))["Q"][:, 0]
    message = gamp(p, data, weights, damping=0.85, iterations=3000)
    assert message.steps[-1] < 1e-9
    X = data.tokens.double().numpy() / np.sqrt(p.d)
    Y = np.stack(
        [data.target[:, 0, 1].double().numpy(), data.target[:, 1, 0].double().numpy()]
    )
    squares = (X**2).mean((0, 1))

    def spread(before):
        V = float(squares @ before)
        z = (X @ message.weights).T
        _, first, second, *_ = prox.objective(z, z, Y, 1.0, p.sigma)
        w = z + V * np.stack([first, second])  # the field whose minimiser is z
        slopes = []
        for k in range(2):
            ends = []
            for h in (1e-5, -1e-5):
                moved = w.copy()
                moved[k] += h
                ends.append(prox.descend(z, moved, Y, V, p.sigma)[0][k])
            slopes.append(((ends[0] - ends[1]) / 2e-5 - 1) / V)
        return 1 / (p.lam - np.einsum("nld,ln->d", X**2, np.stack(slopes)))

    found = np.full(p.d, message.variance)
    for _ in range(60):
        found = 0.5 * found + 0.5 * spread(found)
    return X, found, message


@pytest.mark.parametrize("branch", ["semantic", "positional"])
def test_variance_of_message_passing_is_that_of_its_minimisers(branch):
    """Where it ends, on either branch: the slopes of g by finite differences of the
    minimiser.
    """
    _, found, message = passed(branch, 60)
    assert (message.weights.mean() > 0.2) == (branch == "positional")
    assert message.variance == pytest.approx(found.mean(), rel=1e-5)


def test_variances_of_message_passing_concentrate():
    """(43), (52): over sentences and tokens the variance of a field scatters by
    (2/d)^(1/2), as the norm of a token does; over entries that of a weight by a
    multiple of d^(-1/2).
    """
    scatter = []
    for d in (60, 240):
        X, found, _ = passed("semantic", d)
        fields = X**2 @ found  # the algorithm takes their mean for all
        # 240 fields know their scatter to 5%.
        assert fields.std() / fields.mean() == pytest.approx((2 / d) ** 0.5, rel=0.15)
        scatter.append(found.std() / found.mean())
    # Sixty entries know theirs to a tenth; without concentration the ratio is one.
    assert scatter[0] / scatter[1] == pytest.approx(2, rel=0.4)


@pytest.mark.parametrize("start", ["semantic", "positional"])
def test_equal_columns_start_apart_by_a_hundredth(start):
    """Of their norm, whatever the dimension."""
    for d in (50, 800):
        p = Sentences(d=d, rank=2, start=start)
        teacher = np.random.default_rng(1).standard_normal(d)
        Q = initial_weights(p, teacher, np.random.default_rng(0))["Q"]
        norm = np.linalg.norm(teacher) if start == "semantic" else 1.0
        # The difference of two normal columns; 5 standard errors of its norm at d = 50.
        apart = np.linalg.norm(Q[:, 0] - Q[:, 1]) / norm
        assert apart == pytest.approx(0.01 * np.sqrt(2), rel=0.5)


def test_pointers_start_as_a_mean_over_layers():
    """Up to the spread of the start."""
    p = Pointers(layers=3, spread=1e-3)
    mixture = PointerLearner(p, 0).student["mixture"].detach().numpy()
    assert mixture.shape == (4, 4) and np.abs(mixture - 0.25).max() < 6e-3


def test_seeds_are_as_many_as_were_asked_for():
    """From a number."""
    assert arguments.seeds(3) == [0, 1, 2] and arguments.seeds(0) == []
