"""Times of A = 1/2 over drawn starts, from sizes alone."""

import numpy as np
import pytest
import scipy.stats

from theory import state_tracking as st
from theory.call.refusal import ParameterError
from theory.state_tracking.single_students.cavity import Cavity
from theory.state_tracking.single_students.integrate import half_times
from theory.state_tracking.single_students.realisation import Start
from verify import ensembles
from verify.compare.emergence import first_crossing

P = st.Parameters(N=8, L=4, d_g=8, d_h=16, n_train=1024, eval_every=8)
KNOWN = {"A_0", "R_0", "S_0", "alpha_half"}


def test_starts_that_share_strides_take_the_times_of_single_ones():
    """Together they are many times faster; the error is that of a stride."""
    start = Start.drawn(P, 30, np.random.default_rng(0))
    alone, together = (
        half_times(Cavity(P, start, accuracies=False), 2000, size=n) for n in (1, 20)
    )
    np.testing.assert_allclose(together, alone, rtol=1e-4)


@pytest.mark.parametrize("level", ["cavity", "fixed_disorder"])
def test_times_are_where_drawn_curves_cross(level):
    """The same starts as of `predict`,
    whose curves are evaluated every eight epochs.
    """
    p = P.run_to(20.0)
    found = st.drawn_times(p, 6, level=level)
    curves = st.predict(p, seeds=6, level=level, accuracies=False)
    crossed = first_crossing(curves.A.rename(draw="seed"), 0.5).values
    np.testing.assert_allclose(found.alpha_half, crossed, rtol=1e-3)
    assert found.alpha_half.units == st.emergence_times(p).alpha_half.units
    for name in ("A", "R", "S"):
        np.testing.assert_allclose(
            found[f"{name}_0"], curves[name].isel(alpha=0), rtol=1e-9
        )


def test_students_are_draws():
    """Times of the shipped students are a sample of the drawn ones, which explain most
    of it.
    """
    p, runs = ensembles("demo")
    found = st.emergence_times(p, seeds=60)
    measured = first_crossing(runs.A, 0.5).values
    assert scipy.stats.ks_2samp(measured, found.alpha_half).pvalue > 1e-3
    assert scipy.stats.ks_2samp(1.5 * measured, found.alpha_half).pvalue < 1e-3
    odds = np.log(found.A_0 / (1 - found.A_0))
    explained = np.corrcoef([odds, np.log(found.alpha_half)])[0, 1] ** 2
    assert 0.25 < explained < 0.55


def test_a_run_that_ends_before_and_what_is_refused():
    """NaN, and one line."""
    assert np.isnan(st.emergence_times(P, seeds=3, until=0.1).alpha_half).all()
    assert set(st.emergence_times(P, seeds=3, L=[3, 4]).data_vars) == KNOWN
    for call, said in (
        (
            lambda: st.drawn_times(P, 3, level="flow"),
            "level = 'flow': must be one of cavity",
        ),
        (lambda: st.drawn_times(P, 0), "seeds = 0"),
        (
            lambda: st.emergence_times(P, 0.4, seeds=3),
            "level = 0.4: must be 0.5 with seeds",
        ),
    ):
        with pytest.raises(ParameterError, match=said):
            call()
