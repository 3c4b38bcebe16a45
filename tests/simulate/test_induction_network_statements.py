"""Statements of Musat et al. on the network itself: assumptions, one layer, any
orthonormal law, a large residual stream.
"""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp
import torch

from simulate.induction_heads import Constrained, Parameters, Student, assemble, project
from simulate.induction_heads import student as pairs
from simulate.induction_heads.student import (
    NAMES,
    PSEUDO,
    Nineteen,
    attention,
    residual,
    squared_error,
)
from theory import induction_heads as ih
from theory.induction_heads import dynamics, structure
from theory.induction_heads.all_weights.descent import rates
from theory.induction_heads.all_weights.running import loss_and_gradient

DOUBLE = torch.float64


def random(seed: int = 0) -> torch.Generator:
    """A stream of its own."""
    return torch.Generator().manual_seed(seed)


def test_zero_start():
    """Assumption 1: all weights are zero, and so is the prediction; the first gradient
    moves the output alone, which at gamma = 1 is the average of the context (Sec. 7.1).
    """
    p = Parameters(N=3, D=6)
    batch = pairs.sample(p, random(), 64, DOUBLE)
    student = Student(6, "strict", DOUBLE)
    assert all((w == 0).all() for w in student.parameters())
    loss = squared_error(student(batch.X), batch.y, "sum")
    assert loss.item() == pytest.approx(
        float(batch.y.square().sum(1).mean()), rel=1e-14
    )
    slopes = torch.autograd.grad(loss, list(student.parameters()))
    assert (
        (slopes[0] == 0).all()
        and (slopes[1] == 0).all()
        and slopes[2].abs().max() > 0.1
    )
    three = Constrained(6, "strict", DOUBLE)
    three.theta.data = torch.tensor((0.0, 0.0, 1.0), dtype=DOUBLE)
    torch.testing.assert_close(
        three(batch.X), batch.X[:, :-1, :6].mean(1), rtol=1e-12, atol=1e-12
    )


def test_population_and_isotropy_are_both_needed():
    """Assumptions 2 and 3: the average over rotations of one sample stays inside; one
    sample, or another law, does not.
    """
    D, size = 2, 3
    items, labels, codes = torch.randn(3, 1, size, D, generator=random(1), dtype=DOUBLE)
    values = dict(
        zip(NAMES, torch.randn(19, generator=random(2), dtype=DOUBLE) / 2, strict=True)
    )
    start = assemble(values, D)

    def gradient(batch):
        student = Student(D, "strict", DOUBLE)
        student.load_state_dict(start)
        squared_error(student(batch.X), batch.y, "sum").backward()
        return {name: w.grad for name, w in student.named_parameters()}

    def averaged(tokens, positions):
        turned = [
            pairs.batch_of(items @ E, labels @ E, codes @ F, torch.tensor([1]))
            for E in tokens
            for F in positions
        ]
        return gradient(
            pairs.Batch(
                torch.cat([b.X for b in turned]),
                torch.cat([b.y for b in turned]),
                torch.cat([b.q for b in turned]),
            )
        )

    tokens, positions = (
        [torch.tensor(g, dtype=DOUBLE) for g in structure.group(kind, D)]
        for kind in ("token", "position")
    )
    assert residual(averaged(tokens, positions)) < 1e-14  # rounding
    assert (
        residual(gradient(pairs.batch_of(items, labels, codes, torch.tensor([1]))))
        > 0.05
    )
    assert residual(averaged(tokens[:1], positions)) > 0.05  # codes alone are turned
    assert residual(averaged(tokens, positions[:1])) > 0.05


@pytest.mark.parametrize(
    "corner", [[[1, 0], [0, 1]], [[0, 1], [1, 0]]], ids=["diag", "antidiag"]
)
def test_rotation_conjugates_the_gradient_of_every_block(corner):
    """Eq. (9), A.7: items and labels turned by E, codes by F, at weights inside the 19
    directions; outside them it does not hold.
    """
    D = 4
    items, labels, codes = torch.randn(3, 2, 3, D, generator=random(1), dtype=DOUBLE)
    E, e = (pairs.haar((1, k, k), random(2), DOUBLE)[0] for k in (D, D // 2))
    turn = {"token": E, "position": torch.kron(torch.tensor(corner, dtype=DOUBLE), e)}
    values = dict(
        zip(NAMES, torch.randn(19, generator=random(3), dtype=DOUBLE) / 2, strict=True)
    )
    student = Student(D, "strict", DOUBLE)
    student.load_state_dict(assemble(values, D))

    def gradients(*data):
        student.zero_grad()
        batch = pairs.batch_of(*data, torch.tensor([1, 2]))
        squared_error(student(batch.X), batch.y, "sum").backward()
        return {name: w.grad for name, w in student.named_parameters()}

    def gap():
        plain = gradients(items, labels, codes)
        turned = gradients(items @ E, labels @ E, codes @ turn["position"])
        worst = []
        for name, (rows, columns) in structure.BLOCKS.items():
            R, C = (
                torch.block_diag(*(turn[k] for k in kinds)) for kinds in (rows, columns)
            )
            worst.append(float((turned[name] - R.T @ plain[name] @ C).abs().max()))
            assert plain[name].abs().max() > 1e-2
        return max(worst)

    assert gap() < 1e-12  # rounding
    student.W1.data[0, 1] += 0.3
    assert gap() > 1e-3


@pytest.mark.parametrize("data", ["gaussian", "orthonormal"])
def test_data_are_isotropic(data):
    """Assumption 3: fourth moments of items and labels stay under a rotation, those of
    codes under a block-orthogonal one; those of a law of signs do not.
    """
    D = 6
    E, e = (pairs.haar((1, k, k), random(3), DOUBLE)[0] for k in (D, D // 2))
    F = torch.kron(torch.tensor([[0, 1], [1, 0]], dtype=DOUBLE), e)
    batch = pairs.sample(Parameters(N=2, D=D, data=data), random(4), 60_000, DOUBLE)
    item, code, label = batch.X[:, 0, :D], batch.X[:, 0, D:], batch.X[:, 1, :D]
    for x, turn in ((item, E), (label, E), (item + label, E), (code, F)):
        assert abs(excess(x, turn)) < 4  # standard errors
        assert abs(excess(x.sign(), turn)) > 40


def excess(x, turn):
    """Standard errors between the fourth moments of ``x`` before and after a rotation,
    of which 5% are more than eight.
    """
    before = x.pow(4).mean(1)
    gap = before - (x @ turn).pow(4).mean(1)
    error = gap.std() / len(gap) ** 0.5
    assert 8 * error < 0.05 * before.mean()
    return float(gap.mean() / error)


@pytest.mark.parametrize("draw", range(4))
def test_any_orthonormal_law_has_the_same_loss(draw):
    """End of B.3: drawn frames, one frame turned, unit vectors in any order: one loss,
    that of the equation.
    """
    p = Parameters(N=3, D=8, data="orthonormal", query="last")
    items, labels, codes = pairs.orthonormal(p, 5, random(draw), DOUBLE)
    if draw == 3:  # no random frame: unit vectors
        eye = torch.eye(8, dtype=DOUBLE).expand(5, 8, 8)
        items, labels = eye[:, [5, 0, 3]], eye[:, [1, 7, 2]]
    batch = pairs.batch_of(items, labels, codes, torch.full((5,), 2))
    student = Constrained(8, "strict", DOUBLE)
    student.theta.data = torch.tensor((0.4, 1.7, 0.8), dtype=DOUBLE)
    each = (student(batch.X) - batch.y).square().sum(1)
    from_equation = dynamics.spelled(ih.equations()["loss"].rhs)
    exact = float(
        from_equation.subs(
            {
                q: {"alpha": 0.4, "beta": 1.7, "gamma": 0.8, "N": 3}[q.name]
                for q in from_equation.free_symbols
            }
        )
    )
    assert each.detach().numpy() == pytest.approx(np.full(5, exact), rel=1e-13)


@pytest.mark.parametrize("size", [2, 3, 6])
def test_one_layer_is_not_enough(size):
    """Sec. 8 (Sanford et al. 2024): with one attention layer inside the 19 directions
    no weights beat 1 - 1/(2N - 1) on the last query.

    The query, without position, attends to all rows but its own item alike, so that
    labels and other items have one coefficient x in the output: (1 - x)^2 + (2N - 2)
    x^2 and a square.
    """
    D = 2 * size
    p = Parameters(N=size, D=D, data="orthonormal", query="last")
    batch = pairs.sample(p, random(), 1, DOUBLE)
    moving = [
        q.name for q in PSEUDO if q.matrix == "W1" or q.name in ("gamma_1", "gamma_2")
    ]
    assert len(moving) == 5
    student = Student(D, "strict", DOUBLE)
    for draw in np.random.default_rng(size).normal(scale=2, size=(20, 5)):
        weights = dict(zip(moving, map(float, draw), strict=True))
        student.load_state_dict(assemble(weights, D))
        loss = squared_error(student(batch.X), batch.y, "sum").item()
        own = np.exp(weights["alpha_1"]) + 2 * size - 1
        x = weights["gamma_2"] / own
        item = weights["gamma_1"] + np.exp(weights["alpha_1"]) * x
        parts = (1 - x) ** 2 + (2 * size - 2) * x**2 + item**2
        assert loss == pytest.approx(parts, rel=1e-12)
    x, n = sp.symbols("x n", positive=True)
    of_x = (1 - x) ** 2 + (2 * n - 2) * x**2
    square = (2 * n - 1) * (x - 1 / (2 * n - 1)) ** 2
    assert sp.simplify(of_x - square - (1 - 1 / (2 * n - 1))) == 0
    two = Constrained(D, "strict", DOUBLE)
    two.theta.data = torch.tensor((9.0, 20.0, 1.0), dtype=DOUBLE)
    assert squared_error(two(batch.X), batch.y, "sum").item() < 1e-3


@pytest.mark.parametrize("size", [2, 16, 128])
def test_constrained_network_at_every_size(size):
    """Assumptions 4-8, Fig. 5: loss and rates of the three numbers of the network, up
    to the largest N that the paper's D = 256 allows, are those of (B.3) and (B.5).
    """
    flow, at = ih.flow(), (0.4, 0.9, 0.8)
    p = Parameters(N=size, D=2 * size, data="orthonormal", query="last")
    batch = pairs.sample(p, random(size), 1, DOUBLE)
    student = Constrained(p.D, "strict", DOUBLE)
    student.theta.data = torch.tensor(at, dtype=DOUBLE)
    loss = squared_error(student(batch.X), batch.y, "sum")
    (slopes,) = torch.autograd.grad(loss, [student.theta])
    values = dict(zip(("alpha", "beta", "gamma"), at, strict=True)) | {"N": size}

    def number(form):
        return float(form.subs({v: values[v.name] for v in form.free_symbols}))

    spelled = dynamics.spelled(ih.equations()["loss"].rhs)
    assert loss.item() == pytest.approx(number(spelled), rel=1e-12)
    rates = [number(flow.expanded[v]) for v in flow.state]
    assert (-slopes).numpy() == pytest.approx(
        rates, rel=1e-10
    )  # sums of 2N terms that cancel
    weights = sum(w.numel() for w in Student(p.D).parameters())
    assert weights == 28 * p.D**2  # Sec. 4


@pytest.mark.parametrize("D", [6, 24])
def test_rates_of_vectors_of_squared_norm_D(D):
    """Gaussian data at D = infinity: orthogonal vectors of variance 1 give, by the
    network's own gradient, the flow of normalised ones at D^2 times the rate for
    scores, all at D times it.
    """
    p = Parameters(N=3, D=D, data="orthonormal", query="each")
    batch = pairs.sample(p, random(D), 3, DOUBLE)
    theta = torch.randn(19, generator=random(1), dtype=DOUBLE)
    scores = torch.tensor([not name.startswith("gamma") for name in NAMES])
    student = Nineteen(D, "strict", DOUBLE)
    student.theta.data = torch.where(scores, theta / D, theta)
    loss = squared_error(student(D**0.5 * batch.X), D**0.5 * batch.y, "sum")
    (slopes,) = torch.autograd.grad(loss, [student.theta])
    still, gradient = loss_and_gradient(theta.numpy(), 3, "uniform", "strict")
    assert loss.item() == pytest.approx(D * still, rel=1e-12)
    relative, all_of_them = rates("gaussian", D)
    expected = all_of_them * np.array([relative[name] for name in NAMES]) * gradient
    moved = torch.where(scores, D * slopes, slopes).numpy()
    assert moved == pytest.approx(
        expected, rel=1e-9, abs=1e-9
    )  # rounding, of sums that cancel


def test_a_large_residual_stream_is_disentangled():
    """Sec. 3.1: added up through isometries into d >= 8D dimensions the outputs are
    those of (1); through random maps, up to d^-1/2.
    """
    D = 4
    p = Parameters(N=2, D=D, data="orthonormal", query="last")
    batch = pairs.sample(p, random(), 3, DOUBLE)
    student = Student(D, "strict", DOUBLE)
    student.load_state_dict(
        assemble(
            dict(
                zip(
                    NAMES,
                    torch.randn(19, generator=random(1), dtype=DOUBLE),
                    strict=True,
                )
            ),
            D,
        )
    )
    exact = student(batch.X).detach()

    def residual_stream(maps):
        """Two layers that add what they retrieve; maps (8D, d) write each block of V
        into the stream and read it.
        """
        write = [maps[: 2 * D], maps[2 * D : 4 * D], maps[4 * D :]]
        X, (W1, W2, W3) = batch.X, (w.detach() for w in student.parameters())
        h = X @ write[0]
        seen = attention(h @ write[0].T @ W1 @ write[0] @ h.transpose(1, 2), "strict")
        h = h + seen @ h @ write[0].T @ write[1]
        U = maps[: 4 * D]
        seen = attention(h @ U.T @ W2 @ U @ h.transpose(1, 2), "strict")
        h = h + seen @ h @ U.T @ write[2]
        return (h @ maps.T @ W3)[:, -1]

    isometry = pairs.haar((1, 8 * D, 80), random(2), DOUBLE)[0]
    torch.testing.assert_close(residual_stream(isometry), exact, rtol=0, atol=1e-12)
    errors = []
    for d in (10**3, 10**5):
        maps = torch.randn(8 * D, d, generator=random(3), dtype=DOUBLE) / d**0.5
        errors.append(float((residual_stream(maps) - exact).abs().max()))
    assert errors[1] < errors[0] / 3  # d^-1/2 would be a tenth
    assert project(student.weights()).shape == (19,)
