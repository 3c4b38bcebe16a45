"""Curves say how far they are from single students, measured or as known from others."""

import warnings

import numpy as np
import pytest

from simulate.state_tracking import train
from theory import state_tracking as st
from theory.scope import BeyondScope
from theory.state_tracking.levels import LEVELS
from verify import trajectories

FEW = st.Parameters(N=5, L=6, d_g=4, d_h=16, n_train=46, n_test=8, epochs=600, eval_every=20)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train(FEW, [1, 2], workers=1, progress=False, store=tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("level", LEVELS)
def test_a_curve_says_how_far_it_is_off(level, runs):
    """The largest deviation of A from the students followed; in warnings and comparisons, too."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        curve = st.predict(FEW, runs, level=level, accuracies=False)
    gaps = abs((curve.A.mean("draw") if "draw" in curve.dims else curve.A) - runs.A)
    off = float(gaps.max())
    assert curve.attrs["off_by"] == pytest.approx(off)
    said = [str(w.message) for w in caught if w.category is BeyondScope]
    assert (off < 0.05) == (not said) and (off < 0.002) == (level == "fixed_disorder")
    if said:
        worst = int(runs.seed[gaps.max("alpha").values.argmax()])
        assert said == [curve.attrs["note"]]
        assert f"A is off by up to {off:.2g}" in said[0] and f"(seed {worst})" in said[0]
        assert caught[0].filename == __file__
        assert said[0] in str(trajectories.compare(curve, runs))


def test_of_one_run_and_of_a_start(runs):
    """A run without seeds; a start whose students nobody followed says nothing."""
    with pytest.warns(BeyondScope, match=r"off by up to .* \(the run\)"):
        st.predict(FEW, runs.isel(seed=0), level="own_start", accuracies=False)
    start = runs.drop_vars("A")
    curve = st.predict(FEW, start, level="cavity", accuracies=False)
    assert "off_by" not in curve.attrs and np.isfinite(curve.A).all()
