"""One-pass descent of the positional-semantic layer: Gaussian means, growth rates, ends, basins."""

import numpy as np
import pytest
import sympy as sp

from theory.parameters import ParameterError
from theory.positional_semantic import online
from theory.positional_semantic.online import dynamics, means
from theory.positional_semantic.online.dynamics import drift, population_loss
from theory.positional_semantic.symbols import m, q, sigma, theta
from theory.special import gauss_hermite

SPHERE = online.Parameters.sphere(batch=None)
POINTS = ((0.25, 0.3, 0.1, 0.5), (0.06, 0.2, 0.12, 0.6), (0.2, 0.1, 0.22, 0.5))
MONOMIALS = (
    ((1, 0), (1, 0, 0, 0, 0, 0)),
    ((1, 1), (0, 0, 1, 0, 1, 0)),
    ((2, 0), (0, 1, 0, 1, 0, 1)),
)


def directly(target, student, q, m, theta, sigma, order=24):
    """The mean by Gauss-Hermite quadrature over all four fields."""
    x, weight = gauss_hermite(order)
    h_1, h_2, a, b = np.meshgrid(*[x] * 4, indexing="ij", sparse=True)
    spread = np.sqrt(q - theta**2 / sigma**2)
    z = (sign * m + theta / sigma * h + spread * y for sign, h, y in ((1, h_1, a), (-1, h_2, b)))
    values = np.ones((order,) * 4)
    for compiled, fields, powers in (
        (means._compiled(False), (sigma * h_1, sigma * h_2), target),
        (means._compiled(True), z, student),
    ):
        for value, n in zip(compiled(*fields), powers, strict=True):
            values = values * value**n
    return np.einsum("ijkl,i,j,k,l", values, *[weight] * 4)


@pytest.mark.parametrize(("target", "student"), MONOMIALS)
def test_means_are_those_over_all_fields(target, student):
    """Mehler's series against one quadrature over four fields; 1e-5 of its size is what that
    quadrature leaves where both fields are almost equal.
    """
    for point in POINTS:
        found = means.value(target, student, (0, 0, 0), *point)
        assert found == pytest.approx(directly(target, student, *point), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize(("target", "student"), MONOMIALS)
@pytest.mark.parametrize("place", range(3))
def test_derivatives_of_means(target, student, place):
    """By shifted coefficients against central differences, also of a derivative."""
    for point in POINTS[:2]:
        orders = [0, 1, 0]
        step = np.eye(4)[place] * 1e-4
        difference = (
            means.value(target, student, tuple(orders), *(point + step))
            - means.value(target, student, tuple(orders), *(point - step))
        ) / 2e-4
        orders[place] += 1
        found = means.value(target, student, tuple(orders), *point)
        assert found == pytest.approx(difference, rel=2e-4, abs=1e-7)


def test_means_of_numbers_and_of_arrays():
    """Of numbers, as integrators ask, and of arrays, which are broadcast: the same."""
    of, places = ((1, 0), (1, 0, 0, 0, 0, 0), (0, 0, 0)), [point[:3] for point in POINTS]
    expected = [means.value(*of, *place, 0.6) for place in places]
    assert [means.Mean._imp_(*of, *place, 0.6) for place in places] == expected
    np.testing.assert_array_equal(means.Mean._imp_(*of, *np.transpose(places), 0.6), expected)


def test_a_mean_without_student_does_not_move():
    """And one without target does not depend on their covariance."""
    nothing, attention = (0,) * 6, (1, 0, 0, 0, 0, 0)
    state = (sp.Tuple(0, 0, 0), q, m, theta, sigma)
    of_target = means.Mean(sp.Tuple(1, 0), sp.Tuple(*nothing), *state)
    of_student = means.Mean(sp.Tuple(0, 0), sp.Tuple(*attention), *state)
    assert [sp.diff(of_target, x) for x in (q, m, theta)] == [0, 0, 0]
    assert sp.diff(of_student, theta) == 0 != sp.diff(of_student, q)


def test_numbers_on_the_sphere():
    """Growth rates at unit norm and sigma = 1 with A the softmax of [[1, -1], [-1, 1]]: linear in
    omega, equal at 0.641; ends of one loss at 0.738.
    """
    rates = [online.growth_rates(SPHERE.replace(omega=w)) for w in (0.0, 0.5, 1.0)]
    positional = [float(r.growth_m) for r in rates]
    semantic = [float(r.growth_theta) for r in rates]
    assert positional[1] == pytest.approx((positional[0] + positional[2]) / 2, abs=1e-12)
    assert positional == pytest.approx([-0.13325, 0.03246, 0.19817], abs=1e-5)
    assert semantic == pytest.approx([0.22050, 0.11025, 0.0], abs=1e-5)
    assert online.window(SPHERE) == pytest.approx(
        {"omega_growth": 0.64095, "omega_loss": 0.73759}, abs=2e-4
    )


def test_both_overlaps_have_information_exponent_two():
    """Odd orders of the loss in either overlap vanish; second orders do not."""
    dynamics.even()
    for x in (m, theta):
        first, second = (sp.diff(population_loss(), x, n).doit() for n in (1, 2))
        known = SPHERE.replace(sigma=0.5).values() | {"q": 0.3, "m": 0.0, "theta": 0.0}
        values = [
            float(sp.lambdify(list(e.free_symbols), e)(*(known[s.name] for s in e.free_symbols)))
            for e in (first, second)
        ]
        assert abs(values[0]) < 1e-12 and abs(values[1]) > 1e-3


def test_small_weights():
    """Growth of small weights by hand: E S = 1/2 - (q + 2 m^2)/4 and what the teacher adds."""
    found = dynamics.small_growth()
    names = {s.name: s for e in found.values() for s in e.free_symbols}
    below = (
        sp.Rational(1, 2)
        - (1 - names["omega"]) * names["T_mean"]
        - names["omega"] * (names["A_12"] + names["A_21"]) / 2
    )
    by_hand = {
        q: 2 * sigma**4 * below,
        m: 2 * sigma**4 * below + 4 * sigma**2 * below,
        theta: 2 * sigma**4 * below + 2 * sigma**4 * (1 - names["omega"]) * names["T_slope"],
    }
    assert all(sp.expand(found[x] - by_hand[x]) == 0 for x in found)


def test_ends_are_stationary_and_the_teacher_is_found():
    """Without a positional part the semantic end is the teacher itself, with no loss."""
    end = online.ends(online.Parameters(omega=0.0, batch=None))["semantic"]
    assert end["theta"] == pytest.approx(0.25, rel=1e-4)
    assert end["q"] == pytest.approx(0.25, rel=1e-4) and end["loss"] == pytest.approx(0, abs=1e-8)


def test_starts_positional_though_the_semantic_end_is_lower():
    """Inside the window, from equal small overlaps; beyond it, the other way round."""
    start = {"cos_p": 0.05, "cos_teacher": 0.05}
    inside, below = (SPHERE.replace(omega=w, **start) for w in (0.7, 0.6))
    ends = online.ends(inside)
    assert ends["semantic"]["loss"] < ends["positional"]["loss"]
    assert [float(online.basin(p).semantic) for p in (inside, below)] == [0.0, 1.0]


def test_the_positional_end_of_free_weights_turns_unstable():
    """At the paper's omega = 0.3 descent leaves it for the teacher, at 0.5 it does not."""
    p = online.Parameters(batch=None)
    rates = [online.ends(p.replace(omega=w))["positional"]["transverse"] for w in (0.3, 0.5)]
    assert rates[0] > 5e-4 and rates[1] < -2e-3


def test_rates_are_those_of_a_gradient():
    """The loss falls along the flow: its derivative is minus the squared gradient of the weights,
    which no single rate tells.
    """
    rates, loss = drift(), population_loss()
    along = sum(sp.diff(loss, x) * rates[x] for x in rates)
    grad = [sp.diff(loss, x) for x in (q, m, theta)]
    # |grad_w|^2 with w.w = q/sigma^2, w.p = m, w.b = theta/sigma^2 and orthonormal p, b
    inner = {
        (0, 0): 4 * sigma**2 * q,
        (0, 1): 2 * sigma**2 * m,
        (0, 2): 2 * sigma**2 * theta,
        (1, 1): 1,
        (2, 2): sigma**4,
    }
    square = sum((1 if i == j else 2) * c * grad[i] * grad[j] for (i, j), c in inner.items())
    assert sp.expand((along + square).doit()) == 0


def test_cosines_belong_to_a_vector():
    """Refused in one line."""
    with pytest.raises(ParameterError, match="cos_p = 0.9: its square"):
        online.Parameters(cos_p=0.9, cos_teacher=0.9)


def test_free_weights_have_no_escape_time():
    """Their norm, and with it the rate, changes on the way: at the initial norm the rates of the
    default setting say 12374, where the flow takes 200.
    """
    at = online.growth_rates(online.Parameters(batch=None))
    assert at.growth_theta > 0 and np.isnan(at.T_theta) and np.isnan(at.T_m)
    assert np.isfinite(online.growth_rates(SPHERE).T_theta)


def test_fields_that_nodes_do_not_resolve_are_refused():
    """At once and by name; at the widest fields rates are right to half a percent."""
    for wide in ({"scale": 100.0}, {"sigma": 10.0}):
        with pytest.raises(ParameterError, match=r"= (50|10): must be at most 1.25"):
            online.onset(online.Parameters(**wide))
    point = 1.25**2, 0.75, 0.1, 0.5
    found = means.value((1, 0), (1, 0, 0, 0, 0, 0), (0, 0, 0), *point)
    assert found == pytest.approx(directly(*MONOMIALS[0], *point, order=40), rel=5e-3)


def test_times_without_ends():
    """Emergence times are those of the growth rates, in t, one per overlap."""
    p = SPHERE.replace(omega=0.5)
    found, rates = online.emergence_times(p), online.growth_rates(p)
    assert {x: float(v) for x, v in found.items()} == {
        x: float(rates[x]) for x in ("T_m", "T_theta")
    }
    assert 0 < found.T_theta < found.T_m < np.inf
    assert found.T_m.units == found.T_theta.units == "t = eta * steps / d"


def test_an_end_that_is_not_reached_leaves_the_rest():
    """The noise of large steps drives the norm away: growth rates stay, notes say why."""
    p = online.Parameters(eta=1e4)
    found, rates = online.onset(p), online.growth_rates(p)
    assert {x: found.numbers[x] for x in ("growth_m", "growth_theta")} == {
        x: float(rates[x]) for x in ("growth_m", "growth_theta")
    }
    assert np.isfinite(found.numbers["growth_m"]) and np.isnan(found.numbers["loss_semantic"])
    assert any(n.startswith("loss_semantic: omega = 0.3") for n in found.notes)
    assert any("omega_loss, looked for from omega = 0.05" in n for n in found.notes)
    assert "see notes" in found.table(wide=True)  # at any width of the terminal
