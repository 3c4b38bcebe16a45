"""Treatment of arguments: dimensions, masks, mappings, overridden derived quantities;
and numbers at the limits of validity.
"""

import math

import mpmath
import numpy as np
import pytest
import sympy as sp
import xarray as xr

from tests.theory.test_swept_numbers import SYSTEMS, small
from theory import state_tracking as st
from theory.associative_memory import factual_recall, k_hop, superposition
from theory.associative_memory.factual_recall import dynamics
from theory.associative_memory.factual_recall.timescales import gain_of_share
from theory.call import arrays
from theory.call.refusal import Allowed, ParameterError
from theory.models.registry import find
from theory.state_tracking import inversion, quadrature
from theory.state_tracking.quadrature import NAMES

P = small("state_tracking")
L, ETA = [2, 3, 8], [0.1, 0.5]
BY_L = xr.DataArray(L, {"length": L}, "length")
BY_ETA = xr.DataArray(ETA, dims="rate")


def loop(function, **more):
    """Every pair, one at a time."""
    found = [[function(P.replace(L=l, eta=e), **more) for e in ETA] for l in L]
    return found, ("length", "rate")


def outer(found, expected, dims):
    """The outer product by name, with coordinates."""
    assert found.dims[:2] == dims and found.coords["length"].values.tolist() == L
    np.testing.assert_allclose(found.values, expected, rtol=1e-12)


def test_dimensions_are_broadcast_by_name():
    """Array code, functions of one point, datasets, equations, flows: outer, not
    elementwise.
    """
    swept = {"L": BY_L, "eta": BY_ETA}
    outer(quadrature.emergence_time(P, **swept), *loop(quadrature.emergence_time))
    outer(inversion.states(P, [0.5, 1.0], **swept)["A"], *loop(lambda p: at_times(p)))
    law = st.equations()["onset_A"]
    outer(law.evaluate(P, alpha=2.0, **swept), *loop(law.evaluate, alpha=2.0))
    curves = st.trajectory(P, 0.5, at=[0, 0.5], **swept)
    assert curves.A.dims == ("length", "rate", "alpha") and curves.eta.dims == ("rate",)
    outer(curves.A, *loop(lambda p: st.trajectory(p, 0.5, at=[0, 0.5]).A.values))
    outer(st.flow().solve(P, alpha=0.5, at=[0.5], **swept).A[..., 0], *loop(end))
    onsets = st.onset(P, **swept)
    outer(onsets["alpha_half"], *loop(quadrature.emergence_time))
    levels = xr.DataArray([0.3, 0.6], dims="level")
    assert quadrature.emergence_time(P, levels, L=BY_L).sizes == {
        "level": 2,
        "length": 3,
    }
    own = P.values() | {"c_omega": xr.DataArray([0.3, 0.5], dims="c"), "eta": BY_ETA}
    assert quadrature.emergence_time(own).sizes == {"c": 2, "rate": 2}
    assert st.gaussian_accuracy(BY_ETA, 1.0, BY_L, 8).dims == ("rate", "length")


def at_times(p):
    """A at two times."""
    return inversion.states(p, [0.5, 1.0])["A"]


def end(p):
    """A at the end of a run."""
    return float(st.flow().solve(p, alpha=0.5, at=[0.5]).A[0])


@pytest.mark.parametrize(
    ("swept", "message"),
    [
        ({"L": BY_L, "eta": ETA}, "eta: needs named dimensions"),
        (
            {"L": BY_L, "eta": xr.DataArray([0.1], {"length": [2]}, "length")},
            "L, eta: differ in",
        ),
        ({"L": np.ma.masked_array(L, [0, 0, 1])}, r"L = masked_array.*: is masked"),
        ({"L": np.ma.masked}, "L = masked: is masked"),
        ({"L": [True, 8]}, r"L = \[True, 8\]: holds true or false beside"),
        ({"L": []}, r"L = \[\]: is empty"),
        ({"L": {2, 3}}, "L = {2, 3}: must be numbers, holds set"),
        ({"L": [[2], [2, 3]]}, "L = .*lists in it differ in length"),
        ({"L": 3j}, "L = 3j: must be numbers, not complex"),
        (
            {"sigma2": 1.0},
            "sigma2: c_omega would not be computed from it; give c_omega instead",
        ),
        ({"omega": 1.0}, "omega: c_omega would not be computed from it"),
        ({"d_h": 16, "sigma2": 1.0}, "sigma2: c_omega would not be computed"),
        ({"d_h": 16, "omega": [1.0]}, "omega: c_omega would not be computed"),
        ({"tau": 2.0}, "tau = 2.0: must be >= 0 and <= 1"),
    ],
)
def test_fields_are_refused_in_one_line(swept, message):
    """By name, with the value and why."""
    with pytest.raises(ParameterError, match=f"^{message}") as error:
        quadrature.emergence_time(P, **swept)
    assert "\n" not in str(error.value)


def test_a_tensor_with_a_gradient_is_refused():
    """Its gradient would be lost."""
    torch = pytest.importorskip("torch")
    for eta in (torch.tensor([0.1, 0.2]), torch.tensor(0.1)):
        assert np.shape(quadrature.emergence_time(P, eta=eta)) == eta.shape
        with pytest.raises(
            ParameterError, match="^eta = .*: carries a gradient; detach it$"
        ):
            quadrature.emergence_time(P, eta=eta.clone().requires_grad_())


@pytest.mark.parametrize("name", NAMES)
def test_mappings_are_held_to_what_fields_are(name):
    """None, complex, words, truth values, no numbers and numbers out of range, one line
    each.
    """
    plain = {n: float(P.values()[n]) for n in NAMES}
    below = {
        "N": 1.0,
        "L": 0.5,
        "d_g": 0.0,
        "eta": 0.0,
        "A_0": 0.0,
        "c_omega": -1.0,
        "tau": -1.0,
    }
    wrong = [None, 1j, "x", True, math.nan, math.inf, [1j, 2.0], [0.5, None], [], {1}]
    for value in [*wrong, *([below[name]] if name in below else [])]:
        for call in (quadrature.emergence_time, lambda v: inversion.states(v, [1.0])):
            with pytest.raises(ParameterError, match=rf"^{name} = ") as error:
                call({**plain, name: value})
            assert "\n" not in str(error.value)
    law = st.equations()["kappa"]
    if name in {s.name for s in law.rhs.free_symbols}:
        with pytest.raises(ParameterError, match=rf"^{name} = None: must be numbers"):
            law.evaluate({**plain, name: None})


def test_numbers_in_place_of_what_follows():
    """c_omega may be overridden, but not together with its inputs; its own equation
    takes both.
    """
    law, values = st.equations()["c_omega"], P.values()
    assert law.evaluate(P, sigma2=2 / 3) == pytest.approx(
        2 * values["c_omega"], rel=1e-14
    )
    with pytest.raises(
        ParameterError,
        match="^sigma2: c_omega would not be computed from it; give c_omega instead",
    ):
        quadrature.emergence_time(values | {"sigma2": 1.0})
    assert quadrature.emergence_time(
        values | {"sigma2": 1.0, "c_omega": 0.3}
    ) == quadrature.emergence_time(P, c_omega=0.3)
    with pytest.raises(ParameterError, match="^tau: not used here; used are"):
        law.evaluate(P, tau=0.3)


@pytest.mark.parametrize("system", SYSTEMS)
def test_inputs_are_those_of_the_equations(system):
    """Which numbers follow from which that are no fields: as the equation of their name
    has it.
    """
    p, known = small(system), find(system).wing("theory").equations()
    derived = set(p.values()) - set(p.as_dict())
    of = {
        n: {s.name for s in known[n].rhs.free_symbols} & derived - {n}
        for n in derived & {*known}
    }
    assert {n: set(names) for n, names in p.INPUTS.items()} == {
        n: v for n, v in of.items() if v
    }


def test_share_of_the_loss_near_nothing_and_near_all():
    """Gain and time to rounding, where exp - 1 cancels; times against a quadrature of
    40 digits.
    """
    mpmath.mp.dps = 400
    for choices in (2, 8):
        for share in (1e-300, 1e-16, 1e-3, 0.5, 1 - 1e-16):
            exact = mpmath.log(
                (choices - 1) / (mpmath.mpf(choices) ** mpmath.mpf(share) - 1)
            )
            assert gain_of_share(share, choices) == pytest.approx(
                float(exact), rel=1e-15
            )
    p, part = factual_recall.Parameters(), dynamics.SUBJECT
    times = [
        factual_recall.time_of_share(p, part, x) for x in (0.5, 1e-8, 1e-16, 1e-17)
    ]
    closed = [factual_recall.closed_form(p, part, x) for x in (0.5, 1e-8, 1e-16, 1e-17)]
    np.testing.assert_allclose(
        times, closed, rtol=1e-9
    )  # both are exact to epsilon^2 ln epsilon
    # Late, t grows as e^X/X: ten times as long for a tenth, over the gains; (1 + 1/X)
    # aside.
    longer = 10 * gain_of_share(1e-16, p.D) / gain_of_share(1e-17, p.D)
    assert times[3] / times[2] == pytest.approx(longer, rel=3e-3)
    assert factual_recall.time_of_share(p, part, 0.9999999999) >= 0
    with pytest.raises(ParameterError, match="^share = .*closed form does not hold"):
        factual_recall.closed_form(p, part, 1 - 1e-12)


@pytest.mark.parametrize("d", [16, 256, 10**6, 10**12])
def test_recall_on_the_sphere_at_any_dimension(d):
    """Twice the nodes change nothing, and at large d the sphere is Gaussian."""
    N = d**2 / 40
    found = superposition.sphere_recall(N, d)
    nodes = 1e-6 if d <= 10**6 else 1e-5  # as the docstring has it
    assert found == pytest.approx(superposition.sphere_recall(N, d, 400), abs=nodes)
    if (
        d >= 10**6
    ):  # the leak 2/d and the kurtosis -6/d are gone, at ln N standard deviations
        assert found == pytest.approx(superposition.gaussian_recall(N, d), abs=1e-3)


def test_coordinates_on_the_sphere_far_out():
    """Both tails, against an integral of 30 digits."""
    with mpmath.workdps(30):
        for d in (3, 50, 10**6):
            for x in (1e-7, 0.1 / math.sqrt(d), 3 / math.sqrt(d)):
                if x >= 1:
                    continue
                tail = mpmath.betainc(
                    (mpmath.mpf(d) - 1) / 2, 0.5, 0, 1 - mpmath.mpf(x) ** 2, True
                )
                assert superposition.marginal_cdf(-x, d) == pytest.approx(
                    float(tail / 2), rel=1e-9
                )
                assert superposition.marginal_cdf(x, d) == pytest.approx(
                    1 - float(tail / 2)
                )


def test_times_of_overlaps_at_the_ends_of_their_reach():
    """Zero where they start above, one line where they do not get there."""
    p = k_hop.Parameters(N=5, k=3, m_0=0.9)
    assert k_hop.mixture_time(p) == k_hop.direct_time(p) == 0
    for product in (0.8, 0.95):  # above 0.9^3, below and above 0.9
        short = (
            k_hop.mixture_time(p, product=product),
            k_hop.direct_time(p, product=product),
        )
        assert 0 < short[0] < short[1]  # the mixture pulls on the first hops more
    for call, message in (
        (
            lambda: k_hop.curriculum_times(p, "softmax", N=10**6),
            "^m_0 = 0.9: stage 2: not reached before t = 100000",
        ),
        (
            lambda: k_hop.direct_time(p, product=1),
            "^product = 1.0: must be > 0 and <= 0.99999",
        ),
        (
            lambda: k_hop.direct_time(p, kernels="nope"),
            "^kernels = 'nope': must be one of sphere, so",
        ),
    ):
        with pytest.raises(ParameterError, match=message):
            call()


@pytest.mark.parametrize("start", [1e-2, 1e-16, 1e-90])
def test_a_small_start_is_followed(start):
    """Integration against the closed form of white data: errors of 1e-14 would outrun
    the start.
    """
    linear = find("linear_attention.merged").wing("theory")
    onset = find("linear_attention.merged").wing("theory", "onset").onset
    found = onset(linear.Parameters(spectrum="1,1,1,1", start=start)).numbers
    assert found["T_drop"] == pytest.approx(found["T_white"], rel=1e-10)


def test_what_never_happens_is_said_so():
    """Starts beyond a drop; numbers of an onset that do not come."""
    onset = find("linear_attention.merged").wing("theory", "onset").onset
    parameters = find("linear_attention.merged").wing("theory").Parameters
    for p, name in (
        (parameters(start=0.5, N=1), "t_1"),
        (parameters(spectrum="1", start=0.5, N=1), "T_drop"),
    ):
        with pytest.raises(
            ParameterError, match=f"^start = 0.5: lies beyond the drop of {name}"
        ):
            onset(p)
    from theory.dynamics.onset import Onset

    for number, message in (
        (math.nan, "does not happen"),
        (math.inf, r"\(a = 1e\+300\) .*beyond"),
    ):
        with pytest.raises(ParameterError, match=f"^t.*{message}"):
            Onset(
                {"t": number},
                {"t": ""},
                {},
                [],
                dict,
                list,
                print,
                setting={"a": 1e300},
            )


def test_exact_numbers_are_numbers():
    """SymPy's and mpmath's own, whole numbers beyond 64 bits, bounds on every entry."""
    found = arrays.array("x", [sp.Rational(1, 2), mpmath.mpf(3), 10**30])
    assert found.tolist() == [0.5, 3.0, 1e30]
    with pytest.raises(ParameterError, match="^x = -1.0: must be >= 0$"):
        arrays.array("x", [2.0, -1.0], Allowed(low=0))


@pytest.mark.parametrize("name", ["rtol", "atol", "at", "alpha"])
def test_a_flow_is_solved_to_tolerances_at_times(name):
    """Numbers, and those that mean something."""
    for value in (
        math.nan,
        -1.0,
        math.inf,
        "x",
        None,
        1j,
        True,
        {0.1},
        [],
        [[0.1], [0.1, 0.2]],
    ):
        if (name, value) != ("at", None):
            with pytest.raises(ParameterError, match=rf"\b{name}\b") as error:
                st.flow().solve(P, **{"alpha": 1.0, name: value})
            assert "\n" not in str(error.value)


@pytest.mark.parametrize("unit", ["s", "ns"])
@pytest.mark.parametrize("kind", [np.timedelta64, np.datetime64])
def test_times_of_a_clock_are_no_numbers(kind, unit):
    """A difference of times is a subclass of NumPy's integers; of nanoseconds, item()
    is an int.
    """
    from simulate.training.arguments import seeds
    from theory.associative_memory import gradient_memory as memory

    value = kind(3, unit)
    for call in (
        lambda: memory.margin(memory.Parameters(), t=value),
        lambda: memory.margin(memory.Parameters(), np.array([value], object)),
        lambda: P.replace(L=value),
        lambda: P.replace(eta=np.array(value)),
        lambda: st.emergence_times(P, c_omega=value),
        lambda: st.flow().solve(P, alpha=value),
        lambda: st.predict(P, seeds=value),
        lambda: seeds(value),
    ):
        with pytest.raises(ParameterError) as error:
            call()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "solve",
    [
        lambda R_0: inversion.states(P, [0.5, 1.0], R_0=R_0),
        lambda R_0: inversion.solve(P, [0.5, 1.0], R_0=R_0),
        lambda R_0: st.flow().solve(P, alpha=1.0, at=[0.5, 1.0], R_0=R_0),
    ],
)
def test_a_dimension_of_parameters_is_not_that_of_the_times(solve):
    """Refused with the call that renames it, which works."""
    swept = xr.DataArray([0.1, 0.2], dims="alpha")
    with pytest.raises(ParameterError, match=r"\.rename\(alpha='alpha_0'\)"):
        solve(swept)
    found = solve(swept.rename(alpha="alpha_0"))
    assert set(found["A"].dims) == {"alpha_0", "alpha"}
