"""The model from outside: numbers, printed forms, times of any start, and the package
as a user installs it.
"""

import importlib.metadata
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import sympy as sp
import torch
from linear_attention import gradients, laws, merged, separate
from linear_attention import simulate as student
from linear_attention import statement as S
from linear_attention.theory import Head, Parameters, drops, merged_time, onset

from simulate.training import gradient_flow
from theory.call.refusal import ParameterError
from theory.models import plugins, registry
from verify.compare.emergence import first_crossing

ROOT = Path(__file__).parents[2]
ALONE = dict(progress=False, workers=1, device="cpu")


def test_it_is_installed():
    """By `make setup`, with its entry point: every command has it."""
    found = importlib.metadata.entry_points(group=plugins.GROUP)
    assert "linear_attention" in found.names, "not installed: run make setup"
    assert registry.find("linear_attention.separate").package == "linear_attention"


SERVED = """
from theory import onset
assert onset.main(["linear_attention", "--json"]) == 0
"""


@pytest.mark.parametrize("served", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_user_installs_it(served, tmp_path):
    """``pip install ./examples/linear_attention``: code,
    ledger and entry point arrive.
    """
    source, site = tmp_path / "source", tmp_path / "site"
    clutter = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    shutil.copytree(ROOT / "examples/linear_attention", source, ignore=clutter)
    command = (
        "-m pip install --quiet --no-deps --no-build-isolation --no-index --target"
    )
    subprocess.run(
        [sys.executable, *command.split(), site, source], check=True, timeout=300
    )
    own = {p.relative_to(source) for p in (source / "linear_attention").rglob("*.*")}
    assert {"claims.toml", "evidence.json"} <= {p.name for p in own}
    assert {p for p in own if not (site / p).exists()} == set()
    (found,) = importlib.metadata.distributions(path=[str(site)])
    assert "linear_attention" in found.entry_points.select(group=plugins.GROUP).names
    if not served:  # by its entry point, as every command has it here
        return
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(site), str(ROOT)))}
    done = subprocess.run(
        [sys.executable, "-c", SERVED],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-1500:]
    assert '"T_drop"' in done.stdout


def test_numbers_of_the_drop():
    """White data, D = 4, N = 20, H = 3: the formula, and the flow of all weights."""
    white = Parameters.white()
    for P_0, expected in ((1.5e-6, 3.4700), (1.186e-7, 4.1044)):
        p = white.replace(start=P_0**0.5)
        assert merged.equations()["T_drop"].evaluate(p.values()) == pytest.approx(
            expected, abs=5e-5
        )
    assert laws.drop(p, 0) == pytest.approx(4.105, abs=1e-3)  # to the digits given
    answer = onset(white).numbers
    assert answer["T_drop"] == pytest.approx(
        answer["T_white"], rel=1e-9
    )  # two integrations
    drawn = onset(white).curves()
    assert float(drawn["merged"].t[-1]) == pytest.approx(4 * answer["T_drop"])
    for curve, first in (("merged", "T_drop"), ("separate", "t_1")):
        marks = drawn[curve].attrs["marks"]
        assert marks[0] == first and {n[0] for n in marks} == {first[0], "L"}


@pytest.mark.parametrize("drops", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_numbers_of_the_staircase(drops):
    """Plateaus of four eigenvalues, and the flow of all weights that passes them."""
    p = laws.STAIRS.replace(start=0.03)
    levels = list(onset(p.replace(begin="aligned")).numbers.values())[-5:]
    assert levels == pytest.approx(
        [4, 2.638298, 1.745309, 1.129924, 0.785097], abs=5e-7
    )
    expected = laws.predicted(p, 0, drops)
    passed = laws.between(p, 0, expected)
    assert passed == pytest.approx(levels[1 : drops + 1], rel=2e-3)  # left by 0.03
    times, _ = laws.staircase(p, 0, 1.3 * expected[-1], drops)
    assert times[0] == pytest.approx(expected[0], rel=5e-3)  # next order in the start
    assert times[1:] == pytest.approx(expected[1:], rel=0.03)  # frozen at once


def test_printed_forms():
    """Second moment, white constant,
    loss and force as the matrix formulas have them.
    """
    known, lam = S.equations(), S.lam[S.d]
    assert sp.expand(known["a"].rhs - lam**2 * (1 + 1 / S.N) - lam * S.trace / S.N) == 0
    assert sp.expand(known["c"].rhs - 1 - (1 + S.D) / S.N) == 0
    D = 3
    x, a = (
        sp.Matrix(D, D, lambda i, j, base=base: base[i + 1] if i == j else 0)
        for base in (S.lam, S.a)
    )
    W = sp.Matrix(D, D, lambda i, j: S.W[i + 1, j + 1])
    printed = S.trace - 2 * (W.T * x**2).trace() + (W.T * a * W * x).trace()
    assert sp.expand(known["loss"].rhs.subs(S.D, D).doit() - printed) == 0
    force = sp.Matrix(
        D, D, lambda i, j: known["force"].rhs.subs({S.k: i + 1, S.l: j + 1})
    )
    assert sp.expand(force - (x**2 - a * W * x)) == sp.zeros(D)
    assert sp.expand(known["w_best"].rhs - S.lam[S.d] / S.a[S.d]) == 0
    speed = merged.equations()["merged_ds_dt"].rhs.subs(S.kappa, 0).subs(S.scale, S.s_0)
    assert sp.simplify(speed - 2 * sp.sqrt(S.D) * S.s_0 * (1 - S.c * S.s_0)) == 0


def test_fixed_points_of_white_data():
    """Zero, and the minimum."""
    found = merged.white_flow().fixed_points()
    assert {point[S.scale] for point in found} == {0, 1 / S.c}


def test_white_data_follow_the_logistic():
    """All of its course, to saturation: the flow of all weights, a logistic typed here,
    the equation.
    """
    p, at = laws.ALIGNED, np.linspace(0, 8, 33)
    begun = student.start(p, 0)
    path = [begun, *laws.follow(p, begun, at[-1], at=at[1:])[0]]
    found = np.array([float(student.matrix(w)[0, 0]) for w in path])
    D, c = 4, 1 + 5 / 20
    typed = 1 / (c + (1 / found[0] - c) * np.exp(-2 * D**0.5 * at))
    assert found[0] < 1e-2 / c and c * found[-1] > 1 - 1e-6
    assert found == pytest.approx(
        typed, rel=1e-6
    )  # the integrator, amplified by the growth
    known = p.values() | {"t": at}
    assert merged.equations()["merged_s"].evaluate(known) == pytest.approx(
        typed, rel=1e-12
    )


def test_merged_fixed_points_are_zero_or_the_minimum():
    """Where all rates vanish, from anywhere: two heads, any Lambda. A rate v_h G of U_h
    leaves no other: G = 0 is the minimum, and W = 0 where no head has a value.
    """
    x, N, H = np.array([1.3, 0.6]), 3, 2
    D = x.size
    a = x**2 * (1 + 1 / N) + x * x.sum() / N
    best = np.diag(x / a)

    def parts(y):
        v, U = y[:H], y[H:].reshape(H, D, D)
        return v, U, np.einsum("h,hkl->kl", v, U)

    def rates(y):
        v, U, W = parts(y)
        G = np.diag(x**2) - a[:, None] * W * x
        return np.concatenate(
            [np.einsum("hkl,kl->h", U, G), np.multiply.outer(v, G).ravel()]
        )

    ends, random = [], np.random.default_rng(0)
    for size in np.geomspace(0.1, 3, 12):
        y = scipy.optimize.least_squares(
            rates, size * random.normal(size=H + H * D * D)
        ).x
        if (
            np.abs(rates(y)).max() < 1e-6
        ):  # elsewhere the search stopped at no fixed point
            W = parts(y)[2]
            ends.append([np.abs(W).max() < 1e-2, np.abs(W - best).max() < 1e-4])
    assert len(ends) > 6 and np.any(ends, 1).all() and np.any(ends, 0).all()
    p = Parameters(spectrum="1.3,0.6", N=N, H=H)  # the rates are those of autograd
    y = random.normal(size=H + H * D * D)
    v, U, _ = parts(y)
    begun = {"v": torch.as_tensor(v), "U": torch.as_tensor(U)}
    moved = gradient_flow.rates(lambda w: student.population(p)(w) / 2, begun)[1]
    found = np.concatenate([moved[n].numpy().ravel() for n in ("v", "U")])
    assert found == pytest.approx(rates(y), rel=1e-12)


def test_every_subset_of_directions_is_a_fixed_point():
    """Separate: one head for each learned direction, all rates of the attention over
    all prompts vanish; losses of all 8 differ.
    """
    p = Parameters(spectrum="1.2,0.9,0.4", N=1, H=3, attention="separate")
    x = p.eigenvalues
    best = 1 / (x * (1 + 1 / p.N) + x.sum() / p.N)
    losses = []
    for chosen in itertools.product((False, True), repeat=3):
        u = np.where(chosen, best, 0) ** (1 / 3)
        rows = np.diag(u)[:, None]
        at = gradients.point("separate", p, {"v": u, "K": rows, "Q": rows})
        assert max(float(np.abs(w).max()) for w in at.rates.values()) < 1e-12
        left = x.sum() - (x**2 * best)[list(chosen)].sum()
        assert 2 * at.loss == pytest.approx(left, rel=1e-12)
        losses.append(left)
        if any(chosen):  # nearby they move
            off = gradients.point("separate", p, {"v": 1.1 * u, "K": rows, "Q": rows})
            assert max(float(np.abs(w).max()) for w in off.rates.values()) > 1e-3
    assert np.diff(np.sort(losses)).min() > 1e-3


def test_merged_heads_grow_along_the_square_alone():
    """Early, every head: 100-fold and more along Lambda^2, and nothing in any other
    direction.
    """
    p = Parameters(start=1e-6)
    square, begun = torch.as_tensor(p.eigenvalues**2).diag(), student.start(p, 1)
    (last,), _ = laws.follow(p, begun, 8 / p.values()["gamma"])

    def parts(weights):
        along = (weights["U"] * square).sum((1, 2)) / square.square().sum()
        return along, weights["U"] - along[:, None, None] * square

    (before, rest), (after, still) = parts(begun), parts(last)
    assert (after.abs() > 100 * before.abs()).all()
    assert (still - rest).abs().max() < 1e-4 * after.abs().min()  # W of 1e-5 by then


def test_merged_loss_drops_once():
    """Over all of its course the loss falls, fastest at one time; the smaller the
    start, the more of the time before it is a plateau.
    """
    waits = []
    for start in (1e-3, 1e-5):
        p = Parameters(start=start)
        begun, drop = student.start(p, 0), laws.drop(p, 0)
        assert merged_time(p) == pytest.approx(
            drop, rel=1e-2
        )  # of all heads; order of the start
        at = np.linspace(0, 2.5 * drop, 60)
        path = laws.follow(p, begun, at[-1], at=at[1:])[0]
        loss = np.array(laws.losses(p, [begun, *path]))
        pace = -np.diff(loss)
        assert (pace > 0).all()
        assert ((pace[1:-1] > pace[:-2]) & (pace[1:-1] > pace[2:])).sum() == 1
        waits.append(np.interp(0.1, 1 - loss / loss[0], at) / drop)
    assert 0.6 < waits[0] < waits[1]


def test_odd_moments_vanish():
    """What pairs a single w: the reason why some weights stay at zero. Fourth moments
    do not.
    """
    x = gradients.point("merged", Parameters(spectrum="1.4,0.6", N=2, H=1))
    w, inputs, share = x.input("w"), x.input("x"), x.data.chances
    assert np.abs(share @ (w * inputs[:, 0] * inputs[:, 1])).max() < 1e-15
    assert share @ inputs[:, 0, 0] ** 4 == pytest.approx(3 * 1.4**2, rel=1e-13)


@pytest.mark.parametrize("value", [0.01, -0.01])
def test_a_head_that_turns_around(value):
    """Its value goes through zero on the way: in tau, against the ODE of all its
    numbers.
    """
    x = np.array([1.6, 0.8])
    k, q = np.array([[0.02, 0.01]]), np.array([[-0.021, 0.012]]) * np.sign(value)
    blown_up, after = Head(value, (k + q) / 2, (k - q) / 2).course(x)
    shorter = 0.7 * blown_up
    begun = np.concatenate([[value], k.ravel(), q.ravel()])

    def rates(_, y):
        v, a, b = y[0], y[1:3], y[3:]
        return np.concatenate([[(a * b * x**2).sum()], v * x**2 * b, v * x**2 * a])

    done = scipy.integrate.solve_ivp(rates, (0, shorter), begun, rtol=1e-11, atol=1e-14)
    later = after(shorter)
    assert later.v == pytest.approx(done.y[0, -1], rel=1e-6)
    assert np.sign(later.v) == -np.sign(value)
    blown = scipy.integrate.solve_ivp(
        rates, (0, 2 * blown_up), begun, rtol=1e-10, atol=1e-14, events=_large
    )
    left = 1 / (x[0] ** 2 * LARGE)  # to infinity, from k = q = v
    assert float(blown.t_events[0][0]) + left == pytest.approx(blown_up, rel=1e-5)


LARGE = 1e4


def _large(_, y):
    return abs(y[0]) - LARGE


_large.terminal = True


@pytest.mark.slow
def test_a_step_delays_generic_heads(tmp_path):
    """The first drop of descent on all prompts, later than that of the flow by what a
    step adds.
    """
    eta, seeds = 0.02, range(4)
    p = laws.STAIRS.replace(start=0.05, eta=eta, steps=600, eval_every=1)
    runs = student.train(p, seeds, store=tmp_path, **ALONE)
    times = first_crossing(runs.learned.isel(direction=0), 0.5).values
    for seed, time in zip(seeds, times, strict=True):
        (flowing,), _ = laws.staircase(p, seed, 12, 1)
        shift = laws.predicted(p, seed, 1, eta) - laws.predicted(p, seed, 1)
        # The start's shape adds a number of order one to the logarithm of the paces.
        assert time - flowing == pytest.approx(float(shift[0]), abs=eta / 2)
        assert shift > 2 * eta / 2


def test_embedding_is_the_reduced_model():
    """The attention with zeros elsewhere predicts beta^T W x_q; back again."""
    for attention in ("merged", "separate"):
        p = Parameters(attention=attention, R=2, start=0.5, batch_size=8)
        small = student.start(p, 3)
        whole = student.embedded(small, 4)
        X, _ = student.sample(p, 0, 0)
        beta = (X[:, :-1, :-1] * X[:, -1:, :-1]).mean(2)
        reduced = torch.einsum(
            "bi,ij,bj->b", beta, student.matrix(small), X[:, :-1, -1]
        )
        torch.testing.assert_close(student.attention(whole, X), reduced)
        back = student.extracted(whole)
        assert all((back[n] == w).all() for n, w in small.items())


@pytest.mark.parametrize("attention", ["merged", "separate"])
def test_population_students_follow_the_equations(attention, tmp_path):
    """A step moves every weight by its derived rate;
    tokens move others only by noise.
    """
    p = Parameters(
        attention=attention, R=2 if attention == "separate" else 1, start=0.3
    )
    one = student.Student(p, 0, torch.device("cpu"), torch.float64)
    begun, W = dict(one.weights), student.matrix(one.weights).numpy()
    known = p.values() | {n: w.numpy() for n, w in begun.items()} | {"W": W}
    force, size = S.equations()["force"], range(1, 5)
    G = [[force.evaluate(known | {"k": k, "l": l}) for l in size] for k in size]
    one.step(0)
    table = merged.equations() | separate.equations()
    for name, letters in {"v": "g", "U": "gkl", "K": "gsi", "Q": "gsj"}.items():
        for place, before in np.ndenumerate(begun.get(name, torch.zeros(0)).numpy()):
            at = (
                known
                | {"G": np.array(G)}
                | {z: n + 1 for z, n in zip(letters, place, strict=True)}
            )
            rate = table[f"{attention}_d{name}_dt"].evaluate(at)
            moved = float(one.weights[name][place]) - before
            assert moved == pytest.approx(
                p.eta * rate, rel=1e-9, abs=1e-14
            )  # rounding of W
    drawn = p.replace(student="tokens", steps=6, eval_every=3, batch_size=64)
    runs = student.train(drawn, store=tmp_path, **ALONE)
    assert runs.others[0, 0] == 0 and 0 < runs.others[0, -1] < 0.05


def test_wrong_parameters_are_refused():
    """In one line."""
    for changes, said in (
        ({"spectrum": "1,x"}, "spectrum = '1,x'"),
        ({"spectrum": "0.5,1"}, "do not rise"),
        ({"spectrum": "1,-1"}, "positive"),
        ({"attention": "separate", "begin": "aligned", "H": 5}, "H = 5"),
        ({"student": "other"}, "student"),
    ):
        with pytest.raises(ParameterError, match=said) as caught:
            Parameters(**changes)
        assert "\n" not in str(caught.value)
    with pytest.raises(ParameterError, match="iB of memory"):
        student.train(Parameters(student="tokens", batch_size=10**12), **ALONE)


def test_answers_are_json():
    """Numbers of the onset."""
    assert json.dumps(onset(Parameters()).numbers)


def test_a_start_beyond_the_drop_is_refused():
    """Large weights, of which no small-weight law holds, in one line; smaller ones have
    times.
    """
    rng = np.random.default_rng(0)
    v, K, Q = rng.normal(size=4), rng.normal(size=(4, 1, 3)), rng.normal(size=(4, 1, 3))
    left, one = np.array([3.0, 2.0, 1.0]), np.ones(3)
    assert len([*drops(v / 10, K / 10, Q / 10, left, one)]) == 3
    with pytest.raises(
        ParameterError, match="start beyond the drop; take them smaller"
    ):
        [*drops(9 * v, 9 * K, 9 * Q, left, one)]
