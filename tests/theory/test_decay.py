"""Flow with norms of keys and queries under weight decay, its fixed points, and critical decays."""

import numpy as np
import pytest
import scipy.integrate
from later import Later

from theory.numeric import function
from theory.parameters import ParameterError
from theory.state_tracking import Parameters, decay, emergence_times, flow, norms, onset
from theory.state_tracking import decay_thresholds as thresholds
from theory.state_tracking import late_states as late
from theory.state_tracking.attention import rotation
from theory.state_tracking.decay import of_attention, widest
from theory.state_tracking.symbols import A, N, d_g

P = Parameters.demo()
EQ = Later(norms.steady_equations)


def test_flow_ends_where_fixed_points_are():
    """From scratch below the first critical decay, from a learned start between both, and lost
    above the second. Blocks alike have the gap L/(L-1), 1.7% beyond the largest one here, by
    which S differs, as 1 - A.
    """
    assert widest(P) == pytest.approx(P.L / (P.L - 1), rel=2e-2)
    low, high = (float(thresholds(P)[x]) for x in ("decay_unlearned", "decay_lost"))
    own = norms.flow()

    def last(rate, **start):
        p = P.replace(weight_decay=rate, **start)
        time = 80 / (p.eta * rate * p.d_g * p.N)
        return own.solve(p, alpha=time, at=[time]).isel(alpha=0), late(p)

    high_start = dict(A_0=0.95, R_0=0.6)
    for rate, state, start in (
        (0.8 * low, "learned", {}),
        (1.2 * low, "unlearned", {}),
        (0.9 * high, "learned", high_start),
        (1.05 * high, "unlearned", high_start),
    ):
        found, ends = last(rate, **start)
        for x, wide in {"A": 0.01, "R": 0.01, "S": 0.03}.items():
            there = float(ends[x].sel(state=state))
            assert float(found[x]) == pytest.approx(there, rel=wide, abs=1e-6), (rate, x)


def test_fixed_points_stand_still():
    """Rates of the flow vanish there, at its own gap; a wrong norm or overlap moves."""
    p = P.replace(weight_decay=0.005)
    ends = late(p).sel(state="learned")
    own = norms.flow()
    state = {x.name: float(ends[x.name]) for x in own.state if x.name in ends} | {"zeta_now": 0.0}
    made = norms.blocks_alike() | {x: r for x, r in own.rhs.items() if x.name in "RS"}

    def rates(**moved):
        numbers = p.values() | state | moved | {"gap": widest(p)}
        spelled = {x.name: own._spell(r) for x, r in made.items()}
        return {
            n: float(r.subs({s: numbers[s.name] for s in r.free_symbols}))
            for n, r in spelled.items()
        }

    assert max(abs(v) for v in rates().values()) < 1e-9
    for x in "PRS":
        assert max(abs(v) for v in rates(**{x: 1.02 * state[x]}).values()) > 1e-5, x


def test_stability_changes_at_the_critical_decay():
    """Small keys and queries grow beside A = 1/L exactly below it, also at other sizes."""
    for p in (P, P.replace(L=3, d_g=5), P.replace(d_h=32, rope="plain")):
        edge = float(thresholds(p).decay_unlearned)
        below, above = (
            float(late(p.replace(weight_decay=f * edge)).decay_growth) for f in (0.999, 1.001)
        )
        assert below > 0 > above
        rate = 2 * p.eta * edge * p.d_g * p.N
        assert below - above == pytest.approx(0.004 * rate, rel=0.1)  # of 1 / decay^2, nearly


def test_largest_decay_of_a_learned_state():
    """The decay that attention stays at is largest there, and for large systems that of small
    margins, at A = 2/3.
    """
    edges = thresholds(P)
    at, most = float(edges.A_lost), float(edges.decay_lost)
    assert of_attention(P, at) == pytest.approx(most, rel=1e-12)
    assert max(of_attention(P, at + d) for d in (-1e-3, 1e-3)) < most
    big = P.replace(N=2000, d_g=2000)
    numbers = big.values() | {"gap": widest(big)}
    numbers |= {"kappa_w": EQ["kappa_w"].evaluate(numbers)}
    edges = thresholds(big)
    assert EQ["decay_lost_large"].evaluate(numbers) == pytest.approx(
        float(edges.decay_lost), rel=1e-3
    )
    assert float(edges.A_lost) == pytest.approx(2 / 3, rel=1e-3)
    sizes = thresholds(big, d_h=[32, 512]).decay_lost.values
    assert sizes[0] / sizes[1] == pytest.approx(2, rel=0.02)  # the fourth root of d_h


def test_learned_state_is_that_of_the_older_closed_form():
    """At A near 1 the generalised Lambert function with A = 1."""
    p = P.replace(weight_decay=1e-4)
    ends = late(p).sel(state="learned")
    assert float(ends.R) == pytest.approx(float(decay.late_overlap(p)), rel=1e-3)
    W = (
        p.N
        * float(ends.R - ends.S)
        / float(ends.A)
        * (ends.A**2 + (1 - ends.A**2) / p.d_g)
        / (p.N - 1)
    )
    weight = float(ends.A**2 + (1 - ends.A**2) / p.d_g)
    assert float(W * np.exp(W) + (p.N - 1) * W) == pytest.approx(weight / (1e-4 * p.d_g), rel=1e-6)


def test_blocks_move_as_their_weights_do():
    """Score and norms of one block against its four weights, integrated; the difference of norms
    decays exponentially whatever pushes.
    """
    rng = np.random.default_rng(0)
    start, angle, mu = rng.normal(size=4), -7 * 0.4, 0.3
    turn = np.array(rotation(angle).tolist(), float)

    def pushed(t):
        return np.sin(3 * t)

    def of_weights(t, y):
        q, k = y[:2], y[2:]
        return np.concatenate([pushed(t) * turn @ k - mu * q, pushed(t) * turn.T @ q - mu * k])

    eq = norms.equations()
    right = [eq[name].rhs for name in ("dU_dalpha", "dW_Q2_dalpha", "dW_K2_dalpha")]
    known = [
        norms.U[norms.n],
        norms.W_Q2[norms.n],
        norms.W_K2[norms.n],
        norms.push,
        norms.loss_rate,
    ]
    rates = function(right, known)
    summed = lambda y: [y[:2] @ turn @ y[2:], y[:2] @ y[:2], y[2:] @ y[2:]]  # noqa: E731
    options = dict(rtol=1e-10, atol=1e-12)
    end = scipy.integrate.solve_ivp(of_weights, (0, 2), start, **options).y[:, -1]
    ours = scipy.integrate.solve_ivp(
        lambda t, y: np.array(rates(*y, pushed(t), mu), float), (0, 2), summed(start), **options
    ).y[:, -1]
    np.testing.assert_allclose(ours, summed(end), rtol=1e-7)
    gap = ours[1] - ours[2]
    assert gap == pytest.approx((summed(start)[1] - summed(start)[2]) * np.exp(-4 * mu), rel=1e-7)


def test_without_decay_the_flow_is_the_ansatz_with_growing_norms():
    """At the start attention moves as with the constant c_omega; later faster, as norms grow."""
    plain = flow("iid", "ansatz").solve(P, alpha=4)
    grown = norms.flow().solve(P, alpha=4)
    early = slice(0, 0.3)
    np.testing.assert_allclose(grown.A.sel(alpha=early), plain.A.sel(alpha=early), rtol=1e-3)
    assert float(grown.A[-1]) > float(plain.A[-1])
    score = (P.L - 1) / P.L * np.sqrt(P.d_h) * np.log((P.L - 1) * grown.A / (1 - grown.A))
    kept = grown.P**2 - score**2  # both squares of one hyperbola
    np.testing.assert_allclose(kept, kept[0], rtol=1e-6)


def test_onset_answers_for_decay():
    """Emergence from scratch below the critical decay only, and what is refused."""
    p = P.replace(weight_decay=0.002)
    found = onset(p)
    assert np.isfinite(found.numbers["alpha_half"])
    curve = norms.flow().solve(p, alpha=10, events={"half": A - 0.5})
    assert found.numbers["alpha_half"] == pytest.approx(float(curve.half), rel=1e-6)
    dead = onset(P.replace(weight_decay=0.005))
    assert np.isnan(dead.numbers["alpha_half"]) and dead.numbers["A_learned"] > 0.9
    assert dead.curves().keys() == {"flow", "decay"} and dead.notes
    edges, ends = thresholds(P), late(P.replace(weight_decay=0.005))
    for name in ("decay_unlearned", "decay_lost"):
        assert dead.numbers[name] == float(edges[name])
    for name in "ARSP":
        assert dead.numbers[f"{name}_learned"] == float(ends[name].sel(state="learned"))
    branch = dead.curves()["decay"]
    assert not branch.stable[0] and branch.stable[-1]
    # The stable branch ends at the largest decay of a learned state.
    assert float(branch.weight_decay.where(~branch.stable).max()) <= edges.decay_lost
    assert float(branch.A.where(branch.stable).min()) >= float(branch.A.where(~branch.stable).max())
    learned = P.replace(weight_decay=0.002, A_0=0.6, R_0=0.5)
    assert onset(learned).numbers["alpha_half"] == 0
    lost = onset(P.replace(weight_decay=2 * float(edges.decay_lost)))
    for name in "ARSP":
        assert np.isnan(lost.numbers[f"{name}_learned"])
        assert lost.absent[f"{name}_learned"] == "no learned state"
    for changed, words in (
        (dict(optimizer="adamw"), "optimizer = 'adamw': must be sgd"),
        (dict(L=1), "L = 1: must be at least 2"),
    ):
        with pytest.raises(ParameterError, match=words):
            onset(p.replace(**changed))
    with pytest.raises(ParameterError, match="weight_decay = 0.0: must be from 1e-9 to 1"):
        late(P)
    with pytest.raises(ParameterError, match="weight_decay"):
        emergence_times(p)


@pytest.mark.filterwarnings("error")
def test_weak_decay():
    """At the weakest decay of the scope, where probabilities of large margins underflow, both fixed
    points balance loss and decay, without a warning.
    """
    p = Parameters(N=4, L=4, d_g=4, d_h=32, weight_decay=1e-9)
    balance = function(norms.balance(), (A, norms.steady, N, d_g))
    for state in ("unlearned", "learned"):
        end = late(p).sel(state=state)
        per_A = (end.R - end.S) / end.A
        assert balance(end.A, per_A, p.N, p.d_g) == pytest.approx(p.weight_decay, rel=1e-8)
