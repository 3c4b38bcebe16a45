"""Sequences that end in a burst: a transformer written by hand against the statement."""

import pytest
import torch

from simulate.induction_heads import burst, task
from simulate.induction_heads.student import Constrained, squared_error
from simulate.statement import Student
from simulate.streams import keyed
from theory.induction_heads import Parameters, bursty
from theory.statement import arrays


@pytest.mark.parametrize("B", [1, 3])
def test_statement_is_the_transformer(B):
    """Loss and all three slopes, at random numbers, on drawn sequences."""
    p = Parameters(N=5, trained="three", data="orthonormal", query="last")
    batch = burst.sequences(p, B, 2, task.generator(0, "train"))
    plain = Constrained(p.dimension, dtype=torch.float64)
    plain.theta.data = torch.tensor([0.7, 1.9, 1.3], dtype=torch.float64)
    loss = squared_error(plain(batch.X), batch.y, "sum")
    loss.backward()
    stated = bursty.stated
    student = Student(stated)
    data = student.taken(arrays.every_input(stated, {"N": p.N, "B": B}, keyed(0, 0)))
    place = dict(zip(("alpha", "beta", "gamma"), plain.theta.detach(), strict=True))
    told, slopes = student.gradients({w: place[w.name] for w in stated.weights}, data)
    assert told.item() == pytest.approx(loss.item(), rel=1e-12)
    found = {w.name: float(x) for w, x in slopes.items()}
    assert [found[n] for n in place] == pytest.approx(plain.theta.grad.tolist(), rel=1e-10)


def test_bursts_help_when_every_weight_moves():
    """Alpha of a student of all weights is ahead with two right pairs."""
    p = Parameters(N=4, trained="all", data="orthonormal", query="last", steps=60, batch_size=16)
    one, two = (float(burst.descent(p, B, 0, step=0.2).alpha[-1]) for B in (1, 2))
    assert 0 < 1.1 * one < two  # by 28%
