"""Message passing of the positional-semantic model, against state evolution and
students.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_positional_students import TINY
from tiny import ALONE

from simulate.positional_semantic import student as positional_semantic_student
from simulate.positional_semantic import train
from simulate.positional_semantic.gamp import gamp
from simulate.positional_semantic.student import Problem, initial_weights
from theory.call.refusal import ParameterError
from theory.positional_semantic import Parameters
from theory.positional_semantic.channel import State, averages
from theory.positional_semantic.state_evolution import update


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"damping": 1.5}, "damping = 1.5: must be >= 0 and < 1"),
        ({"iterations": 0}, "iterations = 0: must be >= 1"),
        ({"start": np.ones(3)}, "start: has dimension 3, must have d = 12"),
        (
            {"p": Parameters(d=20, alpha=1.0)},
            "data: has dimension 12, must have d = 20",
        ),
        ({"p": Parameters(d=12, alpha=1.0, tied=False)}, "tied = False: must be True"),
    ],
)
def test_message_passing_refuses_what_does_not_fit(words, message):
    """One line, naming the argument."""
    p = Parameters(d=12, alpha=1.0)
    teacher, data = positional_semantic_student.sample(p, 0)
    with pytest.raises(ParameterError, match=message):
        gamp(**({"p": p, "data": data, "start": teacher} | words))


def test_message_passing_converges_on_both_branches():
    """Semantic with the global, positional with the local minimiser: the gradient of
    the risk vanishes.
    """
    for start, alpha, prox, damping in (
        ("semantic", 2.0, "global", 0.7),
        ("positional", 1.0, "local", 0.85),
    ):
        p = Parameters(d=200, alpha=alpha, start=start, prox=prox)
        teacher, data = positional_semantic_student.sample(p, 0)
        message = gamp(
            p,
            data,
            initial_weights(p, teacher, np.random.default_rng(0))["Q"][:, 0],
            damping=damping,
            iterations=400,
        )
        assert message.gradient < 1e-6
        problem = Problem([data.idealised(p.sigma)], p.lam)
        _, gradient = problem.gradient(
            {"Q": torch.as_tensor(message.weights)[None, :, None]}
        )
        assert float(torch.linalg.norm(gradient["Q"])) / 200**0.5 == pytest.approx(
            message.gradient, rel=1e-3, abs=1e-12
        )


def test_semantic_students_err_less_at_alpha_c():
    """Sec. 5: where the two minima have the same training loss, the semantic one errs
    less on the same sentences, by a tenth and by four standard errors.
    """
    p = TINY.replace(d=100, alpha=None, n_test=400)
    one, other = (
        train(p.replace(start=k), range(10), alpha=[1.24], store=None, **ALONE)
        for k in ("positional", "semantic")
    )
    assert float(other.train_loss.mean()) == pytest.approx(
        float(one.train_loss.mean()), rel=0.1
    )
    drop = (one.test_mse_half - other.test_mse_half).values / float(
        one.test_mse_half.mean()
    )
    assert drop.mean() > max(0.1, 4 * drop.std(ddof=1) / 10**0.5)


@pytest.mark.parametrize(
    ("p", "start", "coarsest"),
    [
        (Parameters(d=400, alpha=1.0, lam=0.05), (0.3, 1.5, 0.3), 0.025),
        (Parameters(d=300, alpha=1.5, lam=0.1, omega=0.1), (0.6, 2.0, 0.5), 0.06),
    ],
)
def test_message_passing_is_tracked_by_state_evolution(p, start, coarsest):
    """(43)-(62): undamped steps from weights that know nothing of the sentences are
    steps of (7), for all overlaps and the variance. The ridge is strong enough for one
    well; the second step has the Onsager term.
    """
    found = []
    for seed in range(32):
        teacher, data = positional_semantic_student.sample(p, seed)
        noise = np.random.default_rng(1000 + seed).normal(size=p.d)
        frame = np.linalg.qr(np.stack([np.ones(p.d), teacher, noise], 1))[0] * p.d**0.5
        weights = (frame * np.sign(frame[:1] * [1, teacher[0], 1])) @ start
        ends = [gamp(p, data, weights, damping=0.0, iterations=k) for k in (1, 2)]
        found.append(
            [
                (
                    p.sigma**2 * Q @ Q / p.d,
                    Q.mean(),
                    p.sigma**2 * v,
                    p.sigma**2 * Q @ teacher / p.d,
                )
                for Q, v in ((end.weights, end.variance) for end in ends)
            ]
        )
    mean, error = np.mean(found, 0), np.std(found, 0, ddof=1) / len(found) ** 0.5
    along, on_teacher, _ = start
    norm = sum(x**2 for x in start)
    state = State(p.sigma**2 * norm, along, p.sigma**2 / p.lam, p.sigma**2 * on_teacher)
    for k in range(2):
        state = update(p, state, averages(p, state))
        assert (np.abs(mean[k] - state) < 4 * error[k]).all()
    first, second = error / np.abs(mean)
    # Four of these are seen: 2% of the variance; of the overlaps a tenth, of theta in
    # the second case, where little of it is left, a quarter.
    assert first.max() < coarsest and second[2] < 0.005
