"""Many copies of a module at once: as a plain loop, alone and in company, killed and
resumed.
"""

import functools
import itertools

import numpy as np
import pytest
import torch
from modules import (
    WORDS,
    Attention,
    Counting,
    Gated,
    Hidden,
    InPlace,
    Line,
    Mutating,
    Net,
    Normed,
    Retrieval,
    Scalar,
    Unused,
    Wide,
    X,
    Y,
    losing,
    retrieval,
)
from tiny import bits
from torch import nn

import simulate
from simulate.discover import discover
from simulate.discover.loss import Loss, widened
from simulate.ensemble import Copies, ensemble
from simulate.store import runs
from simulate.training import pool, stack
from simulate.training.streams import keyed
from theory.call.refusal import ParameterError
from theory.dynamics.optimisers import Optimiser

QUIET = dict(progress=False)


def small():
    """Another start."""
    net = Line()
    net.w.data *= 0.5
    return net


KINDS = {
    Line: (X, Y),
    Net: (X, Y),
    Mutating: (X, Y),
    Attention: WORDS,
    Scalar: None,
    Gated: (X, Y),
}
WAYS = {
    "sgd": Optimiser(),
    "momentum, decay": Optimiser(momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": Optimiser(optimizer="adam", weight_decay=0.01),
    "adamw": Optimiser(optimizer="adamw", weight_decay=0.1),
    "clipped, cosine": Optimiser(clip=0.1, schedule="cosine", warmup=5),
}


def plain(kind, seed, eta, steps, way, batch=0):
    """Losses of one module, trained as anybody would, in double precision."""
    torch.manual_seed(seed)
    module, data = kind().double(), KINDS[kind]
    data = [widened(x) for x in (data if kind is not Attention else [data]) or ()]
    weights = [w for w in module.parameters() if w.requires_grad]
    how = WAYS[way]
    sgd = functools.partial(
        torch.optim.SGD, momentum=how.momentum, nesterov=how.nesterov
    )
    made = {"sgd": sgd, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[
        how.optimizer
    ]
    opt = made(weights, lr=eta, weight_decay=how.weight_decay)
    losses = [module.loss(*data).item()]
    for number in range(steps):
        some = data
        if batch:
            block = keyed(seed, 0, number // 64).integers(
                len(data[0]), size=(64, batch)
            )
            some = [x[block[number % 64]] for x in data]
        opt.zero_grad()
        module.loss(*some).backward()
        if how.clip:
            nn.utils.clip_grad_norm_(weights, how.clip)
        opt.param_groups[0]["lr"] = eta * how.share(number, steps)
        opt.step()
        losses.append(module.loss(*data).item())
    return losses


@pytest.mark.parametrize(
    "kind, way",
    [
        pytest.param(
            kind, way, marks=[pytest.mark.slow] * (kind is not Line and way != "adam")
        )
        for kind, way in itertools.product(KINDS, WAYS)
    ],
)
def test_copies_are_plain_modules(kind, way):
    """Three seeds, two learning rates each, against torch's optimisers: rounding alone.
    Adam divides by gradients, whose rounding is 1e-16 of the largest.
    """
    found = ensemble(
        kind,
        KINDS[kind],
        **dict(seeds=[5, 0, 3], eta=[0.02, 0.05], steps=12, eval_every=1),
        optimizer=WAYS[way],
        **QUIET,
    )
    for seed in (5, 0, 3):
        for eta in (0.02, 0.05):
            losses = found.loss.sel(seed=seed, eta=eta)
            assert losses.values == pytest.approx(
                plain(kind, seed, eta, 12, way), rel=1e-10
            )
            assert losses.t.values == pytest.approx(eta * np.arange(13))


@pytest.mark.parametrize(
    "kind", [Line, pytest.param(Attention, marks=pytest.mark.slow)]
)
def test_batches_are_those_of_the_seed(kind):
    """Beyond the first block of draws; other seeds draw others, other learning rates
    the same.
    """
    found = ensemble(
        kind,
        KINDS[kind],
        seeds=[4, 9],
        eta=[0.02, 0.05],
        steps=70,
        batch=6,
        eval_every=1,
        **QUIET,
    )
    for seed in (4, 9):
        for eta in (0.02, 0.05):
            expected = plain(kind, seed, eta, 70, "sgd", 6)
            assert found.loss.sel(seed=seed, eta=eta).values == pytest.approx(
                expected, rel=1e-10
            )


# Batches: `test_a_killed_run_ends_as_any_other`.
@pytest.mark.parametrize(
    "kind, dtype",
    [
        (Scalar, "float64"),
        (Wide, "float32"),
        pytest.param(Wide, "float64", marks=pytest.mark.slow),
        pytest.param(Attention, "float32", marks=pytest.mark.slow),
    ],
)
def test_companions_change_nothing(kind, dtype, tmp_path):
    """Alone, of nine, at another place, in another stack: the same bits."""
    made = functools.partial(
        ensemble,
        kind,
        KINDS.get(kind, (X, Y)),
        **dict(steps=6, eval_every=2, optimizer="adam", weights=True, dtype=dtype),
        batch=5 if kind is Attention else 0,
        **QUIET,
    )
    many = made(seeds=9, eta=[0.05, 0.01], store=tmp_path / "many").sel(eta=0.05)
    for name, seeds in {"alone": [4], "other": [8, 0, 3, 5, 6]}.items():
        few = made(seeds=seeds, eta=0.05, store=tmp_path / name)
        for quantity in few.data_vars:
            one, all_ = few[quantity].values, many[quantity].sel(seed=seeds).values
            assert one.tobytes() == all_.tobytes(), (name, quantity)


def test_a_killed_run_ends_as_any_other(tmp_path, monkeypatch):
    """Bit for bit, also where other copies go on beside it, under an optimiser with a
    memory.
    """
    made = functools.partial(
        ensemble,
        Line,
        (X, Y),
        **dict(
            eta=[0.03, 0.01],
            steps=40,
            eval_every=3,
            batch=5,
            optimizer="adam",
            weights=True,
        ),
        **QUIET,
    )
    whole = made(seeds=4, store=tmp_path / "whole")
    with pool.stopping(lambda done: done == 17), pytest.raises(KeyboardInterrupt):
        made(seeds=4, store=tmp_path / "cut")
    assert len([*(tmp_path / "cut").rglob("*.checkpoint")]) == 8
    steps, step = [], Copies.step
    monkeypatch.setattr(
        Copies, "step", lambda self, n: steps.append(n) or step(self, n)
    )
    assert bits(made(seeds=4, store=tmp_path / "cut")) == bits(whole)
    assert min(n for n in steps if n > 2) == 17  # but for the trial at the door
    assert bits(made(seeds=[2], store=tmp_path / "cut")) == bits(whole.sel(seed=[2]))


def test_copies_killed_at_the_start_go_on_with_others(tmp_path, monkeypatch):
    """A checkpoint of step 0 is as good as none."""
    options = dict(steps=6, batch=4, eval_every=2, eta=0.03, **QUIET)
    made = functools.partial(ensemble, Line, (X, Y), **options)
    whole = made(seeds=4, store=tmp_path / "whole")

    def killed(self, number):
        if self.many == 2:
            raise MemoryError
        return step(self, number)

    step = Copies.step
    with monkeypatch.context() as patch:
        patch.setattr(stack, "CHECKPOINT_SECONDS", -1.0)
        patch.setattr(Copies, "step", killed)
        with pytest.raises(MemoryError):
            made(seeds=2, store=tmp_path / "cut")
    assert len([*(tmp_path / "cut").rglob("*.checkpoint")]) == 2
    assert bits(made(seeds=4, store=tmp_path / "cut")) == bits(whole)


def test_finished_runs_are_not_trained_again(tmp_path, monkeypatch):
    """New seeds and learning rates join them; other data, loss, start, or observables
    do not.
    """
    made = functools.partial(ensemble, Line, steps=6, store=tmp_path, **QUIET)
    first = made((X, Y), seeds=2, eta=0.03)
    goals = torch.zeros(24, 1), torch.ones(24, 1)
    losses = [lambda net, x, y, goal=goal: net.loss(x, y + goal) for goal in goals]
    made((X, Y), seeds=1, eta=0.03, loss_fn=losses[0])
    trained, learner = [], Copies.__init__

    def recording(self, *args):
        trained.extend([] if args[-3][0] == 2**62 else args[-3])
        learner(self, *args)

    monkeypatch.setattr(Copies, "__init__", recording)
    both = made((X, Y), seeds=3, eta=[0.03, 0.01])
    assert trained == [2, 0, 1, 2]
    assert (
        both.loss.sel(eta=0.03, seed=[0, 1]).values.tobytes()
        == first.loss.values.tobytes()
    )
    trained.clear()
    made((X, Y), seeds=3, eta=[0.01, 0.03])
    assert trained == []
    for other in (
        lambda: made((X, 2 * Y), seeds=1, eta=0.03),
        lambda: made(
            (X, Y),
            seeds=1,
            eta=0.03,
            observables={"size": lambda net, *_: net.w.norm()},
        ),
        lambda: made(
            (X, Y), seeds=1, eta=0.03, loss_fn=lambda net, x, y: 2 * net.loss(x, y)
        ),
        lambda: ensemble(
            functools.partial(Line, 8),
            (X, Y),
            steps=6,
            seeds=1,
            eta=0.03,
            store=tmp_path,
            **QUIET,
        ),
        lambda: made((X, Y), seeds=1, eta=0.03, loss_fn=losses[1]),
        lambda: made((X, Y), seeds=1, eta=0.03, dtype="float32"),
        lambda: ensemble(
            small, (X, Y), steps=6, seeds=1, eta=0.03, store=tmp_path, **QUIET
        ),
        lambda: made((X, Y), seeds=1, eta=0.03, batch=24),
    ):
        trained.clear()
        other()
        assert trained == [0]


def test_a_store_of_copies_opens(tmp_path):
    """Over seeds, learning rates and steps, as what the function gives."""
    found = ensemble(
        Line, (X, Y), seeds=2, eta=[0.03, 0.01], steps=20, store=tmp_path, **QUIET
    )
    both = runs.open(tmp_path).loss.transpose("seed", "eta", "step").sel(eta=found.eta)
    assert both.values.tobytes() == found.loss.values.tobytes()


def test_copies_in_discovered_coordinates():
    """The flow's order parameters of copies that start near its start; the times are
    the flow's.
    """
    module, data = retrieval()
    found = discover(module, data)

    def near():
        made = Retrieval(4, 4)
        for w in made.parameters():
            w.data = 1e-6 * torch.randn(w.shape)
        return made

    trained = ensemble(near, data, seeds=2, eta=0.02, steps=400, weights=True, **QUIET)
    seen = found.project(trained)
    curve = found.predict(trained, eta=0.02)
    assert seen.t.values == pytest.approx(
        curve.t.values
    ) and seen.seed.values.tolist() == [0, 1]
    for x in found.flow.state:
        assert seen[x.name].values == pytest.approx(
            np.array([curve[x.name]] * 2), abs=1e-4
        )
    with pytest.raises(ParameterError, match="train with weights=True"):
        found.project(trained.drop_vars("K"))


def test_batches_too_large_for_memory_are_refused(monkeypatch, tmp_path):
    """Measured on a part of the data, the loss needs all of them."""
    x = torch.zeros(40_000, 4)
    monkeypatch.setattr("theory.runtime.memory.available", lambda: 2**20)
    with pytest.raises(ParameterError, match="memory"):
        ensemble(Net, (x, x[:, :1]), batch=4, steps=5, store=tmp_path, **QUIET)


def test_memory_is_that_of_what_is_computed():
    """Of rows of the data, not of the larger array that they are a part of; and for
    weights that all rows share, once.
    """
    x, y = torch.zeros(2**16, 4), torch.zeros(2**16, 1)
    part, copied = (x[:1024], y[:1024]), (x[:1024].clone(), y[:1024].clone())
    one, other = (
        Loss(Net(), data, None, dtype=torch.float32).bytes for data in (part, copied)
    )
    assert one == other > 4 * 1024 * 7
    wide = nn.Sequential(nn.Linear(4, 1000), nn.Tanh(), nn.Linear(1000, 1000))
    found = Loss(wide, copied[0], lambda net, x: net(x).square().mean())
    assert (
        1 <= found.bytes / (2 * 8 * 1024 * 1000) <= 3
    )  # weights once are half of that


def test_from_a_module(tmp_path):
    """All copies start with its weights, differ by their batches, and leave it as it
    was.
    """
    torch.manual_seed(1)
    net = Line()
    before = [w.clone() for w in net.parameters()]
    found = ensemble(net, (X, Y), seeds=3, batch=4, steps=10, **QUIET)
    assert np.ptp(found.loss.values[:, 0]) == 0 and np.ptp(found.loss.values[:, -1]) > 0
    assert all(map(torch.equal, before, net.parameters()))


def test_packages_are_called_as_their_functions(tmp_path):
    """As ``simulate.ensemble(module,
    data)`` and ``simulate.discover(module, data)``.
    """
    words = torch.eye(3)
    loss = {"loss_fn": lambda net, x: net(x).square().mean()}
    one, other = (
        of(
            lambda: nn.Linear(3, 1),
            words,
            seeds=2,
            steps=3,
            store=tmp_path,
            progress=False,
            **loss,
        )
        for of in (simulate.ensemble, ensemble)
    )
    assert one.identical(other) and simulate.discover.discover is discover
    with pytest.raises(AttributeError, match="no attribute 'ensembles'"):
        simulate.ensembles  # noqa: B018


def test_observables_have_their_dimensions():
    """A number, a vector, and weights; the last measurement is at the end."""
    found = ensemble(
        Net,
        (X, Y),
        **dict(seeds=2, steps=25, eval_every=10, weights=True),
        observables={"rows": lambda net, x, y: net.first.weight.norm(dim=1)},
        **QUIET,
    )
    assert found.step.values.tolist() == [0, 10, 20, 25]
    assert found.rows.dims == ("seed", "t", "rows_0") and found.rows.shape == (2, 4, 7)
    assert found["first.weight"].shape == (2, 4, 7, 4)
    norms = np.linalg.norm(found["first.weight"], axis=-1)
    assert found.rows.values == pytest.approx(norms, rel=1e-14)


Steep = losing(lambda self, x, y: Net.loss(self, x, y) ** 4)
BRANCHING = losing(
    lambda self, x, y: Net.loss(self, x if self.second.weight.sum() > 0 else -x, y)
)
MASKING = losing(
    lambda self, x, y: self.first(x)[x.sum(1) * self.frozen[0] > 0].square().mean()
)
DIFFERS = r"module: differs from seed to seed in more than .*\(register_buffer\)"
REFUSED = {
    "dropout": (
        losing(lambda self, x, y: Net.loss(self, nn.functional.dropout(x), y)),
        "loss: is not the same at every call",
    ),
    "noisy": (
        losing(lambda self, x, y: Net.loss(self, x + torch.randn(4), y)),
        "loss: is not the same at every call: use fixed inputs and no random numbers",
    ),
    "normed": (
        Normed,
        r"loss: changes the buffer norm.running_mean .* call module.eval\(\) first",
    ),
    "unused": (
        Unused,
        r"spare: the loss does not depend on it; freeze it, requires_grad_\(False\)",
    ),
    "branching": (
        BRANCHING,
        r"at once: .*self.second.weight.sum\(\) > 0.*torch.where for if",
    ),
    "masking": (MASKING, r"at once: .*self.first\(x\)\[.*torch.where for if and masks"),
    "in place": (
        InPlace,
        r"at once: .*out\[0\] = .*torch.stack for assignments in place",
    ),
    "hidden": (Hidden, DIFFERS),
    "hidden, small": (functools.partial(Hidden, 1e-4), DIFFERS),
    "counting": (
        Counting,
        "loss: changes module.calls at every call; make it a constant",
    ),
    "infinite": (
        losing(lambda self, x, y: Net.loss(self, x, y) / 0 * 0),
        "loss: is nan",
    ),
    "shaped": (
        lambda: Net(int(torch.randint(3, 90, ()))),
        "module: is another under another seed",
    ),
    "no module": (lambda: 3, "module = 3: must be, or build, a module of torch"),
    "no loss": (
        lambda: nn.Linear(4, 1),
        r"Linear: has no method loss\(inputs\); give loss_fn=",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_the_door(name, tmp_path):
    """In one line, before anything is written."""
    kind, message = REFUSED[name]
    with pytest.raises(ParameterError, match=message) as caught:
        ensemble(kind, (X, Y), steps=5, store=tmp_path, **QUIET)
    assert "\n" not in str(caught.value) and not any(tmp_path.iterdir())


def test_integer_weights_are_refused():
    """They have no gradient."""
    net = Net()
    net.second.weight = nn.Parameter(
        torch.ones(1, 7, dtype=torch.int64), requires_grad=False
    )
    net.second.weight.requires_grad_ = None
    with pytest.raises(ParameterError):
        ensemble(net, (X.long(), Y.long()), batch=3, steps=5, **QUIET)


OPTIONS = [
    (dict(seeds=[1, 1]), "seeds = .*: must be distinct"),
    (dict(seeds=[]), "must be at least one of each"),
    (dict(eta=[]), "must be at least one of each"),
    (dict(eta=[0.1, 0.1]), "eta = .*: a value is repeated"),
    (dict(eta=-1.0), "eta = -1.0: must be"),
    (dict(eta="fast"), "eta = 'fast': must be"),
    (dict(steps=0), "steps = 0: must be"),
    (dict(steps=2.5), "steps = 2.5: must be"),
    (dict(batch=-1), "batch_size = -1: must be"),
    (dict(optimizer="lbfgs"), "optimizer = 'lbfgs': must be"),
    (dict(optimizer=torch.optim.Adam), "optimizer = .*: must be an Optimiser"),
    (dict(dtype="float16"), "dtype = float16: must be"),
    (dict(workers=0), "workers = 0: must be"),
    (dict(observables={"t": len}), "observables: t: is the name of something else"),
    (dict(module=Net()), "seeds: all copies would be the same"),
    (dict(module=lambda: NET), "seeds: all copies would be the same"),
    (
        dict(data=(X, Y[:5]), batch=3, loss_fn=lambda net, x, y: net.first(x).mean()),
        "batch: draws",
    ),
    (dict(data=(X, torch.nan * Y)), "loss: is nan at the start"),
    (dict(step=200), "step: unknown keyword"),
    (dict(optimizer="adamw"), "adamw: is adam without weight decay"),
    (dict(observables={"z": 3}), "observables: must be functions"),
    (
        dict(observables={"z": lambda net, x, y: 3.0}),
        "{'z': 3.0}: must be tensors of torch",
    ),
    (
        dict(observables={"first.weight": len}),
        "observables: first.weight: is the name of a weight",
    ),
]
NET = Net()


@pytest.mark.parametrize("options, message", OPTIONS, ids=[m for _, m in OPTIONS])
def test_wrong_options_are_refused(options, message, tmp_path):
    """In one line."""
    options = dict(module=Net, data=(X, Y), store=tmp_path) | options
    with pytest.raises(ParameterError, match=message) as caught:
        ensemble(**(dict(steps=50) | options), **QUIET)
    assert "\n" not in str(caught.value)


def test_a_module_that_differs_under_one_seed_is_refused():
    """It draws from a generator of its own."""
    own = np.random.default_rng(0)

    def make():
        net = Net()
        net.first.bias.data += own.normal()
        return net

    with pytest.raises(
        ParameterError, match="is built otherwise when it is built again"
    ):
        ensemble(make, (X, Y), steps=5, **QUIET)


def test_one_of_several_rates_diverges():
    """It is named."""
    with pytest.raises(ParameterError, match=r"^eta = 1e\+09: the loss is not finite"):
        ensemble(Steep, (X, Y), eta=[0.01, 1e9], steps=50, **QUIET)
