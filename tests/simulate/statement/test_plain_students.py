"""Generated students against plain ones that were written by hand, at the same weights.

The one thing that a statement's own checks cannot see is a wrong statement.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "theory" / "statement"))
import systems

from simulate.associative_memory import factual_recall
from simulate.associative_memory.factual_recall import LinearAttention
from simulate.induction_heads import student as heads
from simulate.induction_heads import student as pairs
from simulate.statement import Student
from simulate.training.streams import keyed
from theory.associative_memory.factual_recall import Parameters
from theory.associative_memory.factual_recall.dynamics import recall
from theory.induction_heads import Parameters as Induction
from theory.induction_heads import network
from theory.statement import eq, exp, fixed, sort, statement, total, weight
from theory.statement.derivation.derived import derive
from theory.statement.evaluation.arrays import Data
from verify.checks import check
from verify.statement import gradients

ROUNDING = 1e-12  # relative: some hundred operations in double precision


def generated(stated, weights, data):
    """Loss of the student that a statement makes."""
    student = Student(stated)
    held = {
        w: torch.as_tensor(weights[w.name], dtype=torch.float64) for w in stated.weights
    }
    return float(student.mean(held, student.taken(data)))


def test_factual_recall():
    """Random weights, unbalanced facts, tokens in random places."""
    stated, rng = recall(), keyed(3, 0)
    p = Parameters(S=8, R=3, D=4, T=7, noise_tokens=6)
    facts = np.arange(p.R) * p.D + rng.integers(p.D, size=(p.S, p.R))
    tokens, answers = factual_recall.draw_sequences(p, 64, facts, rng)
    plain = LinearAttention(p)
    with torch.no_grad():
        plain.w.copy_(torch.as_tensor(rng.normal(size=plain.w.shape)))
        plain.V.copy_(torch.as_tensor(rng.normal(size=plain.V.shape)))
    weights = {}
    kinds = {
        "s": slice(p.S),
        "r": slice(p.S, p.S + p.R),
        "n": slice(p.S + p.R, -1),
        "e": -1,
    }
    for kind, rows in kinds.items():
        w, V = plain.w.detach()[rows], plain.V.detach()[rows]
        weights |= {f"w_{kind}": w, f"V_{kind}": V.reshape(*w.shape, p.R, p.D)}
    noise = (tokens >= p.S + p.R) & (tokens < p.vocabulary - 1)
    first = [next(t for t in row if t < p.S) for row in tokens]
    second = [next(t for t in row if p.S <= t < p.S + p.R) for row in tokens]
    (f,), (z,) = (
        [x for x in stated.functions if x.kept == kept] for kept in (True, False)
    )
    subject, relation = stated.draws
    data = Data(
        {"S": p.S, "R": p.R, "D": p.D, "T": p.T, "noise_tokens": p.noise_tokens},
        {f: facts % p.D, z: tokens[noise].reshape(64, p.T - 3) - p.S - p.R},
        {subject: np.array(first), relation: np.array(second) - p.S},
        chances=np.full(64, 1 / 64),
    )
    logits = plain(torch.as_tensor(tokens)).detach()
    loss = float(torch.nn.functional.cross_entropy(logits, torch.as_tensor(answers)))
    assert generated(stated, weights, data) == pytest.approx(loss, rel=ROUNDING)


@pytest.mark.parametrize("q", [1, 3, 5])
@pytest.mark.parametrize("mask", ["strict", "inclusive"])
def test_induction_heads(q, mask):
    """The model's own statement: three numbers, any queried pair, on orthonormal
    tokens.
    """
    stated = network.derived(mask).statement
    p = Induction(N=5, D=10, data="orthonormal", mask=mask, trained="three")
    random = pairs.generator(0, "test")
    items, labels, codes = pairs.orthonormal(p, 4, random, torch.float64)
    batch = pairs.batch_of(items, labels, codes, torch.full((4,), q - 1))
    plain = heads.Constrained(p.dimension, mask, torch.float64)
    theta = {"alpha": 0.7, "beta": 1.3, "gamma": 0.4}
    with torch.no_grad():
        plain.theta.copy_(torch.tensor(list(theta.values()), dtype=torch.float64))
    loss = float(heads.squared_error(plain(batch.X), batch.y, "sum").detach())
    (at,) = stated.draws
    data = Data(
        {"N": p.N, "q": q}, {}, {at: np.full(4, q - 1)}, chances=np.full(4, 0.25)
    )
    found = generated(stated, theta, data)
    assert found == pytest.approx(
        loss, rel=1e-10
    )  # frames are orthonormal to rounding of a QR


def test_linear_attention():
    """All weights of one head that the statement has, on random prompts."""
    plain = pytest.importorskip("linear_attention.simulate")
    stated, rng, D, N = systems.regression(), keyed(4, 0), 3, 5
    x, q, t = (rng.normal(size=shape) for shape in ((40, N, D), (40, D), (40, D)))
    weights = {"v": rng.normal(), "U": rng.normal(size=(D, D))}
    weights |= {"b": rng.normal(size=D), "c": rng.normal(size=D)}
    inputs = np.concatenate([x, q[:, None]], 1).transpose(0, 2, 1)
    X, answers = plain.tokens(inputs, t[..., None])
    value, pairing = (
        torch.zeros(1, D + 1, D + 1).double(),
        torch.zeros(1, D + 1, D + 1).double(),
    )
    value[0, -1, :-1], value[0, -1, -1] = torch.tensor(weights["b"]), weights["v"]
    pairing[0, :-1, :-1], pairing[0, -1, :-1] = map(
        torch.tensor, (weights["U"], weights["c"])
    )
    found = plain.attention({"value": value, "key_query": pairing}, X)
    loss = float((answers - found).square().mean() / 2)
    named = {"x": x, "q": q, "t": t}
    data = Data(
        {"D": D, "N": N},
        gausses={g: named[g.name] for g in stated.gausses},
        chances=np.full(40, 1 / 40),
    )
    assert generated(stated, weights, data) == pytest.approx(loss, rel=ROUNDING)


def test_a_wrong_statement_is_seen_here_and_nowhere_else():
    """A normaliser left out of induction: its own checks pass,
    the plain student tells.
    """
    pair = sort("pair", 5)
    beta, gamma, q = weight("beta")[()], weight("gamma")[()], fixed(pair, 5)

    def loss(norm):
        score = lambda i: exp(beta * eq(i, q))
        own = total(lambda i: score(i) * eq(i, q), pair)
        whole = total(score, pair) if norm else 5
        return (1 - gamma * own / whole) ** 2

    right, wrong = (statement(loss(norm)) for norm in (True, False))
    for stated in (right, wrong):
        assert not check.failed(gradients.checks(derive(stated)))
    scores = torch.tensor([0, 0, 0, 0, 1.3], dtype=torch.float64)
    plain = float((1 - 0.4 * torch.softmax(scores, 0)[-1]) ** 2)
    found = []
    for stated in (right, wrong):
        (at,) = stated.draws
        data = Data({}, {}, {at: np.array([4])}, chances=np.ones(1))
        found.append(generated(stated, {"beta": 1.3, "gamma": 0.4}, data))
    assert found[0] == pytest.approx(plain, rel=ROUNDING)
    assert abs(found[1] - plain) > 0.01
