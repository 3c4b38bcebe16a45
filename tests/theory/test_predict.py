"""`predict`: theory of single students, with the same interface for all models."""

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from theory import associative_memory as am
from theory import induction_heads as ih
from theory import positional_semantic as ps
from theory import state_tracking as st
from theory.associative_memory import factual_recall, k_hop
from theory.call import scope
from theory.call.refusal import ParameterError
from theory.dynamics import prediction
from theory.state_tracking.single_students import fixed_disorder, levels
from theory.state_tracking.single_students.cavity import Cavity
from theory.state_tracking.single_students.fixed_disorder import FixedDisorder
from theory.state_tracking.single_students.integrate import solve
from theory.state_tracking.single_students.kernels import accuracy_kernels
from theory.state_tracking.single_students.levels import LEVELS
from theory.state_tracking.single_students.optimised_disorder import system
from theory.state_tracking.single_students.predict import ACCURACIES, ERRORS
from theory.state_tracking.single_students.realisation import Realisation, Start
from verify.compare import same_students

P = st.Parameters(N=6, L=4, d_g=5, d_h=8, n_train=64, epochs=60, eval_every=20)


def started(seeds=3):
    """A dataset with what theory starts from, as students leave it,
    and nothing else.
    """
    start = Start.drawn(P, seeds, np.random.default_rng(3))
    epochs = np.array([0, 7, 60])
    names = {
        "R": start.R,
        "S": start.S,
        "zeta": start.zeta,
        "M_variance_correct": start.variance_right,
        "M_variance_other": start.variance_wrong,
    }
    data = {n: (("seed", "alpha"), np.outer(v, [1, 9, 9])) for n, v in names.items()}
    weights = {"W_Q_start": start.W_Q, "W_K_start": start.W_K}
    data |= {n: (("seed", "head"), v) for n, v in weights.items()}
    coords = {"alpha": P.alpha(epochs), "seed": np.arange(10, 10 + seeds)}
    return start, xr.Dataset(data, coords, {"parameters": P.as_json()})


def test_every_seed_is_followed_from_its_own_start():
    """What `per_seed` gives from the same starts, under the runs' seeds and times; one
    seed alone has the same curve.
    """
    start, runs = started()
    found = st.predict(P, runs, level="cavity")
    alone = solve(Cavity(P, start), [0, 7, 60])
    for name in alone.data_vars:
        # The layout of arrays in memory decides the order of sums.
        np.testing.assert_allclose(found[name], alone[name], rtol=1e-12, atol=1e-15)
    assert (
        found.seed.values.tolist() == [10, 11, 12] and found.attrs["kind"] == "theory"
    )
    one = st.predict(P, runs.sel(seed=11), level="cavity")
    assert one.A.dims == ("alpha",)
    np.testing.assert_allclose(one.A, found.A.sel(seed=11), rtol=1e-12)
    quick = st.predict(P, runs, level="cavity", accuracies=False)
    assert set(found) - set(quick) == {"accuracy", "rollout_accuracy"}
    xr.testing.assert_allclose(quick, found[list(quick)], rtol=1e-12)


def test_every_level_answers_and_is_documented():
    """By its name: curves of the runs, what it lacks, whom it describes, a row in the
    docs; drawn starts where it integrates a system.
    """
    page = (
        Path(__file__).parents[2] / "docs/models/state_tracking_beyond.md"
    ).read_text()
    start, runs = started(2)
    begun = {
        n: (("seed", "alpha"), np.outer(v, [1, 1, 1]))
        for n, v in vars(start).items()
        if n in "RS"
    }
    runs = runs.assign(begun | {"A": xr.full_like(runs.R, 1 / P.L)})
    known = Realisation.drawn(P, start, np.random.default_rng(8))
    for name, level in LEVELS.items():
        assert f"| `{name}` | {level.title} |" in page
        assert st.applies(P, runs, level=name) == []
        given = {"given": known} if level.known else {}
        found = st.predict(P, runs, level=name, **given)
        assert {"A", "R", "S", "loss", *ACCURACIES} <= set(found) and found.attrs[
            "level"
        ] == name
        assert found.sizes["seed"] == 2 and found.sizes["alpha"] == 3
        assert found.attrs["accuracies"] == level.accuracies(P)
        assert np.isfinite(found.A).all() and np.isfinite(found.accuracy).all()
        spread = np.ptp(found.A.isel(alpha=-1).values)
        assert (
            spread == 0 if name == "flow" else spread > 0
        )  # one curve, or one per seed
        for lacking in level.needs:
            with pytest.raises(ParameterError, match=f"variable {lacking} is missing"):
                st.predict(P, runs.drop_vars(lacking), level=name, **given)
        if level.system is None:
            with pytest.raises(ParameterError, match=f"level = '{name}': follows runs"):
                st.predict(P, seeds=2, level=name)
    with pytest.raises(ParameterError, match="must be one of flow, own_start, cavity"):
        st.applies(P, level="best")


def test_a_training_set_may_be_given():
    """What `per_seed` gives with it; what does not fit is refused, as are seeds that
    draw other weights than the runs began with.
    """
    start, runs = started()
    given = Realisation.drawn(P, start, np.random.default_rng(8))
    found = st.predict(P, runs, level="fixed_disorder", given=given)
    alone = solve(system(P, start, given), [0, 7, 60])
    np.testing.assert_allclose(found.A, alone.A, rtol=1e-12)
    with pytest.raises(ParameterError, match="other teachers or other weights"):
        st.predict(P, runs, level="fixed_disorder")
    with pytest.raises(ParameterError, match="level = 'fixed_disorder'"):
        st.predict(P, runs, level="cavity", given=given)
    few = Realisation.drawn(P, started(2)[0], np.random.default_rng(8))
    with pytest.raises(ParameterError, match="2 students, must be 3 as the runs"):
        st.predict(P, runs, level="fixed_disorder", given=few)


@pytest.mark.parametrize("changes", [{}, {"momentum": 0.5}], ids=str)
def test_accuracies_of_fixed_disorder_may_be_left_out(changes, monkeypatch):
    """They are not computed then, and all else is the same, at every optimiser and
    reward.
    """
    start, runs = started()
    p = P.replace(**changes)
    given = Realisation.drawn(p, start, np.random.default_rng(8))
    runs.attrs.clear()  # which say how they were trained
    whole = st.predict(p, runs, level="fixed_disorder", given=given)
    monkeypatch.setattr(accuracy_kernels, "answers", None)
    quick = st.predict(p, runs, level="fixed_disorder", given=given, accuracies=False)
    assert set(whole) - set(quick) == {*ACCURACIES, *ERRORS}
    xr.testing.assert_equal(quick, whole[list(quick)])


SMALL = st.Parameters(N=6, L=4, d_g=6, d_h=8, n_train=64, n_test=32, eval_every=60)


@pytest.fixture(scope="module")
def students(tmp_path_factory):
    """Two students of drawn teachers, and two of the group Z_6 acting on itself."""
    from simulate.state_tracking import train
    from theory.state_tracking.model.groups import table

    store = {"store": tmp_path_factory.mktemp("runs"), "progress": False}
    own = {}, {"permutations": table("Z_6")}
    return [train(SMALL, range(3, 5), alpha=5.0, **more, **store) for more in own]


def test_a_realisation_is_counted_from_the_runs(students):
    """Their own teachers, weights and training sets follow from the seeds: A to a per
    cent of single-precision descent; with those of the other seed it is off by ten
    times as much.
    """
    for runs in students:
        found = st.predict(SMALL, runs, level="fixed_disorder")
        assert "own realisation" in found.attrs["reference"]
        off = float(np.abs(found.A - runs.A).max())
        crossed = Realisation.of(SMALL, runs)
        crossed = dataclasses.replace(
            crossed, share=crossed.share[::-1], pairs=crossed.pairs[::-1]
        )
        swapped = solve(
            FixedDisorder(SMALL, Start.measured(runs), crossed), runs.epoch.values
        )
        assert (
            off < 0.03
            and float(np.abs(swapped.A.values - runs.A.values).max()) > 2 * off
        )


def test_a_realisation_of_others_is_refused(students):
    """Other seeds, another training set, other teachers or weights, one line each."""
    drawn, cyclic = students
    for given, words in [
        (
            Realisation.of_seeds(SMALL, [5, 6]),
            r"of seeds \[5, 6\], must be of \[3, 4\]",
        ),
        (
            Realisation.of_seeds(SMALL.replace(data_draw=1), [3, 4]),
            "data_draw = 1, must be 0",
        ),
        (Realisation.of(SMALL, cyclic), "other teachers or other weights"),
    ]:
        with pytest.raises(ParameterError, match=words):
            st.predict(SMALL, drawn, level="fixed_disorder", given=given)
        assert st.applies(SMALL, drawn, level="fixed_disorder") == []
        with pytest.raises(ParameterError, match=words):
            st.applies(SMALL, drawn, given, "fixed_disorder")
    with pytest.raises(
        ParameterError, match="permutations = given by the user: must be drawn"
    ):
        st.predict(SMALL, cyclic, level="cavity")
    with pytest.raises(
        ParameterError, match="data_draw = 1: the runs were trained with 0"
    ):
        st.predict(SMALL.replace(data_draw=1), drawn, level="fixed_disorder")


def test_students_may_come_with_their_dimensions_in_any_order(students):
    """As after a comparison, or from a store of many runs."""
    runs, p = students[0], SMALL
    turned = runs.transpose(*list(runs.sizes)[::-1])
    assert turned.W_Q_start.dims != runs.W_Q_start.dims
    for level in ("cavity", "fixed_disorder"):
        xr.testing.assert_equal(
            st.predict(p, turned, level=level), st.predict(p, runs, level=level)
        )


def test_a_start_that_is_not_finite_is_refused(students):
    """Naming the variable."""
    runs = students[0].copy(deep=True)
    runs.S[1, 0] = np.nan
    with pytest.raises(ParameterError, match="runs: S at time 0 must be finite"):
        st.predict(SMALL, runs)


@pytest.mark.parametrize("level", ["fixed_disorder", "cavity"])
@pytest.mark.parametrize(
    ("edited", "words"),
    [
        (
            lambda runs: runs.assign(W_Q_start=1.1 * runs.W_Q_start),
            "W_Q_start at time 0 is not",
        ),
        (
            lambda runs: runs.assign(W_K_start=runs.W_K_start[:, ::-1]),
            "W_K_start at time 0",
        ),
        (
            lambda runs: runs.assign(zeta=runs.zeta + 1e-3),
            "zeta at time 0 is not what seeds",
        ),
        (
            lambda runs: runs.assign_coords(seed=[4, 3]),
            "at time 0 is not what seeds .4, 3. draw",
        ),
        (
            lambda runs: runs.assign_coords(alpha=1.01 * runs.alpha),
            "at epoch 60: must be 1.66667",
        ),
        (
            lambda runs: runs.assign_coords(alpha=runs.alpha * 1.00001),
            "at epoch 60: must be 1.66",
        ),
    ],
)
def test_edited_runs_are_refused(students, level, edited, words):
    """Weights that their seeds do not draw,
    or times that are not those of their steps.
    """
    with pytest.raises(ParameterError, match=words):
        st.predict(SMALL, edited(students[0]), level=level, accuracies=False)


@pytest.mark.parametrize("name", ["A", "R", "S", "loss", *ACCURACIES])
def test_each_quantity_says_how_far_it_is_off(students, name):
    """From the students, wherever along the run; beyond a bound a warning names it and
    the seed, and no other.
    """
    runs, worst = students[0].copy(deep=True), 1
    for x in ("A", "R", "S", "loss", *ACCURACIES):
        runs[x][:] = st.predict(SMALL, students[0])[x].transpose(*runs[x].dims)
    assert "note" not in st.predict(SMALL, runs).attrs
    off = 2.0 if name in ACCURACIES else 0.5 * max(float(abs(runs[name]).max()), 1)
    runs[name][{"seed": worst, "alpha": 3}] -= off
    with pytest.warns(scope.FarOff, match=f"{name} by up to {off:.2g} .seed 4."):
        found = st.predict(SMALL, runs)
    assert found[name].off_by == pytest.approx(off)
    for other in {"A", "R", "S", "loss", *ACCURACIES} - {name}:
        assert found[other].off_by < 1e-6 and f" {other} by" not in found.note
    assert "loss" in runs and "off_by" not in found.rollout_accuracy_se.attrs
    drawn = st.predict(SMALL, seeds=2)
    assert not any("off_by" in x.attrs for x in drawn.data_vars.values())


def test_sampling_alone_is_no_deviation(students):
    """The test set of these students has 32 words: rollouts scatter by a tenth."""
    with warnings.catch_warnings(action="error"):
        found = st.predict(SMALL, students[0])
    assert found.rollout_accuracy.off_by > 0.05


def test_accuracies_do_not_jump_where_words_are_too_many_to_list(monkeypatch):
    """One road beside the other at the same sizes, of the same students: within four
    standard errors; each result says its road.
    """
    start, runs = started()
    given = Realisation.drawn(P, start, np.random.default_rng(8))
    runs.attrs.clear()
    seen = []
    for inputs in (fixed_disorder.INPUTS, 2000):
        monkeypatch.setattr(fixed_disorder, "INPUTS", inputs)
        monkeypatch.setattr(levels, "INPUTS", inputs)
        seen.append(st.predict(P, runs, given=given))
    listed, sampled = seen
    assert listed.accuracies == "on all 625 words from all states"
    assert sampled.accuracies.startswith("on 2000 sampled words")
    for name, error in zip(ACCURACIES, ERRORS, strict=True):
        gap = abs(listed[name] - sampled[name])
        assert (listed[error] == 0).all() and (sampled[error] > 0).all()
        assert (gap <= 4 * sampled[error]).all() and (gap > 0).any()


# Students that the paper's flow and the cavity equations do not describe: time of A =
# 1/2 of students with seeds 1 and 2 (never: nan), and how far A may be off along the
# whole curve.
BEYOND_CAVITY = {
    "few sequences": (
        dict(N=14, L=7, d_g=18, d_h=40, n_train=20),
        (np.nan, 2.498),
        0.03,
    ),
    "two actions": (
        dict(N=14, L=7, d_g=2, d_h=40, n_train=3000),
        (8.676, 14.384),
        0.02,
    ),
}


# Few sequences are followed in test_trained, too.
@pytest.mark.parametrize(
    "case", [pytest.param("few sequences", marks=pytest.mark.slow), "two actions"]
)
def test_the_default_follows_students_beyond_the_cavity_equations(case, tmp_path):
    """With few sequences or few actions the default stays within a few per cent of
    every student, where the cavity equations are off by more than ten times that.
    """
    from simulate.state_tracking import train

    changes, times, most = BEYOND_CAVITY[case]
    p = st.Parameters(**changes, n_test=32, eval_every=20)
    runs = train(
        p,
        range(1, 1 + len(times)),
        alpha=18.0,
        store=tmp_path,
        progress=False,
        workers=1,
    )
    ours = st.predict(p, runs, accuracies=False)
    assert float(abs(ours.A - runs.A).max()) < most
    level = st.predict(p, runs, level="cavity", accuracies=False)
    assert float(abs(level.A - runs.A).max()) > 5 * most
    for student, curve, time in zip(runs.A, ours.A, times, strict=True):
        assert (
            bool((student > 0.5).any())
            == bool((curve > 0.5).any())
            == np.isfinite(time)
        )


def test_starts_may_be_drawn():
    """Their mean and band; the same starts again; the mean start of attention is 1/L to
    second order.
    """
    found = st.predict(P, seeds=400, alpha=0.1, level="cavity", accuracies=False)
    assert found.A.dims == ("draw", "alpha") and found.sizes["draw"] == 400
    again = st.predict(P, seeds=400, alpha=0.1, level="cavity", accuracies=False)
    xr.testing.assert_identical(found, again)
    first = found.isel(alpha=0)
    for name, mean in (("A", 1 / P.L), ("R", 0.0), ("S", 0.0)):
        z = (
            (float(first[name].mean()) - mean)
            / float(first[name].std("draw"))
            * np.sqrt(400)
        )
        assert abs(z) < 4, name
    assert float(found.alpha[-1]) == pytest.approx(
        0.1, abs=0.5 / (P.d_g * P.N)
    )  # whole epochs


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda runs: st.predict(P), "needs the runs to follow, or seeds"),
        (
            lambda runs: st.predict(P, runs, seeds=2),
            "needs the runs to follow, or seeds",
        ),
        (lambda runs: st.predict(P, seeds=0), "seeds = 0: must be"),
        (lambda runs: st.predict(P, runs, level="best"), "level = 'best'"),
        (
            lambda runs: st.predict(P.replace(eta=0.1), runs),
            "eta = 0.1: the runs were trained with",
        ),
        (
            lambda runs: st.predict(P.replace(optimizer="adam"), runs, level="cavity"),
            "optimizer = 'adam'",
        ),
        (
            lambda runs: st.predict(P, runs.drop_vars("zeta")),
            "variable zeta is missing$",
        ),
        (
            lambda runs: st.predict(P, runs.drop_vars("zeta").drop_attrs()),
            "is missing; for curves alone take verify.trajectories.compare",
        ),
        (lambda runs: st.predict(P, runs.isel(alpha=[1, 2])), "alpha must rise from 0"),
    ],
)
def test_what_cannot_be_followed_is_named(call, message):
    """One line."""
    with pytest.raises(ParameterError, match=message):
        call(started()[1])


def test_factual_recall_follows_the_steps_of_the_students():
    """Descent at the evaluations; the batch does not matter, the learning rate does."""
    p = am.Parameters(S=6, R=3, D=2, steps=20)
    steps = np.array([0, 3, 20])
    runs = xr.Dataset(coords={"t": p.eta * steps, "step": ("t", steps)})
    runs.attrs["parameters"] = p.replace(batch_size=7).as_json()
    found, whole = am.predict(p, runs), factual_recall.flow().descend(p, p.eta, 20)
    np.testing.assert_array_equal(found.loss, whole.loss.isel(t=steps))
    assert "accuracy" not in found and "probability" in found
    with pytest.raises(ParameterError, match="eta = .*: the runs were trained"):
        am.predict(p.replace(eta=2 * p.eta), runs)


def test_k_hops_change_stage_when_the_curriculum_does():
    """Stages end at `curriculum_times`; overlaps are continuous there, and those of
    later hops wait at their start.
    """
    p = k_hop.Parameters(N=4, k=3, m_0=0.2, curriculum=True)
    ends = k_hop.curriculum_times(p, "softmax")
    around = np.ravel([[e * (1 - 1e-9), e * (1 + 1e-9)] for e in ends[:2]])
    runs = xr.Dataset(coords={"t": [0.0, *around, 2 * ends[-1]]})
    found = k_hop.predict(p, runs)
    assert found.hops.values.tolist() == [1, 1, 2, 2, 3, 3]
    overlap = found.overlap.transpose("t", "hop").values
    np.testing.assert_allclose(overlap[1::2][:2], overlap[2::2][:2], atol=1e-6)
    assert overlap[0].tolist() == [0.2, 0.2, 0.2] and overlap[1, 0] == pytest.approx(
        0.9, abs=1e-6
    )
    assert overlap[1, 1:].tolist() == [0.2, 0.2]
    p = p.replace(curriculum=False, k=1, eta=0.5, steps=30)
    assert k_hop.predict(p).t[-1] == 15 and k_hop.predict(p, t=2.0).t[-1] == 2


def test_informed_descents_take_the_local_minimiser():
    """The branch of the start, whatever ``prox`` says, over the alphas of the runs."""
    p = ps.Parameters(start="semantic", order=6, prox="global")
    runs = xr.Dataset(coords={"alpha": [2.0, 3.0]}, attrs={"parameters": p.as_json()})
    found = ps.predict(p, runs)
    local = ps.curve(p.replace(prox="local"), "semantic", [2.0, 3.0])
    np.testing.assert_array_equal(found.theta, local.theta)
    with pytest.raises(ParameterError, match="start = 'random'"):
        ps.predict(p.replace(start="random"), runs)
    with pytest.raises(ParameterError, match="sigma = 0.4: the runs were trained"):
        ps.predict(p.replace(sigma=0.4), runs)
    # Whether students stay in their well depends on their steps, so that these must be
    # known.
    far = runs.assign_attrs(parameters=p.replace(optimizer="adam", eta=1.0).as_json())
    with pytest.raises(
        ParameterError, match="optimizer = gd: the runs were trained with adam"
    ):
        ps.predict(p, far)


HEADS = ih.Parameters(
    N=2, D=4, data="orthonormal", query="last", steps=24, eval_every=4
)
RECALL = factual_recall.Parameters(steps=24, eval_every=4)
FAR = {
    "state_tracking": lambda p, **more: st.predict(p, seeds=2, **more),
    "cavity": lambda p, **more: st.predict(p, seeds=2, level="cavity", **more),
    "fixed_disorder": lambda p, **more: st.predict(
        p, seeds=2, level="fixed_disorder", **more
    ),
    "induction_heads": ih.predict,
    "factual_recall": factual_recall.predict,
}
OF = {"induction_heads": HEADS, "factual_recall": RECALL}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", FAR)
def test_what_takes_too_long_or_diverges_is_one_line(name):
    """Lengths of 10^18, in steps and in time; learning rates of 10^300."""
    p, follow = OF.get(name, P), FAR[name]
    steps, time = ("steps", "t") if name in OF else ("epochs", "alpha")
    with pytest.raises(
        ParameterError, match=rf"^{steps} = 1e\+18: a predicted curve has at most"
    ):
        follow(p.replace(**{steps: 10**18}))
    with pytest.raises(ParameterError, match=rf"^(({time}|{steps}) = [\d.]+e\+18: )"):
        follow(p, **{time: 1e18})
    if name == "factual_recall":  # probabilities saturate: such a step is followed
        assert np.isfinite(follow(p.replace(eta=1e300)).to_array()).all()
        return
    for eta in (1e18, 1e300):
        with pytest.raises(
            ParameterError, match=r"^eta = 1e\+\d+: the descent diverges"
        ):
            follow(p.replace(eta=eta))


def test_evaluations_are_all_multiples_and_the_last_step():
    """As a loop over steps measures."""
    for last in range(13):
        for every in range(1, 15):
            steps = [k for k in range(last + 1) if k % every == 0 or k == last]
            assert prediction.evaluations(last, every).tolist() == steps, (last, every)


def test_a_curve_of_other_students_says_which():
    """The curve's value first, then that of the runs."""
    runs = started()[1].assign_attrs(model="state_tracking")
    curve = st.flow().solve(P.replace(N=7), alpha=1.0)
    with pytest.raises(
        ParameterError, match=r"^N = 7: of the curve; .* were trained with 6$"
    ):
        same_students.check_curve(curve, runs)
