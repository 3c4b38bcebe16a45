"""Discovery at its doors: what is refused and why, the command, sizes, projections,
starts.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from modules import Copy, Plain, Retrieval, Table, copy, cycle, retrieval
from test_discover import discovered
from torch import nn

from simulate.discover import discover, scaling
from simulate.discover.__main__ import main
from theory.call.refusal import ParameterError
from verify.trajectories import compare


def damaged(loss):
    """A module with this loss."""
    return type("Damaged", (Plain,), {"loss": loss})(nn.Linear(3, 2))


X = torch.eye(3)


def counting(module, x):
    """A schedule by the number of calls."""
    module.calls = getattr(module, "calls", 0) + 1
    return module.layers(x).square().mean() * (1 if module.calls < 50 else 2)


def clamped(module, x):
    """Weights are kept small."""
    for w in module.parameters():
        w.data.clamp_(-0.1, 0.1)
    return module.layers(x).square().mean()


def trained(module, x):
    """The loss calls backward itself."""
    loss = module.layers(x).square().mean()
    loss.backward(retain_graph=True)
    return loss


def spare():
    """A table, and a layer that is not used."""
    module = Table(3)
    module.spare = nn.Linear(8, 8)
    return module


@pytest.mark.parametrize(
    ("module", "inputs", "options", "message"),
    [
        (Plain(nn.Linear(8, 8)), torch.eye(8), {}, "subspace is everything.*start=0"),
        (
            Plain(nn.Linear(3, 2), nn.Dropout(0.5)),
            X,
            {"start": 0.1},
            r"dropout in layers\.1; call",
        ),
        (
            Plain(nn.Linear(3, 2), nn.BatchNorm1d(2)),
            X,
            {"start": 0.1},
            "batch norm in training",
        ),
        (
            Plain(nn.Linear(3, 2)),
            X,
            {"start": 0},
            "gradient is zero there.*start=.'layers.0.weight'",
        ),
        (
            damaged(lambda s, x: s.layers(x).sum() * torch.rand(())),
            X,
            {"start": 0.1},
            "fixed inputs",
        ),
        (
            damaged(lambda s, x: s.layers(x).sum() * np.random.rand()),  # noqa: NPY002
            X,
            {"start": 0.1},
            "fixed inputs",
        ),
        (
            damaged(lambda s, x: s.layers(x).detach().sum()),
            X,
            {},
            "does not depend on any weight",
        ),
        (
            damaged(lambda s, x: s.layers(x).sum() * torch.nan),
            X,
            {"start": 0.1},
            "loss: is nan",
        ),
        (
            damaged(lambda s, x: s.layers(x)),
            X,
            {"start": 0.1},
            r"is \(3, 2\), must be one number",
        ),
        (damaged(lambda s, x: 1.0), X, {"start": 0.1}, "is float, must be one number"),
        (damaged(lambda s, x: s.missing), X, {"start": 0.1}, "no attribute 'missing'"),
        (nn.Linear(3, 2), X, {}, "has no method loss"),
        (Plain(nn.Linear(3, 2)).requires_grad_(False), X, {}, "no trainable weights"),
        (Plain(nn.Linear(3, 2)), iter([X]), {}, "a second pass may differ"),
        (Plain(nn.Linear(3, 2)), torch.utils.data.DataLoader([X]), {}, "DataLoader"),
        (Plain(nn.Linear(3, 2)), "words", {"start": 0.1}, "loss: TypeError: linear"),
        (
            Plain(nn.Linear(3, 2)),
            X,
            {"start": "zero"},
            "start: must be a number or a mapping",
        ),
        (
            Plain(nn.Linear(3, 2)),
            X,
            {"start": {"weight": 0}},
            "did you mean|there are layers.0",
        ),
        (
            {"W": torch.arange(3)},
            X,
            {"loss_fn": lambda w, x: w["W"].sum()},
            "W: is int64",
        ),
        ({"W": torch.zeros(3)}, X, {}, "has no method loss"),
        (lambda w, x: w["W"].sum(), X, {}, "start=.name: tensor"),
        (3, X, {}, "must be a torch.nn.Module"),
        (
            damaged(counting),
            X,
            {"start": 0.1},
            "loss: changes module.calls at every call",
        ),
        (damaged(clamped), X, {"start": 0.1}, "loss: changes weights or their .grad"),
        (damaged(trained), X, {"start": 0.1}, "loss: changes weights or their .grad"),
        (
            spare(),
            torch.arange(3),
            {},
            "spare.weight: the loss does not depend on it; freeze it",
        ),
        (
            Plain(nn.LazyLinear(2)),
            X,
            {},
            "layers.0.weight: has no values .a lazy module",
        ),
        (Plain(nn.Linear(3, 2)).to("meta"), X, {}, "layers.0.weight: has no values"),
        (
            Plain(nn.Linear(3, 2), nn.Linear(2, 2), nn.Linear(2, 2)),
            X,
            {"start": 0},
            "descent never moves; start elsewhere, such as start=.'layers.2.bias': 0.1",
        ),
        (
            {"W": torch.zeros(2, dtype=torch.complex64)},
            X,
            {"loss_fn": lambda w, x: w["W"].abs().sum()},
            "W: is complex64, weights must be tensors of real floats",
        ),
    ],
)
def test_refusals(module, inputs, options, message):
    """One line each."""
    with pytest.raises(ParameterError, match=message) as error:
        discover(module, inputs, **options)
    assert "\n" not in str(error.value)


def test_residuals_that_are_not_apart():
    """A loss with noise far above rounding, the same at every point, is refused."""

    class Noisy(Table):
        def loss(self, x):
            rough = torch.sin(1e9 * (self.W.detach() + 0.1)) * self.W
            return super().loss(x) + 1e-9 * rough.sum()

    with pytest.raises(
        ParameterError, match="cannot be told from rounding|subspace is everything"
    ):
        discover(Noisy(5), torch.arange(5))


def test_mappings_and_plain_losses():
    """Weights without a module."""
    _, inputs = retrieval()

    def loss(w, x):
        module = Retrieval(4, 4)
        return torch.func.functional_call(
            _Loss(module), {f"of.{k}": v for k, v in w.items()}, x
        )

    zeros = {"K": torch.zeros(4, 4), "V": torch.zeros(4, 4)}
    for found in (
        discover(zeros, inputs, loss_fn=loss),
        discover(loss, inputs, start=zeros),
    ):
        assert len(found.order_parameters) == 2 and found.classes["K[i, i]"] == 4


class _Loss(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.of = of

    def forward(self, *x):
        return self.of.loss(*x)


@pytest.mark.parametrize("as_json", [True, False])
def test_command(as_json, capsys, tmp_path):
    """The same answer from a file."""
    file = str(Path(__file__).with_name("modules.py"))
    target = tmp_path / "found"
    flags = ["--json"] if as_json else []
    assert main([f"{file}:copy", "--set", "L=4", *flags]) == 0
    text = capsys.readouterr().out
    assert (
        main([f"{file}:copy", "--set", "L=4", *flags, "--quiet", "--out", str(target)])
        == 0
    )
    assert target.exists()
    if as_json:
        answer = json.loads(text)
        assert len(answer["order_parameters"]) == 4 and answer["exact"]
        assert all(row["passed"] for row in answer["checks"])
    else:
        assert text.startswith(
            "4 order parameters for 25 weights, exact over all inputs"
        )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.py"], "no file nowhere.py"),
        ([":make"], "no such function.*write def make"),
        ([":retrieva"], "did you mean 'retrieval'"),
        ([":copy", "--set", "M=3"], "M: unknown parameter; known are L, N"),
        ([":copy", "--set", "L=x"], "L = 'x': must be a whole number"),
        ([":Table"], "N: has no default; add --set N=4"),
        ([":READY"], "READY: is a module; write def make"),
        ([":cycle", "--sizes", "N"], "must be NAME=3,4,5,6,7"),
    ],
)
def test_command_refuses(words, message):
    """One line each."""
    file = str(Path(__file__).with_name("modules.py"))
    name = f"{file}{words[0]}" if words[0].startswith(":") else words[0]
    with pytest.raises(ParameterError, match=message):
        main([name, *words[1:]])


def test_sizes():
    """Counts as polynomials, confirmed at sizes where they were not fitted."""
    counts = scaling(cycle, "N", [4, 5, 6, 7, 8])
    assert str(counts.order_parameters) == "1" and str(counts.weights) == "N**2"
    counts = scaling(copy, "L", [2, 3, 4, 5, 6])
    assert str(counts.order_parameters) == "L" and counts.checked == [5, 6]
    counts = scaling(retrieval, "N", [3, 4, 5, 6, 7])
    assert str(counts.classes["K[i, j], j != i"]) == "N*(N - 1)"
    with pytest.raises(ParameterError, match="two further sizes"):
        scaling(copy, "L", [3, 4])


def test_project():
    """Full descent stays inside; descent on batches of one input leaves the subspace in
    part.
    """
    inputs, found = copy(4)[1], discovered(copy, 4)
    for batch, inside in ((81, True), (1, False)):
        copied = Copy(4, 3).double()
        descent = torch.optim.SGD(copied.parameters(), lr=0.5)
        states = []
        for step in range(20):
            states.append({k: v.clone() for k, v in copied.state_dict().items()})
            descent.zero_grad()
            copied.loss(inputs.roll(7 * step, 0)[:batch]).backward()
            descent.step()
        path = found.project(states)
        outside = path.outside.values[1:]
        assert (outside.max() < 1e-20) if inside else (0.01 < outside.min())
        assert float(path.by_chance) == 1 - 4 / 25
        if inside:
            flow = found.flow.descend(0.5, 19)
            np.testing.assert_allclose(path.x4, flow.x4, atol=1e-12)
    several = found.project([states, states])
    assert several.sizes == {"seed": 2, "t": 20} and several.by_chance.shape == ()
    for name in ("x4", "loss", "outside", "update_outside"):
        np.testing.assert_array_equal(several[name].values, [path[name].values] * 2)
    with pytest.raises(ParameterError, match="times: 3 for 20 checkpoints"):
        found.project(states, [0, 1, 2])
    with pytest.raises(ParameterError, match="checkpoint 0: has no weight scores"):
        found.project([nn.Linear(2, 2)])


def test_projected_training_is_compared_with_power():
    """Theory against trainings: agreement says which error would have been seen, and an
    error of a fifth is seen.
    """
    found, inputs, runs = discovered(copy, 4), copy(4)[1], []
    for seed in range(8):
        draw = torch.Generator().manual_seed(seed)
        module, states = Copy(4, 3).double(), []
        descent = torch.optim.SGD(module.parameters(), lr=0.25)
        for _ in range(40):
            states.append({k: v.clone() for k, v in module.state_dict().items()})
            descent.zero_grad()
            module.loss(inputs[torch.randint(81, (256,), generator=draw)]).backward()
            descent.step()
        runs.append(states)
    seen = found.project(runs, 0.25 * np.arange(40))
    curve = found.predict(seen, eta=0.25)
    result = compare(curve[["x4"]], seen)
    assert [c.verdict for c in result.checks] == ["agrees"]
    assert "an error of 5% or more would have been noticed" in str(result)
    assert [c.verdict for c in compare(1.2 * curve[["x4"]], seen).checks] == ["FAIL"]


def test_starts_in_single_precision_are_read_as_typed():
    """0.1 + 0.2 is 0.3: rounding hid the line on which the weights stay."""

    def loss(w, x):
        a, b = w["a"], w["b"]
        return ((a[:, None] - a[None]) ** 2).mean() + ((b - a) ** 2).sum()

    start = {"a": [0.1, 0.2, 0.3], "b": [0.3, 0.3, 0.3]}
    counts = {
        len(
            discover(
                loss,
                X,
                start={k: torch.tensor(v, dtype=kind) for k, v in start.items()},
            ).order_parameters
        )
        for kind in (torch.float32, torch.float64)
    }
    assert counts == {3}


def test_a_start_that_moves_is_named():
    """Two keys at zero: attention to all of them predicts nothing; the diagonal is
    named.
    """
    module, inputs = retrieval(2, 2, 2)
    with pytest.raises(
        ParameterError, match=r"such as start=\{'K': 0.1 \* torch.eye\(2\)\}"
    ):
        discover(module, inputs, start=0)
    assert (
        len(discover(module, inputs, start={"K": 0.1 * torch.eye(2)}).order_parameters)
        == 2
    )
    with torch.no_grad():
        # what is typed starts where the search did, not where the module stands
        module.V.normal_()
    with pytest.raises(
        ParameterError, match=r"such as start=\{'K': 0.1 \* .*, 'V': 0\}"
    ):
        discover(module, inputs, start=0)
