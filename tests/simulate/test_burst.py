"""Sequences that end in a burst: a transformer written by hand against the statement,
and against the sequences of one right pair.
"""

import pytest
import torch

from simulate.induction_heads import student as pairs
from simulate.induction_heads import train
from simulate.induction_heads.student import Constrained, squared_error
from simulate.statement import Student
from simulate.training.streams import keyed
from theory.call.refusal import ParameterError
from theory.induction_heads import Parameters, bursty
from theory.statement.evaluation import arrays

GIVEN = dict(data="orthonormal", query="last")


@pytest.mark.parametrize("B", [1, 3])
def test_statement_is_the_transformer(B):
    """Loss and all three slopes, at random numbers, on drawn sequences."""
    p = Parameters(N=5, B=B, trained="three", batch_size=2, **GIVEN)
    batch = pairs.sample(p, pairs.generator(0, "train"), dtype=torch.float64)
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
    assert [found[n] for n in place] == pytest.approx(
        plain.theta.grad.tolist(), rel=1e-10
    )


@pytest.mark.parametrize("data", ["orthonormal", "gaussian"])
def test_only_the_tokens_of_the_last_pairs_are_repeated(data):
    """Codes differ as before; other rows, the query and the target are those of one
    right pair.
    """
    p = Parameters(N=5, D=10, data=data, query="last")
    one, burst = (
        pairs.sample(p.replace(B=B), pairs.generator(1, "train"), 3, torch.float64)
        for B in (1, 3)
    )
    D, rows = p.dimension, slice(2 * (p.N - 3), 2 * p.N)
    assert torch.equal(one.X[..., D:], burst.X[..., D:]) and torch.equal(one.y, burst.y)
    repeated = one.X[:, -3:-1, :D].repeat(1, 3, 1)
    assert torch.equal(burst.X[:, rows, :D], repeated)
    one.X[:, rows, :D] = repeated
    assert torch.equal(one.X, burst.X)


@pytest.mark.parametrize("field", [dict(B=2, query="uniform"), dict(B=5), dict(B=6)])
def test_refused(field):
    """Where the queried pair is not the last, or no other pair is left."""
    with pytest.raises(ParameterError, match="^B = "):
        Parameters(**{**GIVEN, "N": 5, **field})


def test_bursts_help_when_every_weight_moves(tmp_path):
    """Alpha of a student of all weights is ahead with two right pairs."""
    p = Parameters(
        N=4, steps=60, batch_size=16, loss="sum", eta=0.2 * 8, eval_every=60, **GIVEN
    )
    given = dict(seeds=[0], store=tmp_path, progress=False)
    one, two = (float(train(p.replace(B=B), **given).alpha[0, -1]) for B in (1, 2))
    assert 0 < 1.1 * one < two
