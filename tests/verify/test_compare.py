"""Theory curve against an ensemble: accepts an ensemble drawn about it, rejects one
that is off by 5%.
"""

import numpy as np
import pytest
import xarray as xr

from theory import state_tracking as st
from theory.call.refusal import ParameterError
from theory.call.scope import BeyondScope
from theory.state_tracking import Parameters
from verify import trajectories
from verify.checks.check import Band
from verify.compare import tables
from verify.compare.curves import compare
from verify.compare.emergence import first_crossing
from verify.compare.times import emergence_times
from verify.state_tracking import ensemble as bands

P = Parameters.demo()


def ensemble(
    curve: xr.Dataset, factor: float, seeds: int = 64, spread: float = 0.02
) -> xr.Dataset:
    """Runs that scatter about ``factor`` times the curve by a few per cent, one offset
    per seed.
    """
    rng = np.random.default_rng(5)
    scatter = xr.DataArray(
        rng.normal(0, spread, seeds), dims="seed", coords={"seed": np.arange(seeds)}
    )
    runs = curve[["A", "R", "S"]] * (factor + scatter)
    runs.attrs["model"] = "state_tracking"
    return runs


def test_accepts_truth_and_refuses_five_per_cent():
    """Standard error 0.25%, so 5% off is 20 of them."""
    curve = st.flow().solve(P, alpha=12)
    runs = ensemble(curve.isel(alpha=slice(0, None, 20)), 1.0)
    good = trajectories.compare(curve, runs)
    assert {c.verdict for c in good.checks} == {"agrees"}
    assert good.inside() == {"A": 1.0, "R": 1.0, "S": 1.0}
    bad = trajectories.compare(
        curve, ensemble(curve.isel(alpha=slice(0, None, 20)), 1.05)
    )
    assert {c.verdict for c in bad.checks} == {"FAIL"}
    note = (
        "the theory is not exact (closure): bands={...} allows what it is known to be"
        " off by"
    )
    assert [x[: len(note)] for x in bad.notes] == [note] and not good.notes


def test_a_band_alone_is_no_mapping():
    """It is told what to write."""
    curve = st.flow().solve(P, alpha=2.0)
    band = Band(-0.1, 0.1, "no order: a test")
    with pytest.raises(ParameterError, match="must be a mapping of names to Bands"):
        trajectories.compare(curve, ensemble(curve, 1.0), bands=band)


def test_what_one_seed_fails_at_two_at_least_say():
    """Two seeds cannot tell their scatter, so that what one seed fails at is undecided:
    it is quoted, and ten seeds fail again.
    """
    times = np.linspace(0, 5, 11)
    curve = xr.Dataset({"x": ("t", 1 - np.exp(-times))}, {"t": times})
    noise = np.random.default_rng(0).normal(0, 0.002, (10, 11))
    runs = xr.Dataset(
        {"x": (("seed", "t"), 1.06 * curve.x.values + noise)}, {"t": times}
    )
    found = [trajectories.compare(curve, runs.isel(seed=slice(n))) for n in (1, 2, 10)]
    assert [c.verdict for x in found for c in x.checks] == ["FAIL", "undecided", "FAIL"]
    assert "off by +6%, too few samples to decide" in " ".join(str(found[1]).split())


def test_few_seeds_are_undecided():
    """Four seeds that scatter by 10% could not have seen 5%,
    and are not said to agree.
    """
    curve = st.flow().solve(P, alpha=12)
    found = trajectories.compare(
        curve, ensemble(curve.isel(alpha=slice(0, None, 20)), 1.0, seeds=4, spread=0.1)
    )
    assert {c.verdict for c in found.checks} == {"undecided"}


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.3, "limit"), (1.0, "FAIL"), (1.5, "FAIL"), (0.7, "FAIL")]
)
def test_bands_hold_on_both_sides(factor, verdict):
    """A theory known to be 20 to 40% below: of the largest size of its curve, of which
    the deviation is a constant share.
    """
    curve = st.flow().solve(P, alpha=12)
    runs = ensemble(curve.isel(alpha=slice(0, None, 20)), factor)
    found = trajectories.compare(
        curve, runs, dict.fromkeys("ARS", Band(0.2, 0.4, "mean field")), " by Eq. (15)"
    )
    assert {c.verdict for c in found.checks} == {verdict}
    assert {c.id for c in found.checks} == {f"{x}_by_Eq_15" for x in "ARS"}
    text = " ".join(str(found).split())
    assert f"3 {verdict}" in text and "off by +20.0% to +40.0%: mean field" in text
    assert "within two standard deviations of the ensemble: A " in text


@pytest.mark.parametrize("p", [P, Parameters()])
def test_bands_come_from_the_model(p):
    """Every variable that the command compares has one, narrower at the setting it was
    measured at.
    """
    for table in (bands.PAPER, bands.OURS, bands.PAPER_TIMES):
        found = bands.bands(table, p)
        assert found.keys() == table.keys()
        for name, (here, anywhere, why) in table.items():
            assert (found[name].low, found[name].high) == (
                here if p == P else anywhere
            ) and found[name].why == why
            assert anywhere[0] <= here[0] < here[1] <= anywhere[1]


def test_different_time_grids_are_interpolated():
    """Cubic interpolation of 601 points: error far below the spread of 2%."""
    curve = st.flow().solve(P, alpha=12)
    off_grid = st.flow().solve(P, at=np.linspace(0, 11.7, 17), alpha=12)
    found = trajectories.compare(curve, ensemble(off_grid, 1.0))
    assert {c.verdict for c in found.checks} == {"agrees"}
    assert found.deviations.sizes["alpha"] == 17


def test_one_seed_has_no_standard_error_and_does_not_pass_as_agreement():
    curve = st.flow().solve(P, alpha=12)
    found = trajectories.compare(curve, ensemble(curve, 1.1, seeds=1))
    assert {c.verdict for c in found.checks} == {"FAIL"}
    assert not np.isnan([c.predicted for c in found.checks]).any()


@pytest.mark.parametrize(
    "name",
    [
        "A",
        "R",
        "S",
        "loss",
        "logit_correct",
        "logit_other",
        "accuracy",
        "rollout_accuracy",
    ],
)
def test_theory_and_students_use_the_same_names(name):
    from simulate.state_tracking.measure import MEANING

    assert name in MEANING
    assert name in st.trajectory(P, 1.0)


def followed():
    """A curve for each of three seeds, and noisy students about it."""
    p, rng = Parameters(N=6, L=4, d_g=5, d_h=8), np.random.default_rng(0)
    times = np.linspace(0, 1, 9)
    rising = xr.DataArray(np.outer([1.0, 1.1, 1.2], 1 + times), dims=("seed", "alpha"))
    said = {"parameters": p.as_json(), "model": "state_tracking"}
    curve = xr.Dataset({"A": rising}, {"seed": [0, 1, 2], "alpha": times}, said)
    runs = curve.assign(A=rising + rng.normal(scale=1e-3, size=rising.shape))
    return p, curve.assign_attrs(kind="theory"), runs


def test_other_students_are_refused_and_what_is_insisted_on_is_said():
    """Seeds that differ are not mixed; order of times does not matter, doubled ones are
    refused.
    """
    p, curve, runs = followed()
    plain = trajectories.compare(curve, runs)
    turned = trajectories.compare(curve.isel(alpha=slice(None, None, -1)), runs)
    assert plain.checks == turned.checks and not plain.beyond
    with pytest.raises(
        ParameterError, match=r"of seeds \[0, 1\], the runs are of \[0, 1, 2\]"
    ):
        trajectories.compare(curve.isel(seed=[0, 1]), runs)
    twice = runs.isel(alpha=[0, 1, 1, 2])
    with pytest.raises(
        ParameterError, match="runs: times alpha must be finite, each once"
    ):
        trajectories.compare(curve, twice)
    adam = {"parameters": p.replace(optimizer="adam").as_json()}
    both = curve.assign_attrs(adam), runs.assign_attrs(adam)
    with pytest.raises(ParameterError, match="optimizer = 'adam': must be sgd"):
        trajectories.compare(*both)
    with pytest.warns(BeyondScope):
        found = trajectories.compare(*both, beyond=True)
    assert "beyond its scope: optimizer = 'adam'" in str(found)


def plain(runs: xr.Dataset) -> tuple:
    """A curve x = exp(-t / 5), and the checks of runs against it, apart from words."""
    times = np.linspace(0, 10, 11)
    curve = xr.Dataset({"x": ("t", np.exp(-times / 5))}, {"t": times})
    found = trajectories.compare(curve, runs)
    return [(c.predicted, c.measured, c.error, c.verdict) for c in found.checks], found


def scattered(seeds: int, end: int = 10, seed: int = 0) -> xr.Dataset:
    """Runs that scatter about the curve, one offset per student and noise."""
    rng, times = np.random.default_rng(seed), np.arange(0, end + 1.0)
    x = np.exp(-times / 5) + 0.02 * (
        rng.standard_normal((seeds, 1)) + 0.3 * rng.standard_normal((seeds, len(times)))
    )
    return xr.Dataset({"x": (("seed", "t"), x)}, {"seed": np.arange(seeds), "t": times})


def test_blank_students_are_not_counted():
    """Two students are the same two beside 18 blank ones, which is said."""
    two = scattered(2)
    alone, _ = plain(two)
    beside, found = plain(two.reindex(seed=range(20)))
    assert alone == beside
    assert "18 of 20 students have no value" in str(found)


def test_a_true_theory_of_runs_that_ended_early_does_not_fail():
    """Seventeen of twenty students are blank in the second half; 60 draws."""
    failed = 0
    for draw in range(60):
        runs = scattered(20, seed=draw)
        checks, _ = plain(runs.where((runs.seed < 3) | (runs.t < 5)))
        failed += checks[0][-1] == "FAIL"
    assert failed == 0


def test_blanks_and_order_change_nothing():
    """Blank students, blank times,
    and any order of both leave every number as it is.
    """
    for seed in range(30):
        rng = np.random.default_rng(seed)
        runs = scattered(rng.integers(2, 7), rng.integers(3, 11), seed)
        runs.x[0, rng.integers(3)] = np.nan
        before, _ = plain(runs)
        late = np.sort([1.5, 4.25, 9.75])[: rng.integers(4)]
        changed = runs.reindex(
            seed=[*runs.seed.values, *range(100, 100 + rng.integers(6))]
        )
        changed = changed.reindex(t=np.union1d(runs.t.values, late))
        changed = changed.isel(
            {d: rng.permutation(changed.sizes[d]) for d in ("seed", "t")}
        )
        after, _ = plain(changed)
        assert [c[-1] for c in before] == [c[-1] for c in after]
        np.testing.assert_allclose(
            [c[:-1] for c in before], [c[:-1] for c in after], rtol=1e-9
        )


def test_times_outside_the_curve_are_counted():
    """A curve to t = 1 and runs to t = 100 agree at one of eleven times, as is said."""
    runs = scattered(5).assign_coords(t=np.arange(11) * 10.0)
    curve = xr.Dataset({"x": ("t", np.ones(5))}, {"t": np.linspace(0, 1, 5)})
    found = trajectories.compare(curve, runs)
    assert "compared at 1 of 11 times of the runs" in str(found)
    assert "at 1 of 11 times" in found.checks[0].reason


def doors(runs: xr.Dataset):
    """What is said of runs by everything that reads their time."""
    times = np.linspace(0, 10, 11)
    curve = xr.Dataset({"x": ("t", np.exp(-times / 5))}, {"t": times})
    yield lambda: [
        (c.predicted, c.measured) for c in trajectories.compare(curve, runs).checks
    ]
    yield lambda: emergence_times(runs, curve, x=0.5).measured.values.tolist()
    yield lambda: first_crossing(-runs.x, -0.5).values.tolist()


@pytest.mark.parametrize("change", ["reversed", "lazy", "shuffled"])
def test_one_door_for_the_time(change):
    """Order and chunks do not matter to any of them."""
    runs = scattered(4)
    turned = {
        "reversed": lambda: runs.isel(t=slice(None, None, -1)),
        "shuffled": lambda: runs.isel(t=[3, 1, 0, 2, *range(4, 11)]),
        "lazy": lambda: runs.chunk({"t": 2}),
    }[change]()
    for one, other in zip(doors(runs), doors(turned), strict=True):
        np.testing.assert_allclose(np.ravel(one()), np.ravel(other()))


@pytest.mark.parametrize(
    "change",
    [
        lambda runs: runs.drop_vars("t"),
        lambda runs: runs.assign_coords(t=[*range(10), np.nan]),
        lambda runs: runs.assign_coords(t=[*range(10), 9]),
        lambda runs: runs.assign_coords(t=[f"step {t}" for t in range(11)]),
        lambda runs: runs.assign_coords(t=np.arange(11).astype("timedelta64[s]")),
        lambda runs: runs.assign_coords(t=np.arange(11) + 0j),
        lambda runs: runs.isel(t=[]),
    ],
)
def test_a_time_that_is_none_is_refused_at_every_door(change):
    """In one line that names the time."""
    for ask in doors(change(scattered(4))):
        with pytest.raises(ParameterError, match=r"\bt\b") as caught:
            ask()
        assert "\n" not in str(caught.value)


def test_epochs_are_not_alpha():
    """Another name of the time is asked for, and another unit is refused."""
    runs = scattered(4).rename(t="epoch")
    for ask in list(doors(runs))[:2]:
        with pytest.raises(
            ParameterError, match="which of seed, epoch is the time, in the curve's"
        ):
            ask()
    curve = xr.Dataset(
        {"x": ("t", np.ones(4))}, {"t": ("t", np.arange(4.0), {"units": "alpha"})}
    )
    runs = scattered(4)
    runs.t.attrs["units"] = "epochs"
    for ask in (trajectories.compare, lambda c, r: emergence_times(r, c, x=0.5)):
        with pytest.raises(
            ParameterError, match="in alpha in the curve, in epochs in the runs"
        ):
            ask(curve, runs)


@pytest.mark.parametrize(("points", "seen"), [(12, 1e-1), (50, 1e-4), (400, 1e-7)])
def test_students_without_scatter_between_points_of_a_curve(points, seen):
    """Students of one start are held to the error of the interpolation, which falls
    with the number of points, and at points of the curve to rounding.
    """
    grid = np.linspace(0, 10, points)
    curve = xr.Dataset({"x": ("t", np.sin(grid / 3) + 0.5)}, {"t": grid})
    for at, wrong in ((np.linspace(0.013, 9.9, 23), seen), (grid[::3], 1e-12)):
        for factor, verdict in ((1, "agrees"), (1 + wrong, "FAIL")):
            values = factor * np.sin(at / 3) + 0.5
            same = xr.Dataset(
                {"x": (("seed", "t"), [values] * 5)}, {"seed": range(5), "t": at}
            )
            assert trajectories.compare(curve, same).checks[0].verdict == verdict


def test_rounding_is_no_scatter():
    """Sums in another order."""
    flat = xr.Dataset(
        {"x": (("seed", "t"), 0.1 + 0.2 + np.zeros((12, 3)))}, {"t": [1.0, 2, 3]}
    )
    flat.x[::5, 1] = 0.3
    curve = xr.Dataset({"x": ("t", [0.3, 0.3, 0.3])}, {"t": [1.0, 2, 3]})
    assert trajectories.compare(curve, flat).checks[0].verdict == "agrees"


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_sizes_whose_squares_leave_double_precision_are_refused(unit):
    """There a theory that is right failed, or was undecided."""
    curve = st.flow().solve(P, alpha=12)[["A"]]
    runs = ensemble(st.flow().solve(P, alpha=12).isel(alpha=slice(0, None, 20)), 1.0)[
        ["A"]
    ]
    with pytest.raises(ParameterError, match="leave double precision; change its unit"):
        compare(unit * curve, unit * runs)


@pytest.mark.parametrize("n", [-5.0, 0.0, np.nan])
def test_published_means_of_no_students_are_refused(n):
    times = np.linspace(0, 1, 9)
    means = tables.arrays(
        {"t": times, "x": times, "x_std": 0 * times + 1, "x_n": 0 * times + n}
    )
    with pytest.raises(
        ParameterError, match="x_n, the number of students, go together"
    ):
        compare(means[["x"]], means)


def test_measured_sizes_whose_squares_leave_double_precision_are_refused(recwarn):
    """Their mean was undecided, with NumPy's warnings."""
    curve = st.flow().solve(P, alpha=12)
    with pytest.raises(
        ParameterError, match=r"squares of 1.02272e\+200 leave double precision"
    ):
        compare(curve[["A"]], 1e200 * ensemble(curve, 1.0, 6))
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]
