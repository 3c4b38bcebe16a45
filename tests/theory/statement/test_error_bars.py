"""Error bars of a theory where users meet them: solutions, times, comparisons, figures,
pages.
"""

import functools
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
from scipy.interpolate import CubicSpline

from simulate.statement import student
from tests.browser import opener
from theory import explore
from theory import onset as command
from theory.call.refusal import ParameterError
from theory.dynamics.optimisers import Optimiser
from theory.models.registry import find
from theory.runtime import plotting
from theory.statement import model, onset
from theory.statement.randomness import minibatches
from verify.compare.emergence import crossed
from verify.trajectories import compare

sys.path.insert(0, str(Path(__file__).parent))
import systems

NOISY = Path(__file__).parents[2] / "verify/statement/noisy.py"
SIZES = dict(N=4, M=4, P=2, eta=0.25, batch_size=2, steps=160, eval_every=4)
FAULTS = {
    "the shift of the curve the other way": ("-bias / slope", "bias / slope"),
    "no correlation with the slope": ("rise / (2 * slope**2)", "0"),
    "the bend the other way": ("- bend *", "+ bend *"),
}


@functools.cache
def stated(kind):
    """A statement, its theory and parameters."""
    made = find(str(NOISY)).statement if kind == "noisy" else systems.retrieval()
    theory = model.theory_of(made)
    return theory, theory.Parameters(**(SIZES if kind == "retrieval" else {}))


def flow(kind):
    """Its flow."""
    theory, p = stated(kind)
    return onset.at_sizes(theory.statement, p).flow


@functools.cache
def trained(kind, many, **more):
    """Students."""
    theory, p = stated(kind)
    return student.train(theory.statement, p.replace(**more), many)


@pytest.mark.parametrize("kind", ["retrieval", "noisy"])
def test_a_solution_has_the_mean_that_a_prediction_has(kind):
    """Of the flow what steps and batches add, of descent what batches add: the same
    mean and spread, and neither is claimed from the same time on.
    """
    theory, p = stated(kind)
    for q in (
        p,
        p.replace(eta=8.0, batch_size=1, steps=30) if kind == "retrieval" else p,
    ):
        told = theory.predict(q.replace(eval_every=1), fluctuations=True)
        solved = flow(kind).solve(q, at=told.t, t=told.t[-1], fluctuations=True)
        assert solved.attrs["trust"] == told.attrs["trust"]
        assert ("claimed before" in solved.attrs["assumptions"]) == np.isfinite(
            told.attrs["trust"]
        )
        plain = flow(kind).solve(q, at=told.t, t=told.t[-1])
        for x in plain:
            one, two = (y[x] + y[f"{x}_bias"] for y in (told, solved))
            np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(
                told[f"{x}_sd"], solved[f"{x}_sd"], rtol=1e-9, atol=1e-12
            )
            np.testing.assert_array_equal(plain[x], solved[x])


def test_a_sweep_says_until_when_it_is_claimed():
    """Of every point what a single call says of it."""
    theory, p = stated("retrieval")
    q = p.replace(eta=8.0, eval_every=1, steps=30)
    for call in (theory.predict, functools.partial(flow("retrieval").solve, until=240)):
        alone = [
            call(q.replace(batch_size=b), fluctuations=True).attrs for b in (1, 64)
        ]
        both = call(q, batch_size=[1, 64], fluctuations=True).attrs
        for name in ("trust", "assumptions"):
            one, two = (of[name] for of in alone)
            assert one != two
            assert both[name] == f"at batch_size = 1: {one}; at batch_size = 64: {two}"
        assert "parameters" not in both


def test_an_optimiser_does_not_move_what_is_held():
    """The weights behind a flow do not know what is held: refused."""
    _, p = stated("retrieval")
    made = flow("retrieval")
    held = made.held(**{made.state[0].name: 0.25})
    assert (held.descend(p, 0.1, 5)[made.state[0].name] == 0.25).all()
    assert made.descend(p, 0.1, 5, optimizer=Optimiser(momentum=0.9)).sizes["t"] == 6
    with pytest.raises(
        ParameterError, match="held does not follow the weights themselves"
    ):
        held.descend(p, 0.1, 5, optimizer=Optimiser(momentum=0.9))


def off(batch_size):
    """How far shift and spread of a time are from those
    of curves that cross a level.
    """
    theory, p = stated("noisy")
    q, gaps = p.replace(eta=0.1, batch_size=batch_size, steps=300), []
    made = onset.at_sizes(theory.statement, q)
    along = minibatches.path(made, q, np.arange(q.steps + 1))
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    for name, level in (("w", 0.8), ("square", 0.8), ("loss", 0.3)):
        t, shift, spread = along.crossing(name, level)
        k = along.names.index(name)

        def beyond(s, z, k=k, level=level):
            value, bias, variance, _ = along.smooth(s)[:, k]
            return value + bias + z * np.sqrt(variance) - level

        found = [scipy.optimize.brentq(beyond, 0.6 * t, 1.6 * t, (z,)) for z in nodes]
        mean = np.average(found, weights=weights)
        deviation = np.sqrt(np.average((found - mean) ** 2, weights=weights))
        gaps.append((abs(mean - t - shift), abs(deviation / spread - 1)))
    return np.array(gaps)


def orders():
    """Powers of the noise in these errors."""
    gaps = np.array([off(b) for b in (256, 512, 1024)])
    return np.log2(gaps[:-1] / gaps[1:])


def test_times_err_by_the_next_order_in_the_noise():
    """Of shift and square of the spread: the second in eta / B."""
    found = orders()
    assert found[..., 0] == pytest.approx(2, abs=0.1)
    assert found[..., 1] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_times_change_the_order(fault, monkeypatch):
    """To the first."""
    inject(fault, monkeypatch)
    assert orders()[..., 0].min() < 1.5


def inject(fault, monkeypatch):
    """Times with a fault."""
    text = inspect.cleandoc("\n" + inspect.getsource(minibatches.Path.crossing))
    old, new = FAULTS[fault]
    assert text.count(old) == 1
    names = dict(vars(minibatches))
    exec(text.replace(old, new), names)
    monkeypatch.setattr(minibatches.Path, "crossing", names["crossing"])


def times(runs, name, level):
    """When students reach a level; curves of equivalent inputs are smooth between
    evaluations.
    """
    curves = CubicSpline(runs.t, runs[name].transpose("t", "seed") - level)
    return np.array([roots[0] for roots in curves.roots(extrapolate=False)])


def shifts():
    """Times of students of retrieval less those of theory, in standard errors."""
    _, p = stated("retrieval")
    runs, levels = trained("retrieval", 500), (1.25, 0.8, 0.25)
    loss = flow("retrieval").observables["loss"]
    events = {f"at_{k}": loss - level for k, level in enumerate(levels)}
    found = flow("retrieval").solve(p, t=35.0, events=events, fluctuations=True)
    for event, level in zip(events, levels, strict=True):
        measured = times(runs, "loss", level)
        assert float(found[f"{event}_sd"]) == 0
        gap = measured.mean() - float(found[event] + found[f"{event}_bias"])
        yield gap / measured.std(ddof=1) * np.sqrt(len(measured))


def test_students_of_retrieval_are_late_by_the_shift():
    """By a fifth of a unit of time, of which chance is two hundredths;
    faults are seen.
    """
    assert max(map(abs, shifts())) < 4


@pytest.mark.parametrize("fault", ["the shift of the curve the other way"])
def test_students_tell_a_fault_of_times(fault, monkeypatch):
    """The shift is an order larger than its error."""
    inject(fault, monkeypatch)
    assert min(map(abs, shifts())) > 10


@functools.cache
def passed(level, **more):
    """When forty thousand students whose inputs differ reach a level."""
    runs = trained("noisy", 40_000, **more)
    return np.array([crossed(row, runs.t.values, level)[0] for row in runs.w.values])


def spreads():
    """Shift of their mean time, in standard errors, and spread, over that of theory, at
    an early and a late level.
    """
    theory, p = stated("noisy")
    more = dict(eta=0.0625, batch_size=4, steps=224, eval_every=4)
    x, levels = flow("noisy").state[0], {"early": 0.2, "late": 1.0}
    events, plain = (
        {n: x - level for n, level in levels.items()},
        theory.predict(p.replace(**more)),
    )
    found = flow("noisy").solve(
        p.replace(**more), t=14.0, events=events, fluctuations=True
    )
    for name, level in levels.items():
        measured = passed(level, **more)
        alone, _ = crossed(plain.w.values, plain.t.values, level)  # as far apart
        gap = measured.mean() - alone - found[f"{name}_bias"].attrs["noise"]
        z = gap / measured.std() * np.sqrt(len(measured))
        yield z, measured.std() / float(found[f"{name}_sd"])


def test_spread_of_times_where_inputs_differ():
    """The shift, which is all of second order in the spread, and the spread to 5%."""
    for z, ratio in spreads():
        assert abs(z) < 4 and ratio == pytest.approx(1, abs=0.05)
    # Measured after every step the late curve turns: its first crossing is early.
    theory, p = stated("noisy")
    event, q = {"late": flow("noisy").state[0] - 1}, p.replace(eta=0.0625, batch_size=4)
    each = flow("noisy").solve(
        q.replace(eval_every=1), t=14.0, events=event, fluctuations=True
    )
    assert np.isnan(each.late_bias) and np.isfinite(each.late_sd)


@pytest.mark.parametrize("fault", list(FAULTS)[1:])
def test_students_tell_faults_of_second_order(fault, monkeypatch):
    """Without one of the terms a mean time is off."""
    inject(fault, monkeypatch)
    assert max(abs(z) for z, _ in spreads()) > 4


def test_onset_and_emergence_times():
    """Shift and spread of every time;
    a delay that does not depend on the batch size.
    """
    theory, p = stated("retrieval")
    p = p.replace(eta=0.5, steps=80)
    found, plain = theory.onset(p, fluctuations=True), theory.onset(p)
    assert (
        found.numbers.items() >= plain.numbers.items() and found.setting["eta"] == p.eta
    )
    half = flow("retrieval").observables["loss"] - np.mean(
        [found.numbers["loss_start"], found.numbers["loss_end"]]
    )
    solved = flow("retrieval").solve(
        p, t=40.0, events={"half": half}, fluctuations=True
    )
    assert found.numbers["t_50_bias"] == pytest.approx(
        float(solved.half_bias), rel=1e-6
    )
    noise = solved.half_bias.attrs["noise"] / float(solved.half)
    assert found.numbers["eta_B_1"] * noise * p.batch_size / p.eta == pytest.approx(
        0.01
    )
    larger = theory.onset(p.replace(batch_size=64), fluctuations=True)
    assert larger.numbers["delay"] == pytest.approx(found.numbers["delay"], rel=1e-9)
    at = theory.emergence_times(p, fluctuations=True, batch_size=[2, 64])
    assert list(theory.emergence_times(p)) == ["t_10", "t_50", "t_90"]
    assert len(at) == 9 and float(at.t_50_bias[0]) == found.numbers["t_50_bias"]
    late = theory.onset(p.replace(batch_size=1, eta=4.0), fluctuations=True)
    assert np.isnan(late.numbers["t_50_bias"]) and "not claimed" in late.table()


def test_comparisons_take_mean_and_spread_of_the_theory():
    """Students on batches of two are not those of descent;
    one student alone is judged.
    """
    theory, p = stated("retrieval")
    runs = trained("retrieval", 500)
    with_errors = compare(
        theory.predict(p, fluctuations=True), runs, label=" on batches"
    )
    assert [c.verdict for c in with_errors.checks] == [
        "agrees"
    ] * 3 and not with_errors.beyond
    assert {
        c.verdict for c in compare(theory.predict(p), runs, label=" without").checks
    } == {"FAIL"}
    theory, p = stated("noisy")
    curve = theory.predict(p, fluctuations=True)
    one = trained("noisy", 3).isel(seed=0)
    for runs in (one, one.expand_dims("seed")):
        (check, *_) = compare(curve, runs, label=" of one").checks
        assert check.within and check.standard_error == pytest.approx(
            float(curve.w_sd[-1]), rel=0.2
        )
        far = curve.assign(w=curve.w + 8 * curve.w_sd)
        (check, *_) = compare(far, runs, label=" of one, off").checks
        assert check.verdict == "FAIL"


def test_figures_draw_the_band(tmp_path, capsys):
    """Mean dotted, deviation as a band; the command of the onset has both."""
    theory, p = stated("noisy")
    _, axis = plotting.figure(1, 1)
    curve = theory.predict(p, fluctuations=True)
    axis.plot(curve.t, curve.w)
    plotting.errors(axis, curve, "w")
    assert len(axis.lines) == 2 and len(axis.collections) == 1
    plotting.errors(axis, theory.predict(p), "w")
    assert len(axis.lines) == 2
    target = tmp_path / "onset.png"
    words = [str(NOISY), "--fluctuations", "--set", "eta=0.05", "--plot", str(target)]
    assert command.main(words) == 0 and target.exists()
    assert "t_50_sd" in capsys.readouterr().out


SCRIPT = """
<pre id="asked"></pre><script>
const seen = () => document.querySelectorAll("path.errors").length;
const begun = seen(), slider = document.getElementById("field-a");
slider.value = Number(slider.value) + 1;
slider.oninput();
document.getElementById("asked").textContent = `${begun} ${seen()}`;
</script>
"""


def test_a_page_draws_the_band_where_its_sliders_start(tmp_path):
    """Of both quantities; none where a slider has moved, or without being asked."""
    opened = opener(tmp_path)
    for words, drawn in ((["--fluctuations"], "2 0"), ([], "0 0")):
        page = tmp_path / "page.html"
        assert explore.main([str(NOISY), *words, "--out", str(page)]) == 0
        page.write_text(page.read_text().replace("</html>", SCRIPT + "</html>"))
        document, said, _ = opened(page)
        assert f'<pre id="asked">{drawn}</pre>' in document and not said


def test_what_has_no_error_bars_is_refused():
    """Flows that are held or written by hand, numbers alone, and other events."""
    theory, p = stated("noisy")
    made = flow("noisy")
    for of, at in ((made.held(w=0.5), p), (made, p.as_dict())):
        with pytest.raises(
            ParameterError, match="fluctuations: of noisy.* are not known"
        ):
            of.solve(at, t=1.0, fluctuations=True)
    with pytest.raises(ParameterError, match="event twice: .* a variable at a level"):
        twice = {"twice": 2 * made.state[0] - 1}
        made.solve(p, t=1.0, events=twice, fluctuations=True)
    other = find("induction_heads").wing("theory")
    for of in (other.onset, other.emergence_times):
        with pytest.raises(ParameterError, match="fluctuations: unknown"):
            of(other.Parameters(), fluctuations=True)


def test_a_run_of_too_many_steps_is_refused():
    """A loss that never falls doubled its run to 1e9,
    of which a list asked for 80 GiB.
    """
    _, p = stated("retrieval")
    with pytest.raises(
        ParameterError, match=r"4e\+08 steps of eta = 0.25.* take a shorter run$"
    ):
        flow("retrieval").solve(p, until=1e8, at=[0, 1e8], fluctuations=True)
