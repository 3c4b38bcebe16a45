"""Softmax heads written by hand, without the engine: mean loss at random weights."""

import itertools

import numpy as np
import pytest
import torch

from simulate.statement import Student
from simulate.streams import keyed
from theory.associative_memory import retrieval, softmax_recall
from theory.statement import arrays


def cross_entropy(logits, target):
    """Of one input."""
    return np.log(np.exp(logits).sum()) - logits[target]


def softmax(scores):
    """Attention."""
    weights = np.exp(scores)
    return weights / weights.sum()


def of_engine(stated, numbers, weights, tables=None):
    """Mean loss of the generated student over all listed inputs."""
    data = arrays.every_input(stated, numbers, keyed(7, 0), tables)
    student = Student(stated)
    told = {w: torch.tensor(weights[w.name]) for w in stated.weights}
    return float(student.mean(told, student.taken(data)))


def test_retrieval():
    """Every order of distinct keys and values, every place asked for."""
    N, M, P, rng = 4, 3, 2, keyed(5, 0)
    weights = {"K": rng.normal(size=(N, N)), "V": rng.normal(size=(M, M))}
    losses = [
        cross_entropy(softmax(weights["K"][x[a], list(x)]) @ weights["V"][list(y)], y[a])
        for x in itertools.permutations(range(N), P)
        for y in itertools.permutations(range(M), P)
        for a in range(P)
    ]
    found = of_engine(retrieval.stated, dict(N=N, M=M, P=P), weights)
    assert found == pytest.approx(np.mean(losses), rel=1e-12)


def test_recall():
    """Every subject, relation and noise; answers are numbered by relation and choice."""
    S, R, D, T, n, rng = 2, 2, 2, 5, 2, keyed(6, 0)
    facts = np.array([[0, 1], [1, 0]])
    shapes = {"s": (S,), "r": (R,), "n": (n,), "e": ()}
    w = {k: rng.normal(size=x) for k, x in shapes.items()}
    V = {k: rng.normal(size=(*x, R, D)) for k, x in shapes.items()}
    losses = []
    for s, r, *z in itertools.product(range(S), range(R), *[range(n)] * (T - 3)):
        tokens = [("s", s), ("r", r), ("e", ()), *(("n", k) for k in z)]
        attention = softmax(np.array([w[k][i] for k, i in tokens]))
        logits = sum(a * V[k][i] for a, (k, i) in zip(attention, tokens, strict=True))
        losses.append(cross_entropy(logits.ravel(), r * D + facts[s, r]))
    weights = {f"w_{k}": x for k, x in w.items()} | {f"V_{k}": x for k, x in V.items()}
    numbers = dict(S=S, R=R, D=D, T=T, n=n)
    (table,) = [f for f in softmax_recall.stated.functions if f.kept]
    found = of_engine(softmax_recall.stated, numbers, weights, {table: facts})
    assert found == pytest.approx(np.mean(losses), rel=1e-12)
