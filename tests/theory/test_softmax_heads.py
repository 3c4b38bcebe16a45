"""Retrieval and factual recall by softmax heads: times and balance against flows typed here.

Could see: a wrong rate, a law that is not that of the flow, an integral with a wrong end or
integrand (each is compared with equations of motion that share no code with the statements).
"""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from theory.associative_memory import retrieval, softmax_recall
from theory.parameters import ParameterError

SOLVE = dict(rtol=1e-9, atol=1e-11, method="LSODA")


def heads(N, M, P):
    """Score K and read-out V of retrieval: equations of motion from its loss by hand."""

    def rates(_, y):
        K, V = y
        A = np.exp(K) / (np.exp(K) + P - 1)
        B = (1 - A) / (P - 1)
        weights = np.array([np.exp(A * V), (P - 1) * np.exp(B * V), M - P])
        right, shown, _ = weights / weights.sum()
        score = A * (1 - A) * V * (1 - right + shown / (P - 1)) / (N - 1)
        return [score, (A * (1 - right) - B * shown) / (M - 1)]

    def found(_, y):
        return y[0] - np.log(P - 1)

    found.terminal = True
    return rates, found


@pytest.mark.parametrize("sizes", [(32, 32, 4), (16, 64, 8), (300, 100, 5), (40, 40, 30)])
def test_time_of_retrieval(sizes):
    """Within 2% of the flow typed above, and always before it: shown values only gain."""
    p = retrieval.Parameters(**dict(zip("NMP", sizes, strict=True)))
    rates, found = heads(*sizes)
    exact = solve_ivp(rates, (0, 1e6), [0, 0], events=found, **SOLVE).t_events[0][0]
    assert 0.98 * exact < retrieval.emergence_time(p) < exact


def test_time_of_many_pairs():
    """The closed form is approached from below as P grows among many more values."""
    many = retrieval.equations()["retrieval_many_pairs"]
    shares = []
    for P in (100, 1000, 10_000):
        p = retrieval.Parameters(N=10**9, M=10**9, P=P)
        shares.append(float(many.evaluate(p)) / retrieval.emergence_time(p))
    # The next term is 2 sqrt(2 ln P) / (P sqrt(pi/2)): 5% at P = 100, 0.07% at 10,000.
    assert shares[0] < shares[1] < shares[2] < 1 and shares[0] > 0.93 and shares[2] > 0.999


def test_zero_weights_are_left_unless_every_value_is_shown():
    """With M = P they are a saddle; the time was a number before."""
    for M, still in ((4, True), (5, False)):
        assert (heads(32, M, 4)[0](0, (0.0, 0.0))[1] == 0) == still
        flow = retrieval.flows()["retrieval"]
        end = flow.solve(retrieval.Parameters(M=M), at=[0.0, 100.0], t=100.0)
        assert (abs(float(end.delta_V[-1])) < 1e-12) == still


def test_plateau_of_many_keys():
    """At 10^6 keys the loss is slowest, on the clock's logarithm, near ln P; at 1,000 keys nowhere
    after half of it has gone.
    """
    flow = retrieval.flows()["retrieval"]
    found = []
    for N in (1000, 10**6):
        p, at = retrieval.Parameters(N=N, M=8, P=4), np.geomspace(1, 4 * N, 600)
        loss = flow.solve(p, at=[0.0, *at], t=4 * N).loss.values[1:]
        speed = -np.gradient(loss, np.log(at))
        slowest = np.flatnonzero((np.diff(speed[:-1]) < 0) & (np.diff(speed[1:]) > 0)) + 1
        found.append(loss[slowest][(loss[slowest] > 0.3) & (speed[slowest] < 0.5 * speed.max())])
    level = float(retrieval.equations()["retrieval_plateau"].evaluate({"P": 4}))
    assert not found[0].size and found[1] == pytest.approx([level], rel=0.03)


def test_balance_along_the_flow():
    """Constant if every value is shown; otherwise it falls by what is not shown."""
    equations = retrieval.equations()
    for N, M, P in [(7, 5, 5), (9, 6, 3)]:
        rates, _ = heads(N, M, P)
        K, V = 0.4, 1.3
        dK, dV = rates(0, (K, V))
        h = 1e-6
        at = [
            float(
                equations["retrieval_balance"].evaluate(
                    {"N": N, "M": M, "P": P, "delta_K": K + s * dK, "delta_V": V + s * dV}
                )
            )
            for s in (-h, h)
        ]
        A = np.exp(K) / (np.exp(K) + P - 1)
        B = (1 - A) / (P - 1)
        unseen = (M - P) / (M - P + np.exp(A * V) + (P - 1) * np.exp(B * V))
        told = equations["retrieval_balance_rate"].evaluate(
            {"delta_V": V, "P": P, "u_unseen": unseen}
        )
        assert (at[1] - at[0]) / (2 * h) == pytest.approx(float(told), abs=1e-8)


def recalled(S, R, D, T, n):
    """Scores of relation, subject, end token and noise, and two read-outs, by hand."""

    def attention(y):
        weights = np.exp(y[:4]) * [1, 1, 1, T - 3]
        return weights / weights.sum()

    def rates(_, y):
        a = attention(y)
        r, s = y[4:]
        left = np.array(
            [(R - 1) / (np.exp(a[0] * r) + R - 1), (D - 1) / (np.exp(a[1] * s) + D - 1)]
        )
        gain = np.array([r * left[0], s * left[1], 0, 0])
        scores = a * (gain - a @ gain) / [R, S, 1, n]
        read = a[:2] * left * [1 / (D * (R - 1)), D / (R * S * (D - 1))]
        return [*scores, *read]

    def found(_, y):
        return attention(y)[0] - 0.5

    found.terminal = True
    return rates, found


@pytest.mark.parametrize("sizes", [(16, 4, 4, 16, 16), (8, 4, 4, 8, 16), (64, 8, 8, 64, 32)])
def test_time_of_the_relation(sizes):
    """Within 2% of the flow typed above."""
    names = ("S", "R", "D", "T", "n")
    p = softmax_recall.Parameters(**dict(zip(names, sizes, strict=True)))
    rates, found = recalled(*sizes)
    exact = solve_ivp(rates, (0, 1e6), np.zeros(6), events=found, **SOLVE).t_events[0][0]
    assert softmax_recall.emergence_time(p) == pytest.approx(exact, rel=0.02)


def test_the_subject_waits():
    """Attention to the subject falls while the relation holds it, and passes 1/2 late."""
    rates, _ = recalled(8, 4, 4, 8, 16)
    run = solve_ivp(rates, (0, 1000), np.zeros(6), t_eval=[0, 300, 1000], **SOLVE)
    weights = np.exp(run.y[:4]) * [[1], [1], [1], [5]]
    relation, subject = (weights / weights.sum(0))[:2]
    assert relation[1] > 0.9 and subject[1] < subject[0] / 2 and subject[2] > 0.5
    flow = softmax_recall.flows()["softmax_recall"]
    p = softmax_recall.Parameters(S=8, R=4, D=4, T=8, n=16)
    told = flow.solve(p, at=run.t, t=1000)
    assert told.a_s.values == pytest.approx(subject, rel=1e-6)


def test_plateau_of_the_relation():
    """The loss of the flow where the relation's read-out is large and the subject's zero."""
    p = softmax_recall.Parameters(S=20, R=3, D=5)
    level = softmax_recall.onset(p).numbers["plateau"]
    flow = softmax_recall.flow()
    at = dict.fromkeys(flow.state, 0.0) | {softmax_recall.V: 200.0 * p.T}
    there = flow.observables["loss"].subs(at)
    there = there.subs({x: getattr(p, x.name) for x in there.free_symbols})
    assert level == pytest.approx(float(there), rel=1e-12)  # e^-200 is left of the relation


def test_time_of_many_tokens():
    """The closed form is the limit."""
    p = softmax_recall.Parameters(S=64, R=4, D=4, n=32, T=10**6)
    many = softmax_recall.equations()["softmax_recall_many_tokens"]
    assert float(many.evaluate(p)) == pytest.approx(softmax_recall.emergence_time(p), rel=1e-4)


@pytest.mark.parametrize(
    ("model", "sizes", "field"),
    [
        (retrieval, dict(P=2), "P"),
        (retrieval, dict(M=16, P=16), "M"),
        (retrieval, dict(N=2048, M=64), "N"),
        (softmax_recall, dict(T=5), "T"),
        (softmax_recall, dict(n=2), "n"),
        (softmax_recall, dict(S=4), "S"),
    ],
)
def test_refused_where_the_formula_does_not_hold(model, sizes, field):
    """By name, in one line; the onset leaves the number out and says why, and gives the flow's
    times; without any, `emergence_times` is refused.
    """
    p = model.Parameters().replace(**sizes)
    with pytest.raises(ParameterError, match=f"^{field} = ") as caught:
        model.emergence_time(p)
    assert "\n" not in str(caught.value)
    onset = model.onset(p)
    found = onset.numbers
    assert not {"t_half", "t_relation"} & found.keys()
    assert any(f"{field} = " in note for note in onset.notes)
    assert found["t_50"] > 0 if field != "M" else "t_50" not in found  # it never starts
    if field == "M":
        with pytest.raises(ParameterError, match="nothing emerges; no t_half: M = 16"):
            model.emergence_times(p)
        grid = model.emergence_times(p, M=[16, 32])
        assert np.isnan(grid.sel(M=16).to_array()).all() and np.isfinite(grid.sel(M=32).t_half)
        assert grid.attrs["absent"].startswith("nothing emerges; no t_half: M = 16")
