"""A head and a memory on contexts, written by hand, against the statement; and all weights against
the flow.
"""

import numpy as np
import pytest
import torch

from simulate import gradient_flow
from simulate.induction_heads import contexts
from simulate.statement import Student
from simulate.streams import keyed
from theory.induction_heads import in_weights
from theory.statement import arrays
from verify.emergence import first_crossing


def test_statement_is_the_loss_of_contexts():
    """Context by context, at random weights, to rounding: the order and the other items do not
    matter; they do if the queried item is among the others.
    """
    p, random, stated = in_weights.Parameters(L=3, C=5, R=2, B=2), keyed(3, 0), in_weights.stated
    seen, asked = (torch.as_tensor(x) for x in contexts.contexts(p, 64, random))
    by_hand = contexts.PoolTransformer(p)
    values = {n: torch.as_tensor(random.normal(size=x.shape)) for n, x in by_hand.weights.items()}
    by_hand.weights = values
    named = {"beta": values["S"], "w": values["w"], "c": values["c"]}
    named["M"] = values["M"].reshape(p.L, p.C, p.L)
    (own,) = (i for i in stated.draws if i.parent is None)
    (item,) = (i for i in stated.draws if i.parent is not None)
    draws = {own: asked // p.C, item: asked % p.C}
    data = arrays.Data(
        p.as_dict(), draws={k: x.numpy() for k, x in draws.items()}, chances=np.ones(64)
    )
    student = Student(stated)
    told = student.each({w: named[w.name] for w in stated.weights}, student.taken(data))
    found = by_hand.losses(seen, asked)
    np.testing.assert_allclose(found, told, rtol=0, atol=1e-13)
    for labels in (seen // p.C == k for k in range(p.L)):
        own = asked // p.C == 0
        assert set(labels.sum(1).tolist()) == {p.R, p.R + p.B} and own.any()
    other = by_hand.losses(seen.roll(1, 0), asked)  # contexts of other items
    assert (other - told).abs().max() > 0.1


def test_all_weights_follow_the_flow():
    """Every entry of the memory, the score and both read-outs, to 1e-9."""
    p, stated = (
        in_weights.Parameters(L=3, C=2, R=2, c_0=0.7, head_decay=0.01, fading=0.02),
        in_weights.stated,
    )
    student = Student(stated)
    data = student.taken(arrays.every_input(stated, p.as_dict(), None, {}))
    by_name = {w.name: w for w in stated.weights}
    shapes = {"beta": (), "w": (), "c": (), "M": (3, 2, 3)}
    weights = {n: torch.zeros(s, dtype=torch.float64) for n, s in shapes.items()}
    weights["c"] += p.c_0

    def loss(held):
        return student.mean({by_name[n]: x for n, x in held.items()}, data)

    (end,), _ = gradient_flow.integrate(loss, weights, 30.0, rtol=1e-12, atol=1e-14)
    flow = in_weights.flows()["in_weights"].solve(p, at=[30.0], t=30.0)
    right = torch.eye(3, dtype=torch.bool)[:, None].expand(3, 2, 3)
    M_1, M_0 = (float(flow[n][-1]) for n in ("M_1", "M_0"))
    told = np.where(right, M_1, M_0)
    for name in ("beta", "w", "c"):
        assert float(end[name]) == pytest.approx(float(flow[name][-1]), abs=1e-9)
    np.testing.assert_allclose(end["M"], told, rtol=0, atol=1e-9)
    assert float(end["c"]) > 1 and M_1 > 0.2  # something was learnt


def test_time_on_contexts():
    """One student within 3%: steps and batches; with Gaussian items and a full matrix the score is
    learnt faster by 1 + dim/K, as an item's own part of the matrix is.
    """
    p = in_weights.Parameters(R=4, C=32, eta=0.5, batch_size=64, c_0=0.5)
    time = in_weights.emergence_time(p)
    one, full = (
        float(first_crossing(run.expand_dims("seed").attention, 0.5).values[0])
        for run in (contexts.pool_descent(p.run_to(1.3 * time), 0, dim) for dim in (None, 64))
    )
    assert one == pytest.approx(time, rel=0.03) and full < 0.9 * one
