"""Fixed-disorder theory under any optimiser: exact where every group has one row, and
entries that the data do not touch stay where they are.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from simulate.state_tracking import train
from simulate.state_tracking.learner import Learner
from theory.call.refusal import ParameterError
from theory.state_tracking import Parameters, predict
from theory.state_tracking.single_students.integrate import solve
from theory.state_tracking.single_students.optimised_disorder import Trained, system
from theory.state_tracking.single_students.realisation import Realisation, Start
from verify.compare.emergence import first_crossing

ONE = Parameters(
    N=5,
    L=4,
    d_g=4,
    d_h=6,
    n_train=7,
    n_test=8,
    batch_size=1,
    unit="step",
    epochs=15,
    rope="plain",
)
WAYS = [
    dict(eta=0.5, weight_decay=0.1),
    dict(eta=0.3, momentum=0.8, nesterov=True, schedule="cosine", warmup=3),
    dict(eta=0.02, optimizer="adam", clip=0.1),
    dict(eta=0.02, optimizer="adamw", weight_decay=0.3),
]

# Systems of plain descent by what a gradient may cost.


def followed(p, seeds=(3, 8)):
    """Students in double precision, and the theory of their realisations."""
    run = Learner(p, list(seeds), torch.device("cpu"), torch.float64)
    given = Realisation.of_seeds(p, seeds)
    start = Start.drawn(p, len(seeds), np.random.default_rng(0))
    heads = {k: np.stack([x[k] for x in run.start]) for k in ("W_Q", "W_K")}
    return run, system(p, replace(start, **heads), given)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_batches_of_one_sequence_are_exact(way):
    """Every group has one row, so that nothing scatters: all weights of two students
    after each of two passes, to the single precision of counts. The order of batches,
    schedule, clipping and memories are in it.
    """
    p = ONE.replace(**way)
    run, theory = followed(p)
    assert isinstance(theory, Trained)
    for step in range(p.epochs):
        run.step(step)
        theory.epoch()
    W_Q, W_K, M = theory.state
    students = run.students
    for ours, theirs in (
        (M.transpose(0, 2, 3, 1), students.M),
        (W_Q[..., None], students.W_Q),
        (W_K[..., None], students.W_K),
    ):
        np.testing.assert_allclose(ours, theirs.detach(), atol=2e-5)


def test_plain_descent_with_few_sequences(tmp_path):
    """With 46 sequences, covariances within groups are far from those of independent
    actions: A of these students (N, L, d_g, d_h drawn at random) is off by 0.024 on its
    way up, and the result says so.
    """
    p = Parameters(
        N=5, L=6, d_g=4, d_h=16, n_train=46, n_test=8, epochs=600, eval_every=20
    )
    runs = train(p, [1, 2], workers=1, progress=False, store=tmp_path)
    ours = predict(p, runs, accuracies=False)
    assert float(runs.A.max()) > 0.9
    apart = float(abs(ours.A - runs.A).max())
    assert 0.01 < apart < 0.03
    for name in ("A", "loss"):
        apart = np.abs(ours[name].values - runs[name].values).max()
        assert ours[name].attrs["off_by"] == pytest.approx(apart, rel=1e-9)
    assert float(abs(ours.loss - runs.loss).max()) < 0.03


def test_seeds_are_followed_one_by_one():
    """In strides every student has its own covariances, as if it were alone."""
    p = Parameters(N=5, L=3, d_g=4, d_h=8, n_train=20, n_test=8)
    start, given = Start.of_seeds(p, (1, 2, 3)), Realisation.of_seeds(p, (1, 2, 3))
    one = Start(*(x[1:2] for x in vars(start).values()))
    together, alone = (
        solve(system(p, s, g, False), [0, 50, 100])
        for s, g in ((start, given), (one, given[1:2]))
    )
    np.testing.assert_allclose(together.A[1:2], alone.A, rtol=1e-9)


def test_predict_serves_them(tmp_path):
    """One call, at the students' own evaluations; refused where data or schedule are
    missing.
    """
    p = ONE.replace(schedule="cosine", momentum=0.5, eval_every=5, epochs=15)
    runs = train(p, [3, 8], workers=1, progress=False, store=tmp_path, dtype="float64")
    ours = predict(p, runs, level="fixed_disorder", accuracies=False)
    for name in ("A", "R", "S"):
        np.testing.assert_allclose(ours[name], runs[name], atol=3e-5)
    with pytest.raises(
        ParameterError, match="epochs = 20: the runs were trained with 15"
    ):
        predict(p.replace(epochs=20), runs, level="fixed_disorder")
    with pytest.raises(
        ParameterError, match="momentum = 0.9: the runs were trained with 0.5"
    ):
        predict(p.replace(momentum=0.9), runs, level="fixed_disorder")
    with pytest.raises(ParameterError, match="batch_size = 1: must be none or n_train"):
        predict(p, runs, level="cavity")
    bare = replace(Realisation.of(p, runs), sequences=None)
    with pytest.raises(ParameterError, match="given: has no sequences"):
        predict(p, runs, level="fixed_disorder", given=bare)


@pytest.mark.parametrize("d_g", [3, 1])
def test_starts_of_seeds_are_those_of_their_students(d_g, tmp_path):
    """As measured at time 0, to single precision of the weights; without training."""
    p = Parameters(N=6, L=3, d_g=d_g, d_h=8, n_train=16, n_test=8)
    runs = train(
        p, seeds=(3, 5), alpha=p.alpha(1), store=tmp_path, workers=1, progress=False
    )
    measured, found = Start.measured(runs), Start.of_seeds(p, (3, 5))
    for name, value in vars(measured).items():
        np.testing.assert_allclose(
            vars(found)[name], value, rtol=0, atol=1e-6, err_msg=name
        )


@pytest.mark.slow
def test_accuracies_of_words_of_a_dihedral_group(tmp_path):
    """Ten actions that do not commute, under AdamW with decay: times at which
    accuracies are 1/2, of words and of rollouts; logits taken as Gaussian were off by
    up to four per cent.
    """
    p = Parameters.words("D_5").replace(
        **dict(
            L=5,
            d_h=32,
            n_train=3000,
            n_test=65536,
            epochs=160,
            unit="step",
            eval_every=4,
        ),
        **dict(optimizer="adamw", eta=0.006, weight_decay=0.3),
    )
    runs = train(p, [9201, 9203], store=tmp_path, progress=False, workers=1)
    ours = predict(p, runs)
    for name, most in {"A": 3e-4, "accuracy": 5e-3, "rollout_accuracy": 2e-3}.items():
        found, theirs = (first_crossing(x[name], 0.5).values for x in (ours, runs))
        np.testing.assert_allclose(found, theirs, rtol=most)
        assert float(abs(ours[name] - runs[name]).max()) < 0.006
