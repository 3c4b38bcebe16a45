"""In-context Markov chains: times of unigrams and bigrams against a flow typed here.

Could see: a wrong rate, balance, clock or end of the integral (each moves a time), and a delay by
the unigrams that is none.
"""

import functools

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from theory.induction_heads import markov
from theory.parameters import ParameterError
from theory.registry import TABLE
from theory.statement import statement


def parts(y, k, m, D, U, rho):
    """Attention of both layers, attention to the right state and to another one, probabilities."""
    c, v, W = y
    a = np.exp(v) / (np.exp(v) + D - 1)
    A = np.exp(a * W) / (np.exp(a * W) + m - 1)
    right, wrong = rho * A + (1 - rho) / m, rho * (1 - A) / (m - 1) + (1 - rho) / m
    weights = np.array([np.exp(c * right), (m - 1) * np.exp(c * wrong), k - m + U])
    return a, A, right, wrong, weights / weights.sum()


def rates(_, y, k, m, D, U, rho):
    """Equations of motion of read-out and both scores from the loss by hand."""
    c, v, W = y
    a, A, right, wrong, p = parts(y, k, m, D, U, rho)
    gain = c * rho * A * (1 - A) * (rho - p[0] + p[1] / (m - 1))
    grown = rho * right + (1 - rho) / m - p[0] * right - p[1] * wrong
    return [grown, gain * W * a * (1 - a) * D / (D - 1), gain * a / (k - 1)]


def times(sizes):
    """When half the probability is on states, and half of the first layer on the previous token."""
    events = [lambda t, y, *s: 0.5 - parts(y, *s)[4][2], lambda t, y, *s: parts(y, *s)[0] - 0.5]
    events[1].terminal = True
    run = solve_ivp(
        rates, (0, 1e5), [0, 0, 0], args=sizes, events=events, method="LSODA", rtol=1e-9, atol=1e-11
    )
    return [float(found[0]) for found in run.t_events]


def parameters(sizes):
    """Of the model, from sizes in the order of `parts`."""
    return markov.Parameters(**dict(zip(("k", "m", "D", "U", "rho"), sizes, strict=True)))


@pytest.mark.parametrize(
    "sizes",
    [
        (16, 4, 32, 1, 0.8),
        (8, 4, 8, 1, 1.0),
        (64, 8, 64, 1, 0.5),
        (24, 5, 128, 20, 0.8),
        (48, 16, 256, 1, 0.3),
        (16, 4, 32, 100, 0.8),
    ],
)
def test_times(sizes):
    """Both within 2% of the flow typed above, and their difference, the plateau."""
    first, second = times(sizes)
    p = parameters(sizes)
    assert markov.emergence_time(p) == pytest.approx(second, rel=0.02)
    if first < second / 2:
        assert markov.unigram_time(p) == pytest.approx(first, rel=0.02)
        assert markov.plateau_length(p) == pytest.approx(second - first, rel=0.02)


def test_unigrams_delay_bigrams():
    """The sooner half the probability is on states, the later the previous token is found, though
    outputs that are never right tell nothing of the chain.
    """
    found = np.array([times((16, 4, 32, U, 0.8)) for U in (1, 10, 100, 1000)])
    assert (np.diff(found[:, 0]) > 0).all() and (np.diff(found[:, 1]) < 0).all()
    assert found[0, 1] > 1.45 * found[-1, 1]
    p = markov.Parameters()
    assert markov.emergence_time(p, U=[1, 10, 100, 1000]) == pytest.approx(found[:, 1], rel=0.005)


def test_balance_along_the_flow():
    """The square of the score of content is that function of the score of position at all times."""
    sizes = (16, 4, 32, 1, 0.8)
    run = solve_ivp(
        rates, (0, 400), [0, 0, 0], args=sizes, t_eval=[50, 150, 200, 400], rtol=1e-10, atol=1e-12
    )
    told = markov.equations()["markov_balance"]
    for _, v, W in run.y.T:
        given = {"k": 16, "D": 32, "delta_v": v}
        assert float(told.evaluate(given)) == pytest.approx(W**2, rel=1e-6)


def leading(name, p):
    """A time of `equations` at what the clock has to show for many lags."""
    e = markov.equations()
    needed = float(e["markov_many_lags"].evaluate(p))
    return float(e[name].evaluate({**p.as_dict(), "tau_bigram": needed}))


def test_many_lags():
    """Long after the unigrams, the closed form is the limit, and so is the other one while they are
    not known: linear in the number of lags, and with its root.
    """
    late = [markov.Parameters(k=10**8, D=D) for D in (100, 10_000)]
    shares = [leading("markov_bigram", p) / markov.emergence_time(p) for p in late]
    # Next order falls nearly as 1/D: 2.6% at D = 100, 0.05% at 10,000.
    assert abs(shares[1] - 1) < 0.002 < abs(shares[0] - 1) < 0.05
    early = [markov.Parameters(k=400, m=8, D=D, U=10**15, rho=1.0) for D in (64, 512)]
    shares = [leading("markov_free", p) / markov.emergence_time(p) for p in early]
    assert abs(shares[1] - 1) < 0.005 < abs(shares[0] - 1) < 0.03
    ratio = leading("markov_delay", late[1]) * leading("markov_free", late[1])
    assert ratio == pytest.approx(leading("markov_bigram", late[1]), rel=1e-12)


@functools.cache
def whole_onset():
    """Of the default parameters."""
    return markov.onset(markov.Parameters())


@pytest.mark.parametrize(
    ("function", "changes", "field"),
    [
        ("emergence_time", dict(m=3), "m"),
        ("emergence_time", dict(k=7), "k"),
        ("emergence_time", dict(D=4), "D"),
        ("emergence_time", dict(k=12, D=256, rho=0.5), "rho"),
        ("plateau_length", dict(U=1000), "D"),
    ],
)
def test_refused(function, changes, field):
    """By name, in one line; the onset leaves the number out."""
    p = markov.Parameters(**changes)
    with pytest.raises(ParameterError, match=f"^{field} = ") as caught:
        getattr(markov, function)(p)
    assert "\n" not in str(caught.value)
    left_out = {"emergence_time": "T_bigram", "plateau_length": "T_unigram"}[function]
    assert left_out in whole_onset().numbers
    assert left_out not in markov.onset(p).numbers


def test_probabilities_are_bounded():
    """By the statement, for students and flow, too."""
    with pytest.raises(ParameterError, match="rho = 1.5"):
        markov.Parameters(rho=1.5)
    with pytest.raises(ParameterError, match="bounds: tau"):
        statement(markov.stated.loss, bounds={"tau": (0, 1)})


def test_where_it_is_refused_bigrams_come_without_the_previous_token():
    """The last refusal but one: attention of the first layer stays below one half."""
    run = solve_ivp(rates, (0, 5000), [0, 0, 0], args=(12, 4, 256, 1, 0.5), method="LSODA")
    a, _, _, _, p = parts(run.y[:, -1], 12, 4, 256, 1, 0.5)
    assert a < 0.45 and p[0] - p[1] / 3 == pytest.approx(0.5, abs=0.03)


def test_onset_of_a_stated_system_is_its_own():
    """Also where its family has a module for one."""
    beside = [m for m in TABLE.values() if m.stated and m.family == "induction_heads"]
    assert len(beside) >= 2
    for model in beside:
        found = model.wing("theory", "onset").onset
        assert found(model.wing("theory").Parameters().replace(steps=20)).numbers["run"] > 0
