"""Which theory is nearer: made ensembles, and students."""

import numpy as np
import pytest
import scipy.stats
import xarray as xr

from theory import state_tracking as st
from theory.call.refusal import ParameterError
from verify import ensembles
from verify.compare.ranking import rank
from verify.trajectories import compare

TIMES = np.linspace(0, 1, 11)


def curve(off, **more):
    return xr.Dataset({"ranked": ("t", 1 + off + 0 * TIMES)}, {"t": TIMES}).assign(more)


def students(rng, seeds, noise=0.1):
    """Alike in all times, as students are."""
    own = 1 + noise * rng.normal(size=(seeds, 1)) + 0.01 * rng.normal(size=(seeds, 11))
    return xr.Dataset(
        {"ranked": (("seed", "t"), own)}, {"t": TIMES, "seed": range(seeds)}
    )


def test_distances_are_root_mean_squares_and_the_nearest_comes_first():
    runs = students(np.random.default_rng(0), 20)
    found = compare({"far": curve(0.3), "near": curve(0.05)}, runs)
    assert [*found.table.theory.values] == ["near", "far"]
    for name, off in (("far", 0.3), ("near", 0.05)):
        size = float(np.abs(runs.ranked).max())
        expected = np.sqrt(((1 + off - runs.ranked.values) ** 2).mean()) / size
        assert found.table.distance.sel(theory=name) == pytest.approx(expected)
    assert found.verdict == "near is nearer"
    assert "FAIL" in str(found) and "near" in repr(found)


def test_theories_that_are_as_far_are_told_apart_by_chance_alone():
    """Once in twenty ensembles, for one at either side of the truth."""
    count = 0
    for k in range(300):
        runs = students(np.random.default_rng(k), 20)
        found = _table(runs, 0.05)
        count += len(found) == 1
    low, high = scipy.stats.binom(300, 0.05).ppf([1e-4, 1 - 1e-4])
    assert low <= count <= high + 300 * 0.02  # quantiles of 20 seeds: 5 to 7%


def _table(runs, off):
    """Names that the seeds do not tell apart, without the comparisons."""
    from verify.compare import ranking

    gaps = [1 + s * off - runs.ranked.values for s in (1, -1)]
    squares = np.array([(gap**2).sum(1) for gap in gaps])
    made = ranking._ranked(["up", "down"], squares, np.full(20, 11), {})
    return made.nearest


def test_a_theory_of_every_seed_is_nearer_than_their_mean():
    """Though both have no deviation of the mean."""
    runs = students(np.random.default_rng(1), 12)
    each = runs.copy()
    mean = xr.Dataset({"ranked": runs.ranked.mean("seed")})
    found = rank({"mean": mean, "each": each + 0.001}, runs)
    assert found.nearest == ["each"]


def test_errors_shrink_with_seeds():
    errors = [
        float(
            rank(
                {"a": curve(0.2), "b": curve(-0.05)},
                students(np.random.default_rng(2), n),
            ).table.error[1]
        )
        for n in (25, 400)
    ]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.4)


def test_few_seeds_rank_but_do_not_decide():
    runs = students(np.random.default_rng(0), 3)
    found = rank({"a": curve(0.3), "b": curve(0.0)}, runs)
    assert "3 seeds cannot tell whether by chance" in found.verdict
    assert np.isnan(found.table.error).all()
    one = rank({"a": curve(0.3), "b": curve(0.0)}, runs.isel(seed=0, drop=True))
    assert [*one.table.theory.values] == ["b", "a"]


def test_what_cannot_be_ranked_is_refused():
    runs = students(np.random.default_rng(0), 6)
    with pytest.raises(ParameterError, match="two theories or more"):
        compare({"a": curve(0.3)}, runs)
    with pytest.raises(ParameterError, match="no variable"):
        compare({"a": curve(0.3), "b": curve(0.1).rename(ranked="y")}, runs)


def test_students_rank_their_own_theory_before_the_paper_curve():
    p, runs = ensembles("demo")
    runs = runs.isel(seed=slice(6))
    flow = st.flow().solve(p, at=runs.alpha.values, alpha=float(runs.alpha[-1]))
    ours = st.predict(p, runs, accuracies=False)
    found = compare({"flow": flow[["A"]], "ours": ours[["A"]]}, runs)
    assert found.nearest == ["ours"]
