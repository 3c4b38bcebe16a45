"""Students of the induction-head task: data laws, masks, the three realisations,
projections, the time trap.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from simulate.induction_heads import (
    Constrained,
    Parameters,
    Student,
    assemble,
    project,
    residual,
    standard,
    train,
)
from simulate.induction_heads import student as pairs
from simulate.induction_heads.learner import Learner
from simulate.induction_heads.student import (
    NAMES,
    PSEUDO,
    THREE,
    Nineteen,
    attention,
    kernel,
    squared_error,
)
from theory.call.refusal import ParameterError
from theory.induction_heads.parameters import StandardParameters

DOUBLE = torch.float64
ALONE = {"progress": False, "workers": 1, "device": "cpu"}
ROUNDING = 1e-13  # some hundred operations in float64


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gap(a, b) -> float:
    return float((a - b).abs().max().detach())


def test_orthonormal_data():
    """All tokens, and codes with swapped codes, are orthonormal; also where D > 2N."""
    for D in (6, 10):
        items, labels, codes = pairs.orthonormal(
            Parameters(N=3, D=D, data="orthonormal"), 4, random(), DOUBLE
        )
        for rows in (
            torch.cat([items, labels], 1),
            torch.cat([codes, pairs.swap(codes)], 1),
        ):
            assert (
                gap(rows @ rows.transpose(1, 2), torch.eye(6, dtype=DOUBLE)) < ROUNDING
            )


def test_haar_frames_are_isotropic():
    """Mean of one entry and mean square over many frames: 0 and 1/D, |z| <= 4."""
    frames = pairs.haar((4000, 2, 4), random(3), DOUBLE)
    entries = frames[:, 0, 0].numpy()
    assert abs(entries.mean()) / (entries.std() / np.sqrt(4000)) < 4
    squares = frames[:, 1, 2].square().numpy()
    assert abs(squares.mean() - 0.25) / (squares.std() / np.sqrt(4000)) < 4


def test_sequence():
    """Eqs. (3)-(4): rows, query and target."""
    p = Parameters(N=3, D=4)
    items, labels, codes = torch.randn(3, 2, 3, 4, generator=random())
    batch = pairs.batch_of(items, labels, codes, torch.tensor([2, 0]))
    assert batch.X.shape == (2, 7, 8)
    M = torch.zeros(4, 4)
    M[:2, 2:] = M[2:, :2] = torch.eye(2)
    for k in range(3):
        assert torch.equal(batch.X[:, 2 * k], torch.cat([items[:, k], codes[:, k]], -1))
        assert torch.equal(
            batch.X[:, 2 * k + 1], torch.cat([labels[:, k], codes[:, k] @ M], -1)
        )
    assert torch.equal(batch.X[0, -1], torch.cat([items[0, 2], torch.zeros(4)]))
    assert torch.equal(batch.y[1], labels[1, 0])
    for query, allowed in (("last", {2}), ("uniform", {0, 1, 2}), ("each", {0, 1, 2})):
        assert (
            set(pairs.sample(p.replace(query=query), random(), 64).q.tolist())
            == allowed
        )
    assert pairs.sample(p.replace(query="each"), random(), 6).q.tolist() == [
        0,
        1,
        2,
        0,
        1,
        2,
    ]


def test_gaussian_data():
    """Mean 0, variance 1 and fourth moment 3 of items, labels and codes, which are
    uncorrelated; every pair queried alike: |z| <= 4.
    """
    batch = pairs.sample(Parameters(N=4, D=8), random(1), 512)

    def off(values, expected):
        values = np.ravel(values)
        return abs(values.mean() - expected) / (values.std() / np.sqrt(values.size))

    first = batch.X[:, 0:-1:2].numpy(), batch.X[:, 1::2].numpy()
    drawn = item, code, label = first[0][..., :8], first[0][..., 8:], first[1][..., :8]
    for x in (*drawn, batch.y.numpy()):
        assert off(x, 0) < 4 and off(x**2, 1) < 4 and off(x**4, 3) < 4
    for one, other in (
        (item, code),
        (item, label),
        (code, label),
        (item, np.roll(item, 1, 1)),
    ):
        assert off(one * other, 0) < 4
    assert all(off(batch.q.numpy() == k, 0.25) < 4 for k in range(4))


def test_masks():
    """Strict: the first row is zero, not 0/0, also in its gradient; inclusive: rows see
    themselves.
    """
    scores = torch.randn(1, 4, 4, dtype=DOUBLE, generator=random(), requires_grad=True)
    strict, inclusive = attention(scores, "strict"), attention(scores, "inclusive")
    assert torch.equal(strict[0].triu(), torch.zeros(4, 4, dtype=DOUBLE))
    assert torch.equal(inclusive[0].triu(1), torch.zeros(4, 4, dtype=DOUBLE))
    assert (
        gap(strict[0, 1:].sum(1), torch.ones(3, dtype=DOUBLE)) < ROUNDING
        and strict[0, 0].sum() == 0
    )
    strict.square().sum().backward()
    assert torch.isfinite(scores.grad).all()
    assert gap(attention(scores[:, -1:], "strict"), strict[:, -1:]) == 0


@pytest.mark.parametrize("mask", ["strict", "inclusive"])
def test_three_realisations_agree(mask):
    """All weights, 19 directions, three numbers:
    the same function where they overlap.
    """
    D = 6
    batch = pairs.sample(Parameters(N=4, D=D), random(2), 5, DOUBLE)
    full, nineteen, three = (
        Student(D, mask, DOUBLE),
        Nineteen(D, mask, DOUBLE),
        Constrained(D, mask, DOUBLE),
    )
    nineteen.theta.data = torch.randn(19, generator=random(4), dtype=DOUBLE)
    full.load_state_dict({k: v.detach() for k, v in nineteen.weights().items()})
    assert gap(full(batch.X), nineteen(batch.X)) < ROUNDING
    three.theta.data = torch.tensor([0.3, 0.7, 0.9], dtype=DOUBLE)
    full.load_state_dict({k: v.detach() for k, v in three.weights().items()})
    assert gap(full(batch.X), three(batch.X)) < ROUNDING


def test_plain_forward():
    """The definition (1) written out with loops, all rows, for arbitrary weights."""
    D, N = 4, 3
    student = Student(D, "strict", DOUBLE)
    for w in student.parameters():
        w.data = torch.randn(w.shape, generator=random(w.shape[0]), dtype=DOUBLE) / 4
    X = pairs.sample(Parameters(N=N, D=D), random(5), 1, DOUBLE).X[0]

    def layer(h, W):
        retrieved = torch.zeros_like(h)
        for i in range(1, len(h)):
            weight = torch.exp(torch.stack([h[i] @ W @ h[j] for j in range(i)]))
            retrieved[i] = sum(weight[j] * h[j] for j in range(i)) / weight.sum()
        return torch.cat([h, retrieved], 1)

    with torch.no_grad():
        expected = layer(layer(X, student.W1), student.W2)[-1] @ student.W3
        assert gap(student(X[None])[0], expected) < ROUNDING


def test_projection():
    """Reads back what was assembled, sees nothing else, and the kernels are orthogonal
    with squared norm D; of full matrices, the inner product with each of the 19 over D.
    """
    values = dict(
        zip(NAMES, torch.randn(19, generator=random(), dtype=DOUBLE), strict=True)
    )
    weights = assemble(values, 4)
    assert gap(project(weights), torch.stack(list(values.values()))) < ROUNDING
    assert float(residual(weights)) < ROUNDING
    weights["W1"][0, 1] += 1.0
    assert gap(project(weights), torch.stack(list(values.values()))) < ROUNDING
    norm = np.sqrt(sum(float(w.square().sum()) for w in weights.values()))
    assert float(residual(weights)) == pytest.approx(1 / norm, rel=1e-12)
    eye, M = kernel("I", 4), kernel("M", 4)
    assert (
        float((eye * M).sum()) == 0
        and float(eye.square().sum()) == float(M.square().sum()) == 4
    )
    assert torch.equal(M @ M, eye) and torch.equal(M, M.T)
    assert float(residual({k: 0 * w for k, w in weights.items()})) == 0
    assert len(PSEUDO) == 19
    full = {
        k: torch.randn(w.shape, generator=random(1), dtype=DOUBLE)
        for k, w in weights.items()
    }
    for name, found in zip(NAMES, project(full), strict=True):
        along = assemble({name: 1.0}, 4)
        assert gap(found, sum((full[k] * along[k]).sum() for k in full) / 4) < ROUNDING


@pytest.mark.parametrize("mask", ["strict", "inclusive"])
def test_four_directions_never_move(mask):
    """beta_3..beta_6 stay exactly zero in SGD on all weights; the other 15 all move."""
    p = Parameters(N=3, D=4, mask=mask, batch_size=16, steps=30, eval_every=30, eta=0.2)
    last = train(p, store=None, dtype="float64", **ALONE).isel(t=-1, seed=0)
    moved = {
        str(n)
        for n, v in zip(last.parameter.values, last.pseudo.values, strict=True)
        if v != 0
    }
    assert set(NAMES) - moved == {"beta_3", "beta_4", "beta_5", "beta_6"}


def first_steps(**options):
    """Change of (alpha, beta, gamma) and of t in the third step,
    from one shared state.
    """
    p = Parameters(
        N=3, D=8, data="orthonormal", query="last", batch_size=1, eta=0.1, **options
    )
    run = Learner(p, 0, torch.device("cpu"), DOUBLE)
    start = dict(zip(THREE, (0.3, 0.7, 0.6), strict=True))
    with torch.no_grad():
        if p.trained == "all":
            run.student.load_state_dict(assemble(start, 8))
        elif p.trained == "nineteen":
            run.student.theta.copy_(
                torch.tensor([start.get(n, 0.0) for n in NAMES], dtype=DOUBLE)
            )
        else:
            run.student.theta.copy_(torch.tensor(list(start.values()), dtype=DOUBLE))
    before = project(run.student.weights()).detach().clone()
    run.step(0)
    moved = (project(run.student.weights()).detach() - before)[
        [NAMES.index(n) for n in THREE]
    ]
    return moved.numpy(), p.time_per_step


def test_time_normalisation():
    """The trap: a step of matrices is D times slower than one of the three numbers, a
    mean loss D times slower again.

    Divided by `Parameters.time_per_step` all six are the same velocity, that of the
    flow.
    """
    reference, step = first_steps(trained="three", loss="sum")
    assert step == 0.1
    for trained, loss, slower in [
        ("three", "mean", 8),
        ("projected", "sum", 8),
        ("projected", "mean", 64),
        ("all", "sum", 8),
        ("all", "mean", 64),
        ("nineteen", "mean", 64),
    ]:
        moved, per_step = first_steps(trained=trained, loss=loss)
        np.testing.assert_allclose(
            moved * slower, reference, rtol=1e-9
        )  # steps of 1e-5 read off numbers of order 1
        assert per_step == pytest.approx(0.1 / slower, rel=1e-15)


def test_population_descent_is_noiseless():
    """On orthonormal data inside the 19 directions the loss does not depend on the
    draw; outside it does.
    """
    D, N = 8, 4
    p = Parameters(N=N, D=D, data="orthonormal", query="each")
    student = Nineteen(D, "strict", DOUBLE)
    student.theta.data = torch.randn(19, generator=random(4), dtype=DOUBLE) / 2
    batches = [pairs.sample(p, random(k), N, DOUBLE) for k in range(3)]
    losses = [squared_error(student(b.X), b.y, "sum").item() for b in batches]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-12)
    full = Student(D, "strict", DOUBLE)
    full.load_state_dict({k: v.detach() for k, v in student.weights().items()})
    full.W1.data[0, 1] += 1.0
    losses = [squared_error(full(b.X), b.y, "sum").item() for b in batches]
    assert np.ptp(losses) > 1e-4


def test_divergence_is_one_line():
    """App. C's learning rate with the SUM over D diverges within 32 steps, and is
    refused in one line; the mean trains.
    """
    p = Parameters.structure().replace(
        loss="sum", steps=64, eval_every=4, batch_size=64
    )
    with pytest.raises(
        ParameterError, match=r"^eta = 1: the loss is not finite at step \d+"
    ):
        train(p, store=None, **ALONE)
    runs = train(p.replace(loss="mean"), store=None, **ALONE)
    assert (
        float(runs.loss.isel(t=-1)[0]) < 1 - 1 / 8
    )  # below the plateau 1 - 1/(2N): the head has begun to work


def test_the_three_become_positive_and_lead():
    """The paper's setting at a smaller size: alpha_3, beta_2 and gamma_3, with their
    signs, exceed the size of each of the other sixteen.
    """
    p = Parameters.structure().replace(N=4, D=8, batch_size=64, steps=60, eval_every=60)
    last = train(p, store=None, seeds=range(2), **ALONE).pseudo.isel(t=-1)
    three, others = (
        last.sel(parameter=list(THREE)),
        last.drop_sel(parameter=list(THREE)),
    )
    assert (three.min("parameter") > abs(others).max("parameter")).all()


def test_dataset():
    """Names of the flow, coordinates t and step, loss relative to predicting zero."""
    p = Parameters(N=2, D=4, batch_size=4, steps=7, eval_every=3)
    runs = train(p, store=None, seeds=[0, 2], keep_weights=True, **ALONE)
    assert runs.step.values.tolist() == [0, 3, 6, 7] and runs.seed.values.tolist() == [
        0,
        2,
    ]
    np.testing.assert_allclose(runs.t, runs.step * p.time_per_step)
    np.testing.assert_array_equal(runs.alpha, runs.pseudo.sel(parameter="alpha_3"))
    assert runs.W2.sizes == {"seed": 2, "t": 4, "row_2": 16, "column_2": 16}
    y = pairs.sample(p, pairs.generator(2, "test")).y
    exact = train(p, store=None, dtype="float64", keep_weights=True, **ALONE)
    for _, then in exact.isel(seed=0).groupby(
        "step"
    ):  # weights of every time, not of the last
        of = {
            f"W{k}": then[f"W{k}"].transpose(..., f"row_{k}", f"column_{k}")
            for k in (1, 2, 3)
        }
        weights = {name: torch.as_tensor(w.values[0]) for name, w in of.items()}
        np.testing.assert_array_equal(project(weights), then.pseudo.values[0])
    assert float(runs.loss.sel(seed=2)[0]) == pytest.approx(
        float(y.square().sum(1).mean()) / 4, rel=1e-6
    )


SMALL = StandardParameters(
    D=16, vocabulary=8, block=10, pairs=2, batch_size=16, steps=6
)


def test_standard_transformer():
    """Sequences repeat one item and ask for its label; the interpretation reproduces
    the scores of the forward pass, and alone, on coordinates in the four copies of the
    embeddings, its logits.
    """
    tokens, offset, label = standard.sample(SMALL, random())
    assert tokens.shape == (16, 5) and int(offset.max()) + 5 <= 10
    for row, target in zip(tokens, label, strict=True):
        assert len(set(row[:4].tolist())) == 4
        place = row[:4].tolist().index(int(row[4]))
        assert place % 2 == 0 and row[place + 1] == target
    model = standard.Transformer(SMALL, random(7))
    with torch.no_grad():
        parts = model.interpret()
        h = model.E[tokens[:1]] + model.P[offset[:1, None] + torch.arange(5)]
        scores = (h @ model.Q[0].T) @ (h @ model.K[0].T).transpose(1, 2) / 4
        places = 8 + offset[0] + torch.arange(5)
        S = parts["scores_1"]
        sums = sum(S[a][:, b] for a in (tokens[0], places) for b in (tokens[0], places))
        assert gap(scores[0], sums) < 1e-4  # float32, numbers of order ten
    assert parts["scores_2"].shape == (36, 36) and parts["readout"].shape == (8, 72)
    exact = model.double().interpret()
    place = torch.zeros(5, 18, dtype=DOUBLE)
    place[range(5), tokens[0]] = place[range(5), places] = 1
    for layer in ("scores_1", "scores_2"):
        seen = attention((place @ exact[layer] @ place.T)[None], "inclusive")[0]
        place = torch.cat([place, seen @ place], 1)
    logits = model(tokens[:1], offset[:1])[0]
    assert (
        gap(place[-1] @ exact["readout"].T, logits) < 1e-11
    )  # rounding, numbers of order ten


def test_standard_student_written_out():
    """Both layers place by place: one head each, learned embeddings, no norm, no bias,
    no tied weight; two steps are AdamW's on the mean negative log-likelihood.
    """
    learner = standard.Learner(SMALL, 7, torch.device("cpu"), DOUBLE)
    named = dict(learner.student.named_parameters())
    assert named.keys() == {
        "E",
        "P",
        "out",
        *(f"{x}.{k}" for x in "QKVO" for k in range(2)),
    }
    tokens, offset, label = (x[:4] for x in learner._draw("train", 0))

    def written_out(w):
        rows = []
        for row, first in zip(tokens, offset, strict=True):
            h = [
                w["E"][token] + w["P"][first + place] for place, token in enumerate(row)
            ]
            for k in range(2):
                Q, K, V, O = (w[f"{x}.{k}"] for x in "QKVO")
                new = []
                for place, x in enumerate(h):
                    scores = (
                        torch.stack([(Q @ x) @ (K @ y) for y in h[: place + 1]])
                        / SMALL.D**0.5
                    )
                    weights = torch.exp(scores) / torch.exp(scores).sum()
                    new.append(
                        x + O @ V @ sum(a * y for a, y in zip(weights, h, strict=False))
                    )
                h = new
            rows.append(w["out"] @ h[-1])
        return torch.stack(rows)

    learner._draw = lambda stream, step: [tokens, offset, label]
    eta, decay = SMALL.eta, SMALL.weight_decay
    means = dict.fromkeys(named, 0.0), dict.fromkeys(named, 0.0)
    for step in (1, 2):
        w = {
            name: value.detach().clone().requires_grad_()
            for name, value in named.items()
        }
        logits = written_out(w)
        # Sums of 16 terms, twice.
        assert gap(learner.student(tokens, offset), logits) < 1e-11
        chosen = logits[torch.arange(4), label] - torch.log(torch.exp(logits).sum(1))
        gradients = torch.autograd.grad(-chosen.mean(), list(w.values()))
        learner.step(step - 1)
        for (name, start), g in zip(w.items(), gradients, strict=True):
            for mean, x, keep in zip(means, (g, g**2), (0.9, 0.999), strict=True):
                mean[name] = keep * mean[name] + (1 - keep) * x
            first, second = (
                m[name] / (1 - k**step)
                for m, k in zip(means, (0.9, 0.999), strict=True)
            )
            expected = (1 - eta * decay) * start - eta * first / (second.sqrt() + 1e-8)
            # Entries whose gradient is as small as AdamW's own 1e-8 see its rounding.
            assert gap(named[name], expected) < 1e-3 * eta * decay, name


def test_standard_training(tmp_path):
    """Learns the task at a small size; loss in nats starts above that of guessing, ln
    of the vocabulary, and ends near zero.
    """
    p = StandardParameters(
        D=64, vocabulary=8, block=8, pairs=2, batch_size=64, steps=125, eval_every=25
    )
    runs = standard.train(p, store=tmp_path, **ALONE)
    assert runs.loss.values[0, 0] > np.log(8) and runs.accuracy.values[0, -1] > 0.9
    assert runs.loss.values[0, -1] < 0.05 * np.log(
        4
    )  # of guessing among the four tokens there
    assert {"scores_1", "scores_2", "readout"} <= set(runs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": 20}, "pairs = 20: must be <= vocabulary / 2 = 16"),
        ({"block": 16}, "must fit into block = 16"),
        ({"D": 1}, "D = 1"),
    ],
)
def test_standard_parameters(change, message):
    """One line with what is allowed."""
    with pytest.raises(ParameterError, match=message):
        StandardParameters(**change)
