"""Optimisers of theory and students against torch's, step by step; what is stored is as
before.
"""

import itertools
import json

import numpy as np
import pytest
import torch

from simulate.associative_memory import factual_recall as facts
from simulate.associative_memory.factual_recall import LinearAttention
from simulate.associative_memory.factual_recall import train as train_recall
from simulate.state_tracking import train
from simulate.state_tracking.learner import SYSTEM, Learner
from simulate.statement import system as statement_system
from simulate.store import storage
from theory.associative_memory import factual_recall
from theory.associative_memory.factual_recall.dynamics import recall
from theory.call.refusal import ParameterError
from theory.dynamics.optimisers import Optimiser, Steps
from theory.state_tracking import Parameters
from theory.statement.model import parameters as statement_parameters

ETA, STEPS = 0.05, 12
# Every field that an optimiser has, alone and together with the others.
WAYS = [
    *(
        dict(momentum=mu, nesterov=nesterov, weight_decay=decay)
        for mu, nesterov, decay in itertools.product(
            (0.0, 0.9), (False, True), (0.0, 0.1)
        )
        if mu or not nesterov
    ),
    *(
        dict(optimizer=kind, weight_decay=decay, beta_1=one, beta_2=two, epsilon=small)
        for kind, decay in itertools.product(("adam", "adamw"), (0.0, 0.1))
        for one, two, small in ((0.9, 0.999, 1e-8), (0.5, 0.9, 1e-3))
    ),
]
RATES = [
    dict(),
    dict(warmup=4),
    dict(schedule="cosine"),
    dict(warmup=4, schedule="cosine", clip=0.7),
]
TINY = Parameters(
    N=4, L=3, d_g=3, d_h=4, n_train=24, n_test=8, epochs=STEPS, eval_every=4, eta=ETA
)


def torchs(how, weights):
    """Torch's optimiser and schedule for these fields."""
    usual = dict(lr=ETA, weight_decay=how.weight_decay)
    if how.optimizer == "sgd":
        made = torch.optim.SGD(
            weights, **usual, momentum=how.momentum, nesterov=how.nesterov
        )
    else:
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[how.optimizer]
        made = kind(weights, **usual, betas=(how.beta_1, how.beta_2), eps=how.epsilon)
    scheduler = torch.optim.lr_scheduler
    parts, at = [], []
    if how.warmup:
        parts.append(scheduler.LinearLR(made, 1 / how.warmup, 1, how.warmup - 1))
        at.append(how.warmup)
    if how.schedule == "cosine":
        parts.append(scheduler.CosineAnnealingLR(made, STEPS - how.warmup))
    else:
        parts.append(scheduler.ConstantLR(made, 1.0, 1))
    return made, scheduler.SequentialLR(made, parts, at) if at else parts[0]


def loss(w, v, number):
    """Rough enough to be told apart by every rule; some entries have no gradient at
    first.
    """
    seen = v if number > 2 else v[:-1]
    return (
        (w.sin() ** 2).sum()
        + (w @ w.T).tanh().sum()
        + (seen**2 * (2 + number)).exp().sum()
    )


@pytest.mark.filterwarnings(
    "ignore::UserWarning"
)  # of torch's schedulers about their epochs
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_step_is_torchs(way):
    """1e-12 in double precision: twelve steps, each exact to rounding."""
    for rates in RATES:
        how = Optimiser(**way, **rates)
        torch.manual_seed(3)
        tensors = [torch.randn(3, 3).double(), torch.randn(4).double() / 3]
        weights = [w.numpy().copy()[None] for w in tensors]  # an axis over students
        for w in tensors:
            w.requires_grad_()
        optimizer, schedule = torchs(how, tensors)
        step = Steps(how, ETA, STEPS)
        for number in range(STEPS):
            slopes = torch.autograd.grad(loss(*tensors, number), tensors)
            for w, g in zip(tensors, slopes, strict=True):
                w.grad = g.clone()
            if how.clip:
                torch.nn.utils.clip_grad_norm_(tensors, how.clip)
            optimizer.step()
            schedule.step()
            weights = step(weights, [g.numpy()[None] for g in slopes])
            for ours, theirs in zip(weights, tensors, strict=True):
                np.testing.assert_allclose(
                    ours[0], theirs.detach(), rtol=1e-12, atol=1e-12
                )


@pytest.mark.parametrize("way", WAYS[::3], ids=str)
@pytest.mark.parametrize("rates", RATES, ids=str)
def test_students_take_these_steps(way, rates):
    """Two students in one stack, batches of a third of the data: the rules of theory on
    the students' own gradients, clipped student by student.
    """
    p = TINY.replace(**way, **rates, batch_size=8, epochs=STEPS // 3)
    run = Learner(p, [0, 1], torch.device("cpu"), torch.float64)
    names = [name for name, _ in run.students.named_parameters()]
    weights = [w.detach().numpy().copy() for w in run.students.parameters()]
    plain, steps = (
        Learner(p, [0, 1], torch.device("cpu"), torch.float64),
        Steps(p, ETA, STEPS),
    )
    for epoch in range(p.epochs):
        run.step(epoch)
        for at in p.steps_of(epoch):
            with torch.no_grad():
                for w, value in zip(plain.students.parameters(), weights, strict=True):
                    w.copy_(torch.as_tensor(value))
            plain.full.gradients(plain.students, plain.batch(at))
            weights = steps(
                weights, [w.grad.numpy() for w in plain.students.parameters()]
            )
    for name, ours, theirs in zip(
        names, weights, run.students.parameters(), strict=True
    ):
        # Adam makes 1e-17 / epsilon of the rounding of a gradient that vanishes by
        # symmetry.
        np.testing.assert_allclose(
            ours, theirs.detach(), rtol=1e-9, atol=1e-9, err_msg=name
        )


def test_steps_and_epochs_are_the_same_run(tmp_path):
    """Three batches an epoch: counted in epochs or in single steps, to the last bit."""
    own = dict(workers=1, progress=False, store=tmp_path, dtype="float64")
    p = TINY.replace(
        batch_size=8, momentum=0.5, schedule="cosine", epochs=4, eval_every=1
    )
    whole = train(p, [0], **own)
    single = train(p.replace(unit="step", epochs=12), [0], **own)
    assert single.sizes["alpha"] == 13 and float(single.alpha[1] * p.d_g * p.N) == 1
    for name in ("A", "R", "loss"):
        assert np.array_equal(single[name][:, ::3], whole[name])


def test_stored_runs_keep_their_identity():
    """Fields that were added later are part of a configuration only where they are
    used.
    """
    p = Parameters.table_1()
    said = json.loads(SYSTEM.configuration(p, torch.float32))
    assert {"momentum", "clip", "unit", "beta_1"}.isdisjoint(said) and said[
        "weight_decay"
    ] == 0.0
    assert str(
        storage.place(
            storage.default_store(), SYSTEM.configuration(p, torch.float32), 0
        )
    ).endswith(TABLE_1)
    moved = json.loads(SYSTEM.configuration(p.replace(momentum=0.9), torch.float32))
    assert moved == {**said, "momentum": 0.9}
    assert Parameters(**json.loads(p.as_json())) == p


TABLE_1 = (  # where Table 1 was stored before these fields
    "ff8b8f449471037d/seed-00000.nc"
)


@pytest.mark.parametrize(
    "fields, words",
    [
        (dict(optimizer="adam", momentum=0.9), "momentum = 0.9: must be 0.0 for adam"),
        (dict(nesterov=True), "nesterov = True: must be False without momentum"),
        (dict(beta_1=0.5), "beta_1 = 0.5: must be 0.9 for sgd"),
        (dict(momentum=1.0), "momentum = 1.0: must be >= 0 and < 1"),
        (dict(schedule="cosine", warmup=12), "warmup = 12: must be < 12"),
    ],
)
def test_what_has_no_effect_is_refused(fields, words):
    with pytest.raises(ParameterError, match=words):
        TINY.replace(**fields)


@pytest.mark.parametrize(
    "way", [WAYS[3], WAYS[-1], dict(optimizer="adam", clip=0.01)], ids=str
)
def test_factual_recall_in_one_call(way):
    """The flow's own weights under an optimiser, against the student's 300 weights
    under torch's, on all facts at once.
    """
    p = factual_recall.Parameters.small().replace(epsilon=0.05)
    how, steps = Optimiser(**way), 60
    curve = factual_recall.flow().descend(p, ETA, steps, optimizer=how)
    student, table = LinearAttention(p), facts.fact_table(p)
    optimizer, _ = torchs(how, list(student.parameters()))
    s, r = (x.ravel() for x in np.indices(table.shape))
    counts = torch.zeros(len(s), p.vocabulary, dtype=torch.float64)
    counts[np.arange(len(s)), s] = counts[np.arange(len(s)), p.S + r] = 1
    for number in range(steps + 1):
        value = torch.nn.functional.cross_entropy(
            (counts * student.w) @ student.V, torch.as_tensor(table.ravel())
        )
        if number % 20 == 0:  # 60 steps of rounding
            assert value.item() == pytest.approx(float(curve.loss[number]), rel=1e-9)
            assert student.w[0].item() == pytest.approx(
                float(curve.w_s[number]), rel=1e-9
            )
        optimizer.zero_grad()
        value.backward()
        if how.clip:
            torch.nn.utils.clip_grad_norm_(student.parameters(), how.clip)
        optimizer.step()
    assert abs(float(curve.loss[-1] / curve.loss[0]) - 1) > 1e-3  # it has moved


def test_a_flow_without_weights_refuses_optimisers():
    """Attention of the flow (15) is no sum of weights."""
    from theory import state_tracking as st

    with pytest.raises(
        ParameterError, match="optimizer: .* does not follow the weights"
    ):
        st.flow().descend(TINY, 0.1, 3, optimizer=Optimiser(optimizer="adam"))
    assert factual_recall.flow().entries is not None


RECALL = factual_recall.Parameters(
    S=4, R=2, D=2, noise_tokens=2, T=5, epsilon=0.1, eta=0.02, steps=60, eval_every=20
)


def test_students_of_a_statement_under_any_optimiser(tmp_path):
    """All inputs listed, the flow's weights under the same optimiser: equal but for the
    epsilon of Adam beside gradients of other sizes. Interrupted students go on as if
    they had not been.
    """
    kind = statement_system(recall())
    fields = RECALL.as_dict() | {"batch_size": 0}
    p = statement_parameters(recall())(**fields)
    for how in (
        Optimiser(optimizer="adam"),
        Optimiser(optimizer="adamw", weight_decay=0.1, schedule="cosine", warmup=5),
        Optimiser(momentum=0.8, nesterov=True),
    ):
        runs = kind.train(
            p, [0], optimizer=how, store=tmp_path, workers=1, progress=False
        )
        flow = factual_recall.flow().descend(RECALL, p.eta, p.steps, optimizer=how)
        for name in ("loss", "w_r", "w_s"):
            np.testing.assert_allclose(
                runs[name][0], flow[name][:: p.eval_every], rtol=1e-6
            )
        plain = factual_recall.flow().descend(RECALL, p.eta, p.steps)
        assert abs(float(plain.loss[-1] / runs.loss[0, -1]) - 1) > 0.01
        whole, first, second = (
            kind.learner(p, [0], torch.device("cpu"), torch.float64, optimizer=how)
            for _ in range(3)
        )
        for n in range(6):
            whole.step(n)
            (first if n < 3 else second).step(n)
            if n == 2:
                second.load([first.state(0)])
        for name, x in whole.state(0).items():
            assert torch.equal(x, second.state(0)[name]), name


def test_recall_under_momentum_and_adam(tmp_path):
    """Momentum is followed; under Adam, which divides by the noise of batches, a
    prediction is refused. Plain descent by name is the same run as without.
    """
    p = factual_recall.Parameters.small().replace(steps=600, eval_every=60)
    here = dict(store=tmp_path, workers=1, progress=False)
    how = Optimiser(momentum=0.8, schedule="cosine")
    runs = train_recall(p, [0, 1], optimizer=how, **here)
    assert float(runs.loss[0, -1]) < 0.2
    # Batches of 256: a few per cent of a loss.
    np.testing.assert_allclose(
        factual_recall.predict(p, runs).loss, runs.loss.mean("seed"), rtol=0.1
    )
    q = p.replace(steps=4, eval_every=2, eta=0.01)
    adam = train_recall(q, [0], optimizer=Optimiser(optimizer="adam"), **here)
    with pytest.raises(
        ParameterError,
        match="batch_size = 256 under adam: must be trained by sgd without",
    ):
        factual_recall.predict(q, adam)
    plain = train_recall(q, [0], optimizer=Optimiser(), **here)
    assert (
        plain.attrs["configuration"]
        == train_recall(q, [0], **here).attrs["configuration"]
    )
    with pytest.raises(ParameterError, match="must be an Optimiser"):
        train_recall(q, [0], optimizer="adam", **here)
