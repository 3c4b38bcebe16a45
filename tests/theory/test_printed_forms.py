"""Every derived equation against the form printed in the paper (arXiv:2606.18164),
typed here by hand.

The printed forms use the project's symbols, so that a difference can be taken, but none
of its derivations. Sums over the sizes are unrolled at small whole numbers where SymPy
has no normal form.
"""

from __future__ import annotations

from functools import cache

import pytest
import sympy as sp

from theory import state_tracking
from theory.numbers.numeric import dirichlet_kernel
from theory.state_tracking import attention as att
from theory.state_tracking import rollout
from theory.state_tracking.model import definitions, mean_field
from theory.state_tracking.model.symbols import (
    A_0,
    W_K2,
    W_Q2,
    A,
    L,
    M,
    M_star,
    N,
    R,
    S,
    a,
    accuracy,
    alpha,
    b,
    c_A,
    c_omega,
    c_R,
    c_S,
    d_g,
    d_h,
    eta,
    g,
    m,
    mu_k,
    mu_kbar,
    n,
    omega,
    p,
    q,
    r,
    s,
    sigma2,
    sigma_k,
    sigma_kbar,
    t,
    tau,
    z_k,
    z_kbar,
    zeta,
)

delta = sp.KroneckerDelta
WRONG_MASS = 1 / (
    1 + sp.exp(m) / (N - 1)
)  # the factor every line of (15) and (59) carries


@cache
def derived(name: str) -> sp.Expr:
    """Right-hand side of one of the model's equations."""
    return state_tracking.equations()[name].rhs


def same(left: sp.Expr, right: sp.Expr) -> bool:
    """Whether SymPy reduces the difference to zero."""
    return sp.simplify(left - right) == 0


PRINTED = {
    # name of the equation: printed form
    "pair_weight": (
        mean_field.pi_i * (delta(a, b) / d_g - 1 / d_g**2) + 1 / d_g**2
    ),  # (33)
    "logit_correct_position": (
        (mean_field.pi_i + (1 - mean_field.pi_i) / d_g) * R
        + (d_g - 1) / d_g * (1 - mean_field.pi_i) * S
    ),  # (35)
    "logit_correct": (
        (A + (1 - A) / d_g) * R + (d_g - 1) / d_g * (1 - A) * S
    ),  # (11), (36)
    "logit_other": (zeta - z_k) / (N - 1),  # (41)
    "loss": -z_k + sp.log(sp.exp(z_k) + (N - 1) * sp.exp(z_kbar)),  # (10), one position
    "margin": z_k - (zeta - z_k) / (N - 1),  # below (15), with (41)
    "g": WRONG_MASS,
    "c_R": A + (1 - A) / d_g,  # (46)
    "c_S": (d_g - 1) / d_g * (1 - A),  # (46)
    "delta_R": eta / (d_g * N) * g * N / (N - 1) * (c_R + c_S * tau - 1 / N),  # (54)
    "delta_R_mean": eta / (d_g * N) * g * (A + (1 - A) / d_g),  # (59a)
    "delta_S_mean": eta / (d_g * N) * g * (1 - A) / d_g,  # (59b)
    "dA_dalpha_chain": eta * c_A * g * N / (N - 1) * (d_g - 1) / d_g * (R - S),  # (64)
    "dA_dpi": 1 / L,  # (65)
    "softmax_derivative": att.pi[att.i] * (delta(att.i, att.k) - att.pi[att.k]),  # (66)
    "lambda": (
        ((sp.sin(att.w * L / 2) / sp.sin(att.w / 2)) ** 2 / L - 1) / (L - 1)
    ),  # (70)
    "lambda_2pi": sp.S.One,  # below (69)
    "c_closure": L * c_omega * A * (1 - A),  # above (14), above (71)
    "sigma_overlap": tau,  # below (58)
    "tau_bar_distinct": (
        1 / N - (N - 1) / (N * (sp.factorial(N) - 1))
    ),  # (77), second form
    "early_A": A_0,  # (78)
    "early_R": eta * (N - 1) / N * (A_0 + (1 - A_0) / d_g) * alpha,  # (78)
    "early_S": eta * (N - 1) / N * (1 - A_0) / d_g * alpha,  # (78)
    "onset_difference": eta * (N - 1) / N / L,  # (79)
    "onset_rate": eta**2 * c_omega * alpha * A,  # (80)
    "onset_A": sp.exp(c_omega / 2 * eta**2 * alpha**2) / L,  # (81)
    "recovery": (1 - accuracy) / (N - 1),  # (86)
    "rollout_mean": (
        (N - 1) / N * ((N * accuracy - 1) / (N - 1)) ** L + 1 / N
    ),  # (18), (87)
}


@pytest.mark.parametrize("name", PRINTED)
def test_printed_form(name):
    """Closed forms without sums over the sizes."""
    assert same(derived(name), PRINTED[name])


def test_flow_15():
    """(15a)-(15c), with the abbreviation g spelled out."""
    flow = state_tracking.flow()
    printed = {
        A: (
            eta
            * WRONG_MASS
            * N
            / (N - 1)
            * (d_g - 1)
            / d_g
            * c_omega
            * L
            * A
            * (1 - A)
            * (R - S)
        ),
        R: eta * WRONG_MASS * (A + (1 - A) / d_g),
        S: eta * WRONG_MASS * (1 - A) / d_g,
    }
    assert list(flow.rhs) == list(printed)
    for x, form in printed.items():
        assert same(flow.rhs[x].subs(g, derived("g")), form)
        assert same(derived(f"d{x.name}_dalpha").subs(g, derived("g")), form)


def test_mean_total_logit_39_to_41_and_12():
    """(39) summed over r is (40), and (41) with (40) is (12)."""
    sums = ((a, 1, d_g), (p, 1, N), (q, 1, N))
    assert same(derived("zeta"), sp.Sum(M[a, p, q], *sums) / (d_g * N))
    eq_12 = -z_k / (N - 1) + sp.Sum(M[a, p, q], *sums) / (d_g * N * (N - 1))
    assert same(derived("logit_other").subs(zeta, derived("zeta")), eq_12)


def test_loss_by_the_margin():
    """(10) depends on the difference of the two mean logits only."""
    loss = -z_k + sp.log(sp.exp(z_k) + (N - 1) * sp.exp(z_kbar))
    margin = sp.exp(derived("loss_of_margin")).subs(m, z_k - z_kbar)
    assert same(sp.expand(margin), sp.expand(sp.exp(loss)))


def test_loss_derivatives_43():
    """(43), and each derivative by differentiating (10)."""
    loss = -z_k + sp.log(sp.exp(z_k) + (N - 1) * sp.exp(z_kbar))
    wrong = WRONG_MASS.subs(m, z_k - z_kbar)
    assert derived("dloss_dz_k") == -derived("dloss_dz_kbar") == -g
    for name, z in (("dloss_dz_k", z_k), ("dloss_dz_kbar", z_kbar)):
        assert same(derived(name).subs(g, wrong), sp.diff(loss, z))


POINTS = [
    dict(zip((A, R, S, zeta, d_g, N), map(sp.Rational, x.split()), strict=True))
    for x in (
        "1/10 0 0 0 32 32",
        "1/3 5/7 -1/5 2/3 2 3",
        "6/7 4 1/9 -3/2 5 2",
        "1 2 3 1/2 1 4",
    )
]


@pytest.mark.parametrize("point", POINTS)
def test_loss_derivative_61(point):
    """dl/dA of (61), (64) by differentiating (10) with (11) and (41) put in."""
    loss = -z_k + sp.log(sp.exp(z_k) + (N - 1) * sp.exp(z_kbar))
    whole = loss.subs(z_kbar, (zeta - z_k) / (N - 1)).subs(
        z_k, PRINTED["logit_correct"]
    )
    margin = PRINTED["margin"].subs(z_k, PRINTED["logit_correct"])
    form = derived("dloss_dA").subs(g, WRONG_MASS.subs(m, margin))
    # Transcendental at a rational point: compared to 40 of the 50 digits carried.
    assert abs((form - sp.diff(whole, A)).subs(point).evalf(50)) < sp.Float(10) ** -40


@pytest.mark.parametrize("own", [1, 2, 3])
def test_entry_gradients_47_to_52(own):
    """(47)-(49) and (52) for three actions, the sum over c != b written out."""
    size = {d_g: 3, b: own}
    teacher = M_star[own, r, s]
    others = sum((M_star[x, r, s] for x in (1, 2, 3) if x != own), sp.S.Zero)
    mean = c_R / (3 * N) * teacher + c_S / (3 * 2 * N) * others  # (48)
    printed = {
        "dR_dM": teacher / (3 * N),
        "dS_dM": others / (3 * 2 * N),
        "dz_k_dM": mean,
        "dz_kbar_dM": -mean / (N - 1) + 1 / (N - 1) / (3 * N),
        # (51) and (52): dl/dz_k = -g
        "update_M": eta * g * N / (N - 1) * (mean - 1 / (3 * N**2)),
    }
    eq_52 = eta / (3 * N) * g * N / (N - 1) * (c_R * teacher + c_S / 2 * others - 1 / N)
    assert same(printed["update_M"], eq_52)
    for name, form in printed.items():
        assert same(derived(name).subs(size).doit(), form), name


def test_off_target_update_56():
    """(56), in which sigma = tau."""
    sigma = definitions.sigma_overlap
    bracket = c_R * tau + c_S * (d_g - 2) / (d_g - 1) * sigma + c_S / (d_g - 1) - 1 / N
    printed = eta / (d_g * N) * g * N / (N - 1) * bracket
    assert same(derived("delta_S"), printed.subs(sigma, tau))


def test_rope_identity_5():
    """(5): rotating query and key to positions i, j leaves the offset j - i."""
    i, j = sp.symbols("i j", integer=True)

    def turn(angle):
        return sp.Matrix(
            [[sp.cos(angle), -sp.sin(angle)], [sp.sin(angle), sp.cos(angle)]]
        )

    query, key = sp.Matrix([att.q1, att.q2]), sp.Matrix([att.k1, att.k2])
    product = ((turn(i * att.w) * query).T * (turn(j * att.w) * key))[0] / sp.sqrt(d_h)
    assert same(derived("attention_logit").subs(att.offset, j - i), sp.expand(product))
    shifted = {"dl_dq_1": 0, "dl_dq_2": 1}  # (67): Omega(k - i - L) W_K
    for name, row in shifted.items():
        assert same(derived(name), (turn(att.w * att.offset) * key)[row] / sp.sqrt(d_h))
    for name, row in {"dl_dk_1": 0, "dl_dk_2": 1}.items():  # (68): Omega(i + L - k) W_Q
        assert same(
            derived(name), (turn(-att.w * att.offset) * query)[row] / sp.sqrt(d_h)
        )


def test_gradient_factor_69():
    """(69) for d_h = 4, with the diagonal matrix Lambda written out."""
    first, second = sp.symbols("lambda_1 lambda_2")  # stand-ins: a matrix wants scalars
    gap = (sp.eye(4) - sp.diag(first, first, second, second)) ** 2
    key, query = sp.Matrix(sp.symbols("k1:5")), sp.Matrix(sp.symbols("q1:5"))
    printed = (
        d_g
        * N
        * A**2
        * (1 - A) ** 2
        * (key.T * gap * key + query.T * gap * query)[0]
        / 4
    )
    printed = printed.subs({first: att.lambda_[1], second: att.lambda_[2]})
    norms = {
        array[block]: sum(v[2 * block - 2 + x] ** 2 for x in (0, 1))
        for array, v in ((W_K2, key), (W_Q2, query))
        for block in (1, 2)
    }
    assert same(derived("c_ansatz").subs(d_h, 4).doit().subs(norms), printed)


def ratio_squared(frequency):
    """The squared ratio of sines of (14) and (70)."""
    return (sp.sin(frequency * L / 2) / sp.sin(frequency / 2)) ** 2


def test_attention_constant_14():
    """(14) as printed: prefactor and summand;
    the kernel is the ratio of sines over L.
    """
    form = derived("c_omega")
    (spectrum,) = form.atoms(sp.Sum)
    assert spectrum.limits == ((n, 1, d_h / 2),)
    assert same(form / spectrum, 2 * d_g * N / (L * (L - 1)) * sigma2 * 2 / d_h)
    assert same(
        spectrum.function.rewrite(sp.sin), (1 - ratio_squared(omega[n]) / L**2) ** 2
    )
    assert spectrum.function.has(
        dirichlet_kernel
    )  # not the bare 0/0 at multiples of 2 pi


def test_attention_constant_73():
    """(73) with Lambda from (70) is (14), for d_h = 4: the trace counts every block
    twice.
    """
    lam = [derived("lambda").subs(att.w, omega[block]) for block in (1, 2)]
    trace = sum(2 * (1 - x) ** 2 for x in lam)
    printed = d_g * N / L * (L - 1) / L**2 * sigma2 * sp.Rational(2, 4) * trace
    assert same(derived("c_omega").subs(d_h, 4).doit().rewrite(sp.sin), printed)


def test_averaged_gradient_factor():
    """(69) averaged over the start is c_omega L^3/(L-1) A^2 (1-A)^2, and meets the
    closure at 1/L.
    """
    averaged = derived("c_ansatz").subs(d_h, 4).doit()
    lam = {att.lambda_[x]: derived("lambda").subs(att.w, omega[x]) for x in (1, 2)}
    norms = {array[x]: 2 * sigma2 for array in (W_K2, W_Q2) for x in (1, 2)}
    constant = derived("c_omega").subs(d_h, 4).doit().rewrite(sp.sin)
    assert same(
        averaged.subs(norms).subs(lam), derived("c_ansatz_mean").subs(c_omega, constant)
    )
    at_start = [derived(x).subs(A, 1 / L) for x in ("c_ansatz_mean", "c_closure")]
    assert same(*at_start)
    assert not same(derived("c_ansatz_mean"), derived("c_closure"))


@pytest.mark.parametrize("size", range(2, 9))
def test_teacher_overlap_75_to_77(size):
    """Both printed forms of (77), exactly, and (75) as N times it."""
    value = derived("tau_bar_distinct").subs(N, size)
    trace = (1 - sp.Rational(1, sp.factorial(size - 1))) / (
        1 - sp.Rational(1, sp.factorial(size))
    )
    assert value == trace / size
    assert value == sp.Rational(1, size) - sp.Rational(1, size) * (size - 1) / (
        sp.factorial(size) - 1
    )


def test_recursion_16_84():
    """One step: right before and still right, or wrong before and recovered."""
    arrays = rollout.right, rollout.wrong, rollout.rho_t
    right, wrong, rho = (x[t] for x in arrays)
    assert same(derived("rollout_recursion"), rho * right + (1 - rho) * wrong)


@pytest.mark.parametrize("steps", range(1, 6))
def test_closed_form_85(steps):
    """(85) is the recursion (84), unrolled from rho_0 = 1."""
    unrolled = sp.S.One
    for step in range(steps):
        unrolled = (
            unrolled * (rollout.right[step] - rollout.wrong[step]) + rollout.wrong[step]
        )
    form = derived("rollout_closed").subs(L, steps).doit()
    # At the first step the state is known, so B_0 must drop out of both.
    assert not form.has(rollout.wrong[0])
    assert sp.expand(unrolled - form) == 0


@pytest.mark.parametrize("steps", range(1, 6))
def test_closed_form_reduces_to_87(steps):
    """(85) with equal accuracies and (86) is (87)."""
    form = derived("rollout_closed").subs(L, steps).doit()
    equal = {rollout.right[x]: accuracy for x in range(steps)}
    equal |= {rollout.wrong[x]: (1 - accuracy) / (N - 1) for x in range(steps)}
    assert same(form.subs(equal), derived("rollout_mean").subs(L, steps))


def test_gaussian_accuracy_89_to_91():
    """(89) and (90) as printed, and (91) from (89) by u = (x - mu_k)/sigma_k."""
    below, u, x, y = sp.Function(r"\Phi"), *sp.symbols("u x y", real=True)
    gauss = sp.exp(-((x - mu_k) ** 2) / (2 * sigma_k**2)) / (
        sp.sqrt(2 * sp.pi) * sigma_k
    )
    eq_89 = gauss * below((x - mu_kbar) / sigma_kbar) ** (N - 1)
    argument = sigma_k / sigma_kbar * u + (mu_k - mu_kbar) / sigma_kbar
    eq_91 = sp.exp(-(u**2) / 2) / sp.sqrt(2 * sp.pi) * below(argument) ** (N - 1)
    line = (-sp.oo, sp.oo)
    for name, variable, integrand in (
        ("accuracy_density", x, eq_89),
        ("accuracy", u, eq_91),
    ):
        form = derived(name)
        assert isinstance(form, sp.Integral) and form.limits == ((variable, *line),)
        assert sp.simplify(form.function / integrand) == 1
    substituted = eq_89.subs(x, mu_k + sigma_k * u) * sigma_k
    assert (
        sp.simplify(sp.expand(substituted) / sp.expand(derived("accuracy").function))
        == 1
    )
    normal = derived("normal_below")
    assert normal.limits == ((y, -sp.oo, u),)
    assert same(normal.function, sp.exp(-(y**2) / 2) / sp.sqrt(2 * sp.pi))
