"""State tracking with a bypass: the flow is descent of all weights, its limits are the plain
student's flow and that of a student with fewer states.
"""

import itertools

import numpy as np
import pytest
import scipy.integrate
import sympy as sp
import torch

from simulate.state_tracking import bypass as students
from simulate.state_tracking.student import Student as Plain
from theory import numeric
from theory import state_tracking as st
from theory.parameters import ParameterError
from theory.state_tracking import attention, bypass, regular
from theory.state_tracking import symbols as of_paper
from theory.state_tracking.bypass import LENGTH, N, b, compiled, d_g, stated
from theory.statement import kept
from verify.state_tracking import bypass as checks

POINT = {"R": 0.9, "S": 0.3, "none": -0.2, "u": 0.4, "u_none": -0.1, "theta": 0.6}


def lifted(states, actions, strength):
    """A student with one number per class of its weights, and its teachers."""
    p = bypass.Parameters(N=states, d_g=actions, b=strength)
    perms = students.teachers(states, actions, np.random.default_rng(1))
    student, at = students.Student(p), np.arange(states)
    M = np.full((actions, states, states), POINT["none"])
    U = np.full((states, states), POINT["u_none"])
    for a, c in itertools.product(range(actions), repeat=2):
        M[a, perms[c], at] = POINT["R" if a == c else "S"]
        U[perms[a], at] = POINT["u"]
    with torch.no_grad():
        student.weights["M"].copy_(torch.as_tensor(M))
        student.weights["U"].copy_(torch.as_tensor(U))
        student.weights["theta"].fill_(POINT["theta"])
    return student, perms


def all_sequences(perms):
    """Every sequence of actions from every state."""
    actions, N = perms.shape
    acts = np.array(list(itertools.product(range(actions), repeat=LENGTH))).repeat(N, 0)
    states = [np.tile(np.arange(N), len(acts) // N)]
    for t in range(LENGTH):
        states.append(perms[acts[:, t], states[-1]])
    return torch.as_tensor(acts), torch.as_tensor(np.stack(states, 1))


def classes(student, perms):
    """Descent of every entry, by class: own, other, none of M; led to, none of U; the score."""
    M, U, theta = (-student.weights[n].grad.numpy() for n in ("M", "U", "theta"))
    at, led = np.arange(perms.shape[1]), np.zeros(U.shape, dtype=bool)
    led[perms, at] = True
    each = M[:, perms, at]  # by matrix, by action that leads there
    same = np.eye(len(perms), dtype=bool)
    return {
        "R": each[same],
        "S": each[~same],
        "none": M[:, ~led],
        "u": U[led],
        "u_none": U[~led],
        "theta": theta[None],
    }


@pytest.fixture(scope="module")
def rates():
    """Compiled rates of the statement's flow, by name."""
    flow = kept.derived(stated).flow
    function = numeric.function([*flow.rhs.values()], [*flow.state, N, d_g, b])

    def at(theta, own, other, alone, *sizes):
        values = dict(theta=theta, delta_M_1=own, delta_M_0=other, delta_U=alone)
        found = function(*(values[q.name] for q in flow.state), *sizes)
        return {q.name: float(x) for q, x in zip(flow.state, found, strict=True)}

    return at


@pytest.mark.parametrize(("sizes", "strength"), [((4, 3), 0.7), ((3, 2), 0.0), ((5, 2), 2.0)])
def test_flow_is_descent_of_all_weights(rates, sizes, strength):
    """Gradient of every weight of the student on all sequences: one value per class, to rounding,
    and the statement's rates.

    It would see any wrong weight of an occupancy (they change rates by 1% and more), and a class
    that falls apart.
    """
    student, perms = lifted(*sizes, strength)
    student.loss(*all_sequences(perms)).backward()
    found = classes(student, perms)
    assert max(np.ptp(x) for x in found.values()) < 1e-15
    mean = {name: x.mean() for name, x in found.items()}
    x = POINT
    expected = rates(
        x["theta"], x["R"] - x["none"], x["S"] - x["none"], x["u"] - x["u_none"], *sizes, strength
    )
    measured = {
        "theta": mean["theta"],
        "delta_M_1": mean["R"] - mean["none"],
        "delta_M_0": mean["S"] - mean["none"],
        "delta_U": mean["u"] - mean["u_none"],
    }
    assert measured == pytest.approx(expected, rel=1e-12)


def test_teachers_that_meet_are_not_described(rates):
    """Two actions that lead to the same state split the classes."""
    student, _ = lifted(4, 3, 0.7)
    perms = np.array([[1, 2, 3, 0], [2, 3, 0, 1], [1, 0, 3, 2]])
    student.loss(*all_sequences(perms)).backward()
    found = classes(student, perms)
    assert max(np.ptp(x) for x in found.values()) > 1e-3


def plain(states):
    """Rates of D and of A per attention's factor, by the flow of a group acting on itself."""
    flow, q = regular.flow(LENGTH, states), of_paper
    rate = {x.name: flow.rhs[x].subs({q.eta: 1, q.c_omega: 1}) for x in flow.state}
    function = numeric.function([rate["R"] - rate["S"], rate["A"]], [q.A, q.R, q.S])
    closure = attention.equations()["c_closure"].rhs.subs({q.L: LENGTH, q.c_omega: 1})

    def at(A, R, S):
        D, moved = function(A, R, S)
        return D, moved / float(closure.subs(q.A, A))

    return at


@pytest.mark.parametrize("own", [0.2, 1.3])
def test_no_bypass_and_all_states_led_to_is_the_plain_flow(rates, own):
    """b = 0, N to d_g, from both sides: that of a group acting on itself, whose time alpha is
    ``t / (eta d_g N)`` and whose attention moves by its score. The mean of both sides is off by
    the square of their distance.
    """
    size, theta, other = 5, 0.4, 0.1
    A = np.exp(theta) / (np.exp(theta) + LENGTH - 1)
    D, force = plain(size)(A, own + other, other)
    sides = [rates(theta, own + other, other, 0.7, size + x, size, 0.0) for x in (-1e-4, 1e-4)]
    found = {name: (sides[0][name] + sides[1][name]) / 2 for name in sides[0]}
    assert size**2 * (found["delta_M_1"] - found["delta_M_0"]) == pytest.approx(D, rel=1e-6)
    assert found["theta"] == pytest.approx(A * (1 - A) * force, rel=1e-6)


def test_a_known_state_leaves_a_student_of_fewer_states(rates):
    """h to infinity: as with d_g states, all of which are led to."""
    N, size, theta, own = 9, 4, 0.4, 0.8
    A = np.exp(theta) / (np.exp(theta) + LENGTH - 1)
    D, force = plain(size)(A, own, 0.0)
    found = rates(theta, own, 0.0, 60.0, N, size, 1.0)
    assert N * size * (found["delta_M_1"] - found["delta_M_0"]) == pytest.approx(D, rel=1e-12)
    assert found["theta"] == pytest.approx(A * (1 - A) * force, rel=1e-12)
    far = rates(theta, own, 0.0, 1.0, N, size, 1.0)  # where it is not known
    assert N * size * (far["delta_M_1"] - far["delta_M_0"]) != pytest.approx(D, rel=1e-3)


def test_forms_of_more_than_theta_d_and_h_are_refused():
    """How h is shared between M and U does not follow from theta, D and h."""
    alone, other = (bypass.order_parameters()[x] for x in ("delta_U", "delta_M_0"))
    assert bypass.by_two(other + b * alone) == bypass.h
    with pytest.raises(ArithmeticError, match="at another with the same D, h"):
        bypass.by_two(alone)


def test_stages_in_print():
    """Rates at the start, specificity, loss of the first stage."""
    L, found = LENGTH, {k: e.rhs for k, e in bypass.stage_equations().items()}
    assert sp.simplify(found["bypass_rate_D"] - 1 / (L * N * d_g)) == 0
    h = (b**2 + (1 - sp.Rational(1, L)) / d_g) / (N * d_g)
    assert sp.simplify(found["bypass_rate_h"] - h) == 0
    one = 1 / (L * ((1 - 1 / N) / L + (1 - d_g / N) * (b**2 + (1 - sp.Rational(1, L)) / d_g)))
    assert sp.simplify(found["bypass_specificity"] - one) == 0
    assert found["bypass_guess"] == sp.log(d_g)


def test_specificity_is_that_of_the_student():
    """By intervention, after one step of plain descent on all sequences."""
    p = bypass.Parameters(N=4, d_g=3, b=0.8)
    perms = students.teachers(4, 3, np.random.default_rng(2))
    student, data = students.Student(p), all_sequences(perms)
    student.loss(*data).backward()
    with torch.no_grad():
        for w in student.weights.values():
            w -= w.grad
    found = students.measured(student, perms, *data)
    expected = bypass.stage_equations()["bypass_specificity"].evaluate({"N": 4, "d_g": 3, "b": 0.8})
    assert 1 - found["S"] / found["R"] == pytest.approx(float(expected), rel=1e-10)


def test_attention_does_not_wait_and_the_guess_may_come_first():
    """T_A moves by 0.3% up to b = 3, while the guess overtakes it."""
    base, far = bypass.Parameters(b=0.0), bypass.Parameters(b=3.0)
    assert bypass.emergence_time(far) == pytest.approx(bypass.emergence_time(base), rel=5e-3)
    assert bypass.guess_time(base) > 3 * bypass.emergence_time(base)
    assert bypass.guess_time(far) < bypass.emergence_time(far) / 5


def test_descent_follows_the_flow():
    """One student, large batches and small steps, at the time of A = 1/2 by the flow."""
    p = bypass.Parameters(N=6, d_g=3, b=2.0, eta=0.4)
    runs = checks.trained(p, range(1))  # times of three scatter by 0.2%
    there = checks.first_crossing(runs.A, 0.5).values
    assert there.mean() == pytest.approx(bypass.emergence_time(p), rel=0.05)
    # Before attention, by the flow at the same attention; steps and the grid move it by a per cent.
    # By the compiled rates, as `emergence_time`: a Jacobian of theirs takes ten seconds to derive.
    names, rates = list(bypass.order_parameters()), compiled()
    path = scipy.integrate.solve_ivp(
        lambda t, y: rates(*y, p.N, p.d_g, p.b)[: len(names)],
        (0, there.mean()),
        np.zeros(len(names)),
        method="LSODA",
        t_eval=np.linspace(0, there.mean(), 401)[1:],
        rtol=1e-9,
        atol=1e-10,
    )
    A = np.exp(path.y[names.index("theta")])
    A = A / (A + LENGTH - 1)
    at = dict(
        zip(names, path.y.T[np.abs(A - (1 + (LENGTH - 1) * 0.1) / LENGTH).argmin()], strict=True)
    )
    known = {
        bypass.D: at["delta_M_1"] - at["delta_M_0"],
        bypass.h: at["delta_M_0"] + p.b * at["delta_U"],
        bypass.N: p.N,
        bypass.d_g: p.d_g,
    }
    expected = float(bypass.specific_at().subs(known))
    assert checks.early(runs).mean() == pytest.approx(expected, rel=0.02)


def test_without_bypass_logits_are_those_of_the_plain_student():
    """At the same attention, matrix by matrix."""
    student, perms = lifted(4, 3, 0.0)
    p = st.Parameters(N=4, L=LENGTH, d_g=3, d_h=2)
    weights = {"W_Q": np.ones((2, 1)), "W_K": np.ones((2, 1))}
    M = student.weights["M"].detach().numpy()
    one = Plain(p, {**weights, "M": M}, torch.float64)
    actions, states = (x[:50] for x in all_sequences(perms))
    paid = student.attention.expand(len(actions), -1, -1)
    theirs = one.logic(one.retrieve(paid, actions), states[:, :-1])
    assert torch.allclose(
        theirs, student.logits(student.attention, actions, states[:, :-1]), atol=1e-14
    )


def test_neither_theory_takes_the_other_student():
    """One line each, naming the field."""
    with pytest.raises(ParameterError, match="b: unknown parameter"):
        st.Parameters(b=1.0)
    with pytest.raises(
        ParameterError, match="is Parameters of state_tracking.bypass; state_tracking needs"
    ):
        st.flow().solve(bypass.Parameters(), alpha=1.0)
    with pytest.raises(ParameterError, match="^p is Parameters of state_tracking; "):
        bypass.emergence_time(st.Parameters())
    with pytest.raises(ParameterError, match="^d_g = 1: must be at least 2 and below N"):
        bypass.emergence_time(bypass.Parameters(N=12, d_g=1))


def test_onset_has_both_times():
    """Each under its name; the guess is first where few states are reached."""
    p = bypass.Parameters(b=2.0)
    found = bypass.onset(p).numbers
    assert found["T_guess"] == bypass.guess_time(p) != bypass.emergence_time(p) == found["T_A"]
