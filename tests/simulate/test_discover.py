"""Order parameters of modules, against hand counts,
the engine and published numbers.
"""

from __future__ import annotations

import functools
import itertools
import warnings

import numpy as np
import pytest
import torch
from modules import (
    Copy,
    Layers,
    Pooling,
    Product,
    Recurrent,
    Targets,
    Tied,
    copy,
    cycle,
    retrieval,
)
from torch import nn

from simulate.discover import discover
from simulate.discover.names import complete
from simulate.induction_heads import Student, student
from simulate.induction_heads.student import squared_error
from theory.dynamics.optimisers import Optimiser
from theory.induction_heads import structure


@functools.cache
def discovered(make, *sizes):
    """What is found in a module of modules.py, once for all tests."""
    return discover(*make(*sizes))


@pytest.mark.parametrize("sizes", [(4, 4, 2), (4, 5, 3)])
def test_retrieval(sizes):
    """Four classes with two conserved sums: two order parameters."""
    N, M, _ = sizes
    found = discovered(retrieval, *sizes)
    assert found.order_parameters == [
        "K[i, i] - K[i, j], j != i",
        "V[i, i] - V[i, j], j != i",
    ]
    assert found.classes == {
        "K[i, i]": N,
        "V[i, i]": M,
        "K[i, j], j != i": N * (N - 1),
        "V[i, j], j != i": M * (M - 1),
    }
    assert found.conserved == [
        f"K[i, i] + {N - 1} K[i, j], j != i",
        f"V[i, i] + {M - 1} V[i, j], j != i",
    ]
    assert found.exact and "exact over all inputs" in str(found)
    assert found.subspace.rational and found.deviation < 1e-9


@pytest.mark.parametrize("L", [3, 4])
def test_causal_copy(L):
    """A score difference per row but the first, and one of the table."""
    found = discovered(copy, L)
    assert len(found.order_parameters) == L
    assert found.order_parameters[0] == "scores[i, i-1] - scores[i, i], i = 1"
    assert found.order_parameters[-1] == "V[i, i] - V[i, j], j != i"
    assert (
        found.still == L * (L - 1) // 2 + 1
    )  # above the diagonal, and the first row's


def orthonormal(D):
    """A law of the induction heads that is invariant under signed shifts of tokens and
    codes, as all sequences.
    """

    def turns(n):
        for shift, signs in itertools.product(
            range(n), itertools.product((1.0, -1.0), repeat=n)
        ):
            yield torch.diag(torch.tensor(signs)).roll(shift, 0).double()

    code = torch.cat([torch.eye(D // 2), torch.zeros(D // 2, D // 2)], 1).double()
    corners = torch.eye(2).double(), torch.eye(2).flip(0).double()
    rows = [
        (E[: D // 2], E[D // 2 :], code @ torch.kron(corner, e), q)
        for E in turns(D)
        for e in turns(D // 2)
        for corner in corners
        for q in range(D // 2)
    ]
    items, labels, codes, q = zip(*rows, strict=True)
    return student.batch_of(*map(torch.stack, (items, labels, codes)), torch.tensor(q))


@pytest.mark.parametrize(
    ("mask", "number"),
    [("inclusive", 15), pytest.param("strict", 12, marks=pytest.mark.slow)],
)
def test_two_layers_of_induction_heads(mask, number):
    """All 448 weights; the paper's 19 is an upper bound, of which `structure` proves
    15.
    """
    data = orthonormal(4)
    found = discover(
        Student(4, mask, torch.float64),
        (data.X, data.y),
        loss_fn=lambda module, x: squared_error(module(x[0]), x[1], "sum"),
        sample=False,
    )
    assert len(found.order_parameters) == number
    assert "mean of W3[i, i]" in found.order_parameters
    if mask == "inclusive":
        assert number == len(structure.reachable())


def test_counts_by_hand():
    """Four modules whose order parameters can be counted by hand."""
    found = discover(*cycle(5))
    assert found.order_parameters == ["W[i, i+1 mod 5] - W[i, j], j != i+1 mod 5"]
    assert [*found.classes.values()] == [5, 20]
    # equal rates along different targets: two classes move along one line
    found = discover(Targets(1.0, 1.0, 2.0, 2.0, 2.0), torch.arange(5))
    assert found.order_parameters == ["(w[i], i <= 1) + 3 (w[i], i > 1)"]
    assert found.classes == {"w[i], i <= 1": 2, "w[i], i > 1": 3}
    # inputs of different frequency: different rates, so that both are needed
    found = discover(Targets(1.0, 1.0, 2.0), torch.tensor([0, 1, 2, 2]))
    assert len(found.order_parameters) == 2 and not found.exact
    # products: one path of two numbers for all inputs; one if they start equal
    assert len(discover(Product(4, 0.5, 0.25), torch.arange(4)).order_parameters) == 2
    assert len(discover(Product(4, 0.5, 0.5), torch.arange(4)).order_parameters) == 1


def every(values, length):
    """All sequences."""
    return torch.tensor([*itertools.product(range(values), repeat=length)])


@pytest.mark.parametrize(
    ("module", "inputs", "number", "entries"),
    [
        # W commutes with every permutation, as b: two entries of W and one of b
        (Tied(4), every(2, 4), 3, [4, 4, 12]),
        # rows of E and U keep their sums; the first place against all others, which
        # keep theirs
        (Pooling(3, 4), every(3, 4), 3, [1, 3, 3, 3, 6, 6]),
        # equal units stay equal
        (Recurrent(6), every(2, 4), 3, [6, 6, 36]),
        # factors of logits on the space in which these do not all move together
        (
            lambda w, x: nn.functional.cross_entropy(w["U"][x] @ w["V"].T, x),
            torch.arange(5),
            2,
            [5, 5, 20, 20],
        ),
    ],
)
def test_more_counts_by_hand(module, inputs, number, entries):
    """Each counted before it was run."""
    near = {"U": 0.5 * torch.eye(5), "V": 0.3 * torch.eye(5)}
    found = discover(module, inputs, None if isinstance(module, nn.Module) else near)
    assert found.exact and len(found.order_parameters) == number
    assert [*found.classes.values()] == entries


@pytest.mark.parametrize(
    ("between", "number", "seeds"),
    [([], 4, (0, 4, 6, 31, 34)), ([nn.LayerNorm(5)], 7, (0, 2, 3, 7))],
)
def test_dead_and_saturated_networks_decide_nothing(between, number, seeds):
    """Seeds whose random points leave a layer dead, or a loss flat: the count is the
    same.
    """
    for seed in seeds:
        found = discover(Layers(*between), torch.arange(5), seed=seed)
        assert len(found.order_parameters) == number


def test_a_start_without_symmetry_is_said():
    """Random weights, too few to be refused: twelve numbers, where two suffice from
    zero.
    """
    module, inputs = retrieval(3, 3, 2)
    assert len(discover(module, inputs).order_parameters) == 2
    draws = torch.Generator().manual_seed(0)
    start = {
        k: torch.randn(x.shape, generator=draws) / 10
        for k, x in module.named_parameters()
    }
    with pytest.warns(
        UserWarning, match="K, V start at different.* 18 classes .* instead of 4"
    ):
        found = discover(module, inputs, start)
    assert len(found.order_parameters) == 12
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        discover(
            Targets(1.0, 2.0, 3.0),
            torch.arange(3),
            {"w": torch.tensor([0.25, 0.5, 1.0])},
        )


class Once(torch.autograd.Function):
    """A square, without second derivatives."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope):
        return 2 * slope * ctx.saved_tensors[0]


def test_second_derivatives_that_torch_does_not_have():
    """Silently zero, or missing: growth rates are those of a loss that has them."""

    def loss(square, w, x):
        return nn.functional.cross_entropy(square(w["W"])[x], x)

    start, x = {"W": torch.full((5, 5), 0.5)}, torch.arange(5)
    one, other = (
        discover(functools.partial(loss, square), x, start)
        for square in (Once.apply, torch.square)
    )
    assert other.loss.twice and not one.loss.twice
    np.testing.assert_allclose(one.flow.jacobian(), other.flow.jacobian(), atol=1e-9)
    bags = nn.EmbeddingBag.from_pretrained(torch.zeros(4, 4), freeze=False)
    found = discover(
        bags,
        every(4, 2),
        loss_fn=lambda net, x: nn.functional.cross_entropy(net(x), x[:, 0]),
    )
    assert (
        float(found.flow.jacobian()[0, 0]) < 0
        and found.flow.solve(t=5.0).loss[-1] < 1.3
    )


@pytest.mark.parametrize(
    "read",
    [
        lambda W, x: torch.fft.ifft(torch.fft.fft(W[x].to(torch.complex64))).real,
        lambda W, x: nn.functional.embedding(x, W, sparse=True),
        lambda W, x: W[x] if W.trace() > 0 else 2 * W[x],
    ],
    ids=["complex inside", "sparse", "branches on values"],
)
def test_unusual_tables(read):
    """One difference, as of a plain table."""
    loss = lambda w, x: nn.functional.cross_entropy(read(w["W"], x), x)
    found = discover(loss, torch.arange(5), {"W": torch.zeros(5, 5)})
    assert found.order_parameters == ["W[i, i] - W[i, j], j != i"]


def test_inputs_that_are_a_sample():
    """It breaks the symmetry of its law, which is said; with all signs and places it
    does not.
    """
    x = torch.randn(
        3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    loss = lambda w, x: (x @ w["W"].T - x).square().mean()
    found = discover(loss, x, {"W": torch.zeros(2, 2)})
    assert len(found.order_parameters) == 2
    assert "for this sample (3 listed; all inputs may need fewer)" in str(found)
    turned = torch.cat(
        [x @ turn for turn in (torch.eye(2).double(), torch.eye(2).double().flip(0))]
    )
    signs = torch.tensor(
        [*itertools.product([1.0, -1.0], repeat=2)], dtype=torch.float64
    )
    found = discover(
        loss, (turned[:, None] * signs).flatten(0, 1), {"W": torch.zeros(2, 2)}
    )
    assert found.order_parameters == ["mean of W[i, i]"]
    lengths = discover(
        lambda w, x: sum(w["b"][one].exp().mean() for one in x),
        [torch.arange(n) for n in (2, 3)],
        {"b": torch.zeros(3)},
    )
    assert "for this sample (not counted" in str(lengths)
    alone = discover(lambda w: (w["b"] - 1).square().sum(), None, {"b": torch.zeros(3)})
    assert "exact over all inputs (not counted)" in str(alone)


def test_flow_is_that_of_the_module():
    """Solutions, slopes, growth rates, held parameters, conserved quantities and fixed
    points.
    """
    found = discover(Product(4, 0.5, 0.25), torch.arange(4))
    flow = found.flow
    u, v = (float(flow.solve(t=8.0)[x].isel(t=-1)) for x in ("x1", "x2"))
    assert u**2 - v**2 == pytest.approx(0.1875, rel=1e-10)
    (law,) = flow.conserved()
    x1, x2 = flow.state
    assert (law.rhs / law.rhs.coeff(x1**2) - (x1**2 - x2**2)).simplify() == 0
    rate = lambda a, b: np.array([-(a * b - 1) * b, -(a * b - 1) * a]) / 2
    np.testing.assert_allclose(
        flow.jacobian(),
        np.column_stack(
            [
                (rate(0.5 + h, 0.25 + k) - rate(0.5 - h, 0.25 - k)) / 2e-5
                for h, k in ((1e-5, 0), (0, 1e-5))
            ]
        ),
        atol=1e-9,
    )
    points = flow.fixed_points()
    assert any(abs(p[x1]) < 1e-9 and abs(p[x2]) < 1e-9 for p in points)  # the saddle
    assert all(abs(p[x1] * p[x2] - 1) < 1e-8 or abs(p[x1]) < 1e-8 for p in points)
    growth = [m.rate for m in flow.linearised(at={"x1": 0, "x2": 0})]
    np.testing.assert_allclose(growth, [0.5, -0.5], atol=1e-9)
    held = flow.held(x1=0.5).solve(t=400.0).isel(t=-1)
    assert float(held.x1) == 0.5 and float(held.x2) == pytest.approx(2.0, rel=1e-9)
    late = flow.solve(t=20.0, events={"learned": x1 * x2 - 0.5})
    assert float(flow.solve(t=float(late.learned)).loss.isel(t=-1)) == pytest.approx(
        0.25, rel=1e-9
    )


@pytest.mark.parametrize("of", ["plain", "momentum", "adam"])
def test_optimisers_move_the_module_alike(of):
    """Descent of the flow is `torch.optim` of the module."""
    options = {
        "plain": ({}, torch.optim.SGD, {}),
        "momentum": ({"momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
        "adam": ({"optimizer": "adam"}, torch.optim.Adam, {}),
    }
    how, kind, more = options[of]
    module, inputs = copy(4)
    path = discovered(copy, 4).flow.descend(
        0.1, 30, optimizer=Optimiser(**how) if how else None
    )
    module.double()
    descent = kind(module.parameters(), lr=0.1, **more)
    for _ in range(30):
        descent.zero_grad()
        module.loss(inputs).backward()
        descent.step()
    last = path.isel(t=-1)
    V = module.V.detach()
    assert float(last.x4) == pytest.approx(float(V[0, 0] - V[0, 1]), rel=1e-9)
    assert float(last.x1) == pytest.approx(
        float((module.scores[1, 0] - module.scores[1, 1]).detach()), rel=1e-9
    )
    assert float(last.loss) == pytest.approx(
        float(module.loss(inputs).detach()), rel=1e-9
    )


def test_onset():
    """A plateau and its escape: the loss of retrieval falls by half where the flow
    says.
    """
    found = discovered(retrieval, 4, 4, 2)
    onset = found.onset()
    numbers = onset.numbers
    assert numbers["growth_1"] > 0 and "escape_2" not in numbers and not onset.notes
    assert 0 < numbers["plateau_1"] < numbers["escape_1"] < numbers["run"]
    half = numbers["half_loss"]
    middle = (numbers["loss_start"] + numbers["loss_end"]) / 2
    event = found.flow.solve(
        t=2 * half, events={"half": found.flow.observables["loss"] - middle}
    )
    assert half == pytest.approx(float(event.half), rel=1e-3)
    assert {"half_loss", "plateau_1", "escape_1"} == {
        *onset.times
    } and "escape_1" in onset.table()


def test_onset_waits_on_a_long_plateau():
    """Two products, one of which starts much smaller: a run that is long enough sees
    both escapes, a shorter one says that it ends on a plateau.
    """

    def loss(w, x):
        return ((w["u"] * w["v"])[x] - 1).square().sum() / 2

    start = dict.fromkeys("uv", torch.tensor([0.1, 1e-6]))
    found = discover(loss, torch.arange(2), start=start)
    onset = found.onset()
    assert onset.numbers["escape_1"] == pytest.approx(np.log(1e1), rel=0.2)
    assert onset.numbers["escape_2"] == pytest.approx(np.log(1e6), rel=0.1)
    assert (
        onset.numbers["plateau_2_loss"] == pytest.approx(0.5, rel=1e-3)
        and not onset.notes
    )
    assert "ends near a saddle" in found.onset(until=8.0).notes[0]


def test_the_time_of_an_escape_is_that_of_the_fastest_fall():
    """A product that starts at e: u' = u
    (1 - u^2) / 2 falls fastest where u^2 = 1/3.
    """
    e = 1e-3
    found = discover(Product(4, e, e), torch.arange(4)).onset()
    exact = np.log((1 - e**2) / (2 * e**2))
    assert found.numbers["escape_1"] == pytest.approx(exact, rel=1e-6)
    assert found.numbers["plateau_1"] == 0


def test_a_fall_from_the_start_is_no_escape():
    """The loss falls fast at the start, whatever the rounding of its first steps, then
    there is one plateau.
    """
    onset = discovered(copy, 3).onset()
    assert {"half_loss", "plateau_1", "escape_1"} == {*onset.times}
    assert onset.numbers["plateau_1"] > 1


def test_whole_or_sample():
    """All inputs are told from a sample of them."""
    words = torch.tensor([*itertools.product(range(3), repeat=4)])
    assert complete(words) and complete(nn.functional.one_hot(words).double())
    pairs = torch.tensor([*itertools.product(range(7), repeat=2)])
    assert complete((pairs, pairs.sum(1) % 7)) and complete(
        torch.tensor([*itertools.permutations(range(4), 2)])
    )
    few = words[torch.randperm(81, generator=torch.Generator().manual_seed(0))[:40]]
    assert (
        not complete(few)
        and not complete(words[:-1])
        and not complete(torch.cat([words, words[:1]]))
    )
    assert not complete(torch.randn(10, 3)) and not complete(
        torch.randint(100, (50, 4))
    )
    assert not complete((pairs, pairs[:5])) and not complete(None)


def test_precision_of_the_user_does_not_matter():
    """Modules in single or half precision are computed in double precision, casts
    inside too.
    """

    class Cast(Copy):
        def loss(self, x):
            self.scores.float()
            return super().loss(x).float()

    module = Cast(4, 3)
    module.aside = torch.ones(3)  # no buffer: moved by hand
    _, inputs = copy(4)
    assert len(discover(module, inputs).order_parameters) == 4
    assert len(discover(module.half(), inputs).order_parameters) == 4
    assert (
        module.V.dtype == torch.float16 and not module.V.any()
    )  # the user's module stays
