"""Order of batches: the noise of batches by all orders, the scatter of times by drawn noise, single
answers by finite changes.
"""

import itertools

import numpy as np
import pytest
from later import Later

from theory.parameters import ParameterError
from theory.state_tracking import Parameters, batches
from theory.state_tracking.batches import Path, batch_times
from theory.state_tracking.dressed import Dressed
from theory.state_tracking.realisation import Start

FORMS = Later(batches.equations)
P = Parameters(
    N=8, L=4, d_g=8, d_h=8, n_train=2048, batch_size=128, unit="step", eta=1.0, epochs=600
)


def begin(R: float = 0.3) -> Start:
    """A start that learns soon."""
    start = Start.drawn(P, 1, np.random.default_rng(2))
    start.R[:] = R
    return start


def test_noise_of_batches_over_all_orders():
    """Six sequences in batches of two, all 720 orders."""
    values = np.array([0.3, -1.0, 2.0, 0.7, 0.0, 5.0])
    orders = np.array(list(itertools.permutations(values))).reshape(-1, 3, 2).mean(2)
    known = {"sigma_all": values.var(), "B": 2, "n_train": 6}
    covariance = np.cov(orders.T, bias=True)
    assert covariance[0, 0] == pytest.approx(FORMS["batch_variance"].evaluate(known))
    assert covariance[0, 1] == pytest.approx(FORMS["batch_covariance"].evaluate(known))
    # The sum of answers over the steps of an epoch.
    answers = np.array([0.2, 1.0, -0.5])
    kernel = answers[None, :, None, None] * np.sqrt(values.var())
    found = FORMS["time_variance"].evaluate(known | {"kernel": kernel, "L": 1, "epochs": 1})
    assert (orders @ answers).var() == pytest.approx(found)


def times(system: Dressed, pulls: np.ndarray) -> np.ndarray:
    """Steps until A = 1/2 of copies of a start under forces by step and copy."""
    A = []
    for pull in pulls:
        at = system.attention.forward(*system.state[:2])
        A.append(np.einsum("bii->b", at) / P.L)
        system.pull = pull
        system.state = [x + f for x, f in zip(system.state, system.rates(), strict=True)]
    rows = np.array(A).T
    after = (rows >= 0.5).argmax(1)
    assert (after > 0).all()
    high, low = (np.take_along_axis(rows, (after - k)[:, None], 1)[:, 0] for k in (0, 1))
    return after - 1 + (0.5 - low) / (high - low)


def test_scatter_by_drawn_noise():
    """The dressed theory under Gaussian forces of sequences that sum to zero over an epoch: its
    scatter within 12% of linear response; without that sum it is more than twice as large.
    """
    start, copies, m = begin(), 300, P.batches
    found = batch_times(P, start)
    path = Path(P, start)
    force = np.array([path.errors(n)[1] for n in range(path.steps)])
    force = np.concatenate([force, np.repeat(force[-1:], 40, 0)])
    rng = np.random.default_rng(0)
    many = Start(*(np.repeat(x, copies, 0) for x in vars(start).values()))
    scatters = []
    for cancel in (True, False):
        noise = rng.normal(size=(-(-len(force) // m), m, copies, P.L, P.L))
        noise -= cancel * noise.mean(1, keepdims=True)
        noise = noise.reshape(-1, copies, P.L, P.L)[: len(force)] / np.sqrt(P.batch_size)
        scatters.append(times(Dressed(P, many), noise * np.sqrt(force)[:, None, :, None]).std())
    assert scatters[0] == pytest.approx(found.half_sd[0], rel=0.12)
    assert scatters[1] > 2 * scatters[0]
    assert 0 < found.half_bias < found.half


def test_single_answers():
    """Of the time to one force, against two runs; of attention to two changes at once."""
    start = begin()
    path = Path(P, start)
    rng, n = np.random.default_rng(1), path.steps // 2
    pull = 0.02 * rng.normal(size=(P.L, P.L))
    two = Start(*(np.repeat(x, 2, 0) for x in vars(start).values()))
    pulls = np.zeros((path.steps + 20, 2, P.L, P.L))
    pulls[n] = pull, -pull
    ahead, back = times(Dressed(P, two), pulls)
    along = path.slopes(path.states[n])
    assert (ahead - back) / 2 == pytest.approx((path.to_force(n, along) * pull).sum(), rel=0.02)
    entry = P.L + 2
    answer, h = path.answers[n + 1], 1e-2
    answer = answer / np.linalg.norm(answer)
    corners = [
        a * b * _attention(path, path.states[n] + h * (a * answer + b * along[entry]))[entry]
        for a in (1, -1)
        for b in (1, -1)
    ]
    mixed = sum(corners) / (4 * h**2) * np.linalg.norm(path.answers[n + 1])
    assert path.bend(n, along)[entry] == pytest.approx(mixed, rel=1e-3)


def _attention(path: Path, x: np.ndarray) -> np.ndarray:
    return path.system.attention.forward(x[:, : P.d_h], x[:, P.d_h : path.heads]).ravel()


def test_time_of_students_moves_to_theirs():
    """A known full-batch time is that of the path; sizes that do not divide are refused."""
    own = batch_times(P, begin()).half
    known = batch_times(P, begin(), half=1.05 * own)
    slower = batch_times(P.replace(eta=P.eta / 1.05), begin())
    assert slower.half == pytest.approx(known.half, rel=2e-3)  # of an Euler step
    for mine, other in ((known.half_bias, slower.half_bias), (known.half_sd, slower.half_sd)):
        assert mine == pytest.approx(other)
    with pytest.raises(ParameterError, match="batch_size = 100: must divide n_train = 2048"):
        batch_times(P.replace(batch_size=100), begin())
    assert np.isnan(batch_times(P.replace(epochs=3), begin()).half_bias).all()


def test_attention_that_starts_above_a_half_needs_no_steps():
    """Whatever the order of batches, and where students are said to have taken some."""
    ready, late = begin(), begin()
    path = Path(P, late)
    ready.W_Q[:], ready.W_K[:] = np.split(path.states[-1][:, : path.heads], 2, 1)  # A is 1/2
    both = Start(
        *(np.concatenate(x) for x in zip(vars(ready).values(), vars(late).values(), strict=True))
    )
    for half in (None, [3.0, 200.0]):
        found = batch_times(P, both, half)
        for x in (found.half, found.half_bias, found.half_sd):
            assert x[0] == 0 < x[1]
