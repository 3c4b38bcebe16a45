"""Emergence times: the recorded table to all its digits, orders, small N, and the onset
command.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from theory import induction_heads as ih
from theory import onset as command
from theory.call.refusal import ParameterError
from theory.induction_heads import emergence
from theory.induction_heads.onset import FLOW, SLOW, curves, onset

TABLE = {  # N: T_gamma, T_beta, T_alpha, T_drop as on record
    2: ("1.3765223", "5.6000834", "10.149746", "9.980868"),
    4: ("2.7676405", "18.833988", "31.741943", "41.427933"),
    16: ("11.089114", "258.79575", "450.660258", "625.755716"),
    64: ("44.361109", "3982.571895", "7054.634284", "10101.11138"),
    1024: ("709.78", "1007285.708", "1795074.708", "2622141.936"),
    10**4: ("6931.4718", "95992945.75", "171131702.29", "250570207.0"),
    10**6: ("693147.18", "9.59851228e11", "1.711249466e12", "2.506612130e12"),
}
NAMES = ("T_gamma", "T_beta", "T_alpha", "T_drop")


def last_digit(text: str) -> float:
    """One unit in the last printed place."""
    mantissa, _, exponent = text.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


@pytest.mark.parametrize(
    "N",
    [
        n if n in (2, 64, 10**6) else pytest.param(n, marks=pytest.mark.slow)
        for n in TABLE
    ],
)
def test_table(N):
    """All digits on record."""
    found = emergence.times(N)
    for name, text in zip(NAMES, TABLE[N], strict=True):
        assert found[name] == pytest.approx(float(text), abs=0.51 * last_digit(text)), (
            name
        )


RESIDUALS = {
    2: (0.1804, 1.9403),
    4: (0.3158, 1.6331),
    16: (0.4316, 1.6650),
    64: (0.4549, 1.6971),
    1024: (0.4624, 1.7092),
    10**4: (0.46282, 1.70996),
    10**6: (0.46287, 1.7101),
}


@pytest.mark.parametrize("N", RESIDUALS)
def test_what_is_left_after_two_terms(N):
    """Residuals of T_beta and T_alpha after their N^2 and N terms, down to the O(1) of
    1.7e12.
    """
    path, eq = emergence.Path(N), ih.equations()
    terms = {
        name: [
            float(eq[name].rhs.expand().coeff(eq[name].rhs.free_symbols.pop(), k))
            for k in (2, 1)
        ]
        for name in ("T_beta", "T_alpha")
    }
    beta = emergence.beta_of(0.5, N)
    left = [N * (path.excess(0.5) - terms["T_beta"][1])]
    # 2 N^2 (I(beta) - I(1)) without cancellation: the integrand over a short interval,
    # Gauss-Legendre.
    nodes, weights = np.polynomial.legendre.leggauss(20)
    width = beta - 1
    gap = (
        2
        * N**2
        * width
        / 2
        * float(weights @ np.exp(-((1 + width * (nodes + 1) / 2) ** 2) / 2))
    )
    left.append(gap + N * (path.excess(beta) - terms["T_alpha"][1]))
    # Four digits are on record; at N = 10^6 rounding of N^2 terms is 1e-4 in T_alpha.
    np.testing.assert_allclose(left, RESIDUALS[N], atol=5.1e-5 if N < 10**6 else 3e-4)


def test_flow_agrees_with_the_special_solver():
    """Plain integration of the three ODEs in t, events included."""
    from theory.induction_heads.symbols import alpha, beta, gamma

    p = ih.Parameters.emergence()
    events = {"T_gamma": gamma - 0.5, "T_beta": beta - 0.5, "T_alpha": alpha - 0.5}
    curve = ih.flow().solve(p, events=events, t=800.0)
    found = emergence.times(16)
    for name in events:
        assert float(curve[name]) == pytest.approx(
            found[name], rel=1e-9
        )  # ODE tolerances
    # Relative to its largest term; the integrator's own tolerance is 1e-12 per step.
    assert float(np.abs(curve.conserved).max() / (15 * curve.beta**2).max()) < 1e-9
    special = emergence.Path(16).curve(800.0)
    same = ih.flow().solve(p, at=special.t.values, t=800.0)
    for name in ("alpha", "beta", "gamma", "loss"):
        # In the drop the curves rise by 1 per unit of time, and dense output is good to
        # 1e-8 in time.
        np.testing.assert_allclose(special[name], same[name], atol=1e-6, err_msg=name)


QUICK = (2, 3, 4, 5, 8, 12, 33, 64)


@pytest.mark.parametrize(
    "N",
    [
        n if n in QUICK else pytest.param(n, marks=pytest.mark.slow)
        for n in range(2, 65)
    ],
)
def test_order(N):
    """T_gamma < T_beta < T_alpha for every N >= 2;
    the loss drops last from N = 3 on.
    """
    path = emergence.Path(N)
    assert path.of_gamma() < path.of_beta() < path.of_alpha()
    if N <= 12:
        assert (path.of_loss() > path.of_alpha()) == (N >= 3)
    assert (
        emergence.beta_of(0.5, N) > 1
    )  # the exact reason: beta is past 1 when alpha reaches 1/2


def test_one_pair():
    """N = 1: alpha has no gradient and never emerges."""
    found = emergence.times(1)
    np.testing.assert_allclose(
        [found[n] for n in ("T_gamma", "T_beta", "T_drop")],
        [0.6750563, 1.9351749, 1.0033618],
        atol=5.1e-8,
    )
    assert found["T_alpha"] == np.inf
    result = onset(ih.Parameters.emergence(N=1))
    assert len(result.notes) == 1 and "never" in result.notes[0]


@pytest.mark.parametrize(
    "N", [*(pytest.param(n, marks=pytest.mark.slow) for n in (10**3, 10**5)), 10**7]
)
def test_drop_formula(N):
    """|T_drop - formula| / N < 0.02; its correction is of order N ln N, so that powers
    of 1/N would miss it.
    """
    eq = ih.equations()
    from theory.induction_heads import drop

    beta_c = float(eq["beta_c"].evaluate({"N": float(N)}))
    predicted = eq["T_drop"].evaluate(
        {"N": float(N), "beta_c": beta_c, "kappa": drop.blow_up()["kappa"]}
    )
    assert abs(emergence.Path(N).of_loss() - predicted) / N < 0.02


def test_late_layer_constant():
    """(T_gamma - N ln 2) N -> -0.0198604."""
    for N in (64, 1024):
        assert (emergence.Path(N).of_gamma() - N * np.log(2)) * N == pytest.approx(
            -0.0198604, abs=3 / N**2 + 1e-6
        )


EMERGENCE = ["induction_heads", "--preset", "emergence"]


def test_command_never(capsys):
    """Null in JSON, notes on stderr, flat keys."""
    code = command.main([*EMERGENCE, "--set", "N=1", "--json"])
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (
        code == 0
        and found["N"] == 1
        and found["T_alpha"] is None
        and "Infinity" not in out
    )
    assert (
        all(line.startswith("note: ") for line in err.splitlines())
        and "T_alpha never" in err
    )
    assert [found[n] for n in ("T_gamma", "T_beta", "T_drop")] == pytest.approx(
        [0.6750563, 1.9351749, 1.0033618], abs=5.1e-8
    )


def test_command_in_process(capsys):
    """N = 64 on record, N = 16 of the preset, words in the table; the default is of all
    weights.
    """
    assert command.main([*EMERGENCE, "--set", "N=64", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [found[n] for n in ("N", *NAMES)] == pytest.approx(
        [64, 44.361109, 3982.571895, 7054.634284, 10101.11138], abs=5.1e-6
    )
    assert command.main(EMERGENCE) == 0
    assert "258.7957" in capsys.readouterr().out
    assert command.main([*EMERGENCE, "--set", "N=1", "--quiet"]) == 0
    assert "never emerges" in capsys.readouterr().out
    assert command.main(["induction_heads"]) == 0
    assert (
        "flow of all weights" in (said := capsys.readouterr()).out and "1/D" in said.err
    )


@pytest.mark.parametrize(
    "wrong", ["N=0", "N=2.5", "N=1e9", "N=x", "D=7", "mask=loose", "n=3"]
)
def test_wrong_input(wrong):
    """One line that names the field."""
    with pytest.raises(ParameterError) as caught:
        command.main(["induction_heads", "--set", wrong])
    assert wrong.split("=")[0] in str(caught.value) and "\n" not in str(caught.value)


def test_orthonormal_data_needs_room():
    """D >= 2N only where the data are orthonormal."""
    ih.Parameters(N=16, D=16)
    with pytest.raises(
        ParameterError, match="D = 16: must be >= 2 N = 32 for orthonormal"
    ):
        ih.Parameters(N=16, D=16, data="orthonormal")


@pytest.mark.parametrize(
    ("trained", "loss", "power"),
    [
        ("all", "mean", 2),
        ("nineteen", "mean", 2),
        ("projected", "sum", 1),
        ("all", "sum", 1),
        ("three", "mean", 1),
        ("three", "sum", 0),
    ],
)
def test_time_per_step(trained, loss, power):
    """t = eta steps D^(-[matrices] - [mean loss])."""
    p = ih.Parameters(D=8, eta=0.5, trained=trained, loss=loss)
    assert p.time_per_step == 0.5 / 8**power
    assert p.run_to(3.0).steps == round(3.0 / p.time_per_step)


def test_the_slow_manifold_is_drawn_along_the_flow():
    """At the same beta, to second order in x = 1/(2N)."""
    found = curves(50, 7500.0)
    flow, slow = found[FLOW], found[SLOW]
    rising = slice(None, int(flow.beta.values.argmax()))
    inner = slow.where((slow.beta > 0.2) & (slow.beta < 1), drop=True)
    for name in ("alpha", "gamma"):
        along = np.interp(inner.beta, flow.beta[rising], flow[name][rising])
        assert np.abs(along - inner[name]).max() < (1 / 100) ** 2
