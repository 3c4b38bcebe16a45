"""Training loss in three equivalent forms (14, 120, 121), its derivative with respect
to alpha, and the test error (10); the linear baseline (19-20).
"""

from functools import cache
from typing import Annotated

import numpy as np
import sympy as sp

from theory import (
    Allowed,
    Chapter,
    Equations,
    ParameterError,
    gauss_hermite,
    linear_root,
    proved,
    symbol,
    vanishes,
    written_as,
)
from theory.call import scope
from theory.positional_semantic import free_entropy, state_evolution
from theory.positional_semantic.channel import State, student_attention, target
from theory.positional_semantic.free_entropy import RS, TWO
from theory.positional_semantic.model.parameters import LINEAR, MINIMUM, Parameters
from theory.positional_semantic.model.symbols import (
    A_12,
    A_21,
    E_M,
    ORDER,
    E_gg,
    E_loss,
    R_gap,
    S_gap,
    V,
    alpha,
    epsilon_t,
    lam,
    omega,
    q,
    q_hat,
    ref,
    sigma,
)

# factors of |y - f|^2/d; ``entry``: mean over the d L entries, L = 2
NORMALISATIONS = {"half": 0.5, "full": 1.0, "entry": 0.5}
epsilon_full = symbol(
    "epsilon_full",
    r"\epsilon_{\mathrm{full}}",
    "test error of a sentence",
    nonnegative=True,
)


@cache
def equations() -> Equations:
    """Training loss in three forms, proved equal at the fixed point; envelope identity;
    test error.
    """
    chapter = Chapter(ref, status="closure")
    phi = free_entropy.equations()["free_entropy"].rhs
    evolution = state_evolution.equations()
    fixed = {x: evolution[x.name].rhs for x in ORDER}
    by_envelope = alpha * E_M - q_hat * V / 2 + lam * q / (2 * sigma**2)
    gap = (-phi - by_envelope).subs(fixed, simultaneous=True)
    proved(vanishes(gap), "the training loss is not minus the free entropy")
    chapter.state(
        "training_loss", epsilon_t, by_envelope, "Eqs. (14), (120)", *RS, *TWO
    )
    # The envelope is the sum of its quadratic term, V g^2/2 per token, and the loss.
    split = {E_M: E_loss + V * E_gg / 2, q_hat: evolution["q_hat"].rhs}
    by_loss = sp.expand(by_envelope.subs(split))
    chapter.state(
        "training_loss_data",
        epsilon_t,
        by_loss,
        "Eqs. (14), (117)",
        *RS,
        *TWO,
        "q_hat at its fixed point",
    )
    slope = sp.Derivative(epsilon_t, alpha)
    form = -sp.diff(phi, alpha)  # all other variables are stationary
    chapter.state(
        "training_loss_slope",
        slope,
        form,
        "beyond Eq. (121)",
        *RS,
        "along a branch, where the free entropy is stationary",
    )
    # squared differences of the rows; both entries of a row differ equally
    error = 2 * sigma**2 * (S_gap + R_gap)
    chapter.state("test_error", epsilon_full, error, "Eqs. (10), (111)", "exact", *TWO)
    return chapter.equations


# Numerical test error at given order parameters

Normalise = Annotated[str, Allowed(choices=tuple(NORMALISATIONS))]
ROUNDING = 1e-9  # relative excess of theta that is taken for a rounding error
Order = Annotated[int, Allowed(low=2, high=64, multiple_of=2)]


@scope.pointwise(MINIMUM)
def test_error(
    p: Parameters, state: State, normalise: Normalise = "half", order: Order = 24
) -> float:
    """Test error (10) of a student with given order parameters.

    Parameters
    ----------
    p : Parameters
        Model.
    state : State
        Order parameters (6).
    normalise : {'half', 'full', 'entry'}
        ``full`` is ``E|y - f|^2/d``; the figures of the paper show ``half`` of it,
        which for two tokens is also the error per entry.
    order : int
        Gauss-Hermite nodes per axis; the integrand is smooth.

    Raises
    ------
    ParameterError
        For an unknown normalisation, an odd number of nodes, or order parameters of no
        student.
    """
    q, m, _, theta = state
    possible = q >= 0 and abs(theta) <= (1 + ROUNDING) * np.sqrt(q) * p.sigma
    if not (possible and np.isfinite(m)):
        raise ParameterError(
            f"state = {state}: must have q >= 0 and |theta| <= sigma sqrt(q)"
        )
    x, weight = gauss_hermite(order)
    rho = p.sigma**2
    half = x > 0  # even under a common sign change, up to the sign of m
    h = p.sigma * np.array(np.meshgrid(x[half], x, indexing="ij"))[..., None, None]
    zeta = np.array(np.meshgrid(x, x, indexing="ij"))[:, None, None]
    spread = np.sqrt(max(q - theta**2 / rho, 0.0))
    mean = np.array([m, -m]).reshape(2, 1, 1, 1, 1)
    total = np.einsum("i,j,k,l->ijkl", 2 * weight[half], weight, weight, weight)
    fields = mean + theta / rho * h + spread * zeta
    first, second = (target(p, h) - student_attention(fields)) ** 2
    values = {
        "sigma": p.sigma,
        "E_S_12": (total * first).sum(),
        "E_S_21": (total * second).sum(),
    }
    return NORMALISATIONS[normalise] * equations()["test_error"].number(values)


# Result 5.1: closed form of the purely positional baseline, a dense linear layer
# (19-20)

P_mean = symbol(
    "P_mean",
    r"\mathbb{E}[P]",
    "mean off-diagonal entry of the teacher's attention",
    positive=True,
)
P_var = symbol("P_var", r"\mathrm{Var}[P]", "its variance", nonnegative=True)
WEIGHT = "trained weight of the linear layer"
W_12 = symbol("W_12", r"\hat{W}_{12}", WEIGHT, real=True)
W_21 = symbol("W_21", r"\hat{W}_{21}", WEIGHT, real=True)
epsilon_lin = symbol(
    "epsilon_lin",
    r"\epsilon_{\mathrm{lin}}",
    "test error of the linear layer",
    nonnegative=True,
)
ASSUMED = (
    "d to infinity: the empirical risk of L^2 parameters is the population risk",
    "two tokens",
)


@cache
def linear_layer() -> Equations:
    """Best linear layer for the target (16), its error, and that of a purely positional
    target.
    """
    # entries of softmax(h h^T) and of the layer
    P, R, W1, W2 = sp.symbols("P R W1 W2", real=True)
    T_12 = (1 - omega) * P + omega * A_12
    T_21 = (1 - omega) * R + omega * A_21
    T = sp.Matrix([[1 - T_12, T_12], [T_21, 1 - T_21]])
    W = sp.Matrix([[1 - W1, W1], [W2, 1 - W2]])
    risk = sp.expand(sigma**2 * ((T - W) * (T - W).T).trace())
    # P and R have the same distribution, as the tokens are exchangeable.
    square = P_var + P_mean**2
    risk = risk.subs({P**2: square, R**2: square}).subs({P: P_mean, R: P_mean})
    # the two conditions are independent
    best_1 = linear_root(sp.diff(risk, W1), W1)
    best_2 = linear_root(sp.diff(risk, W2), W2)
    least = sp.factor(risk.subs({W1: best_1, W2: best_2}))
    error = written_as(4 * sigma**2 * (1 - omega) ** 2 * P_var, least)
    chapter = Chapter(ref, *ASSUMED, status="exact")
    form = sp.collect(sp.expand(best_1), omega)
    chapter.state("W_12", W_12, form, "Eqs. (19), (140)")
    form = sp.collect(sp.expand(best_2), omega)
    chapter.state("W_21", W_21, form, "Eqs. (19), (140)")
    chapter.state("linear_error", epsilon_lin, error, "Eqs. (20), (142)")
    chapter.state(
        "linear_positional",
        W_12,
        best_1.subs(omega, 1),
        "App. D.1, Eq. (142)",
        "omega = 1",
    )
    return chapter.equations


# Numerical values of the linear baseline


@cache
def moments(sigma_: float, order: int = 96) -> tuple[float, float]:
    """Mean and variance of an off-diagonal entry of ``softmax(h h^T)``, ``h ~ N(0,
    sigma^2)``.
    """
    x, weight = gauss_hermite(order)
    h = sigma_ * np.array(np.meshgrid(x, x, indexing="ij"))
    P = student_attention(h)[0]
    mean = weight @ P @ weight
    return mean, float(weight @ (P - mean) ** 2 @ weight)


@scope.pointwise(LINEAR)
def baseline(p: Parameters) -> dict[str, float]:
    """Values of the baseline: ``W_12``, ``W_21``, ``epsilon_lin`` (full error) and
    ``half_test``, half of it, as in the figures.
    """
    mean, variance = moments(p.sigma)
    values = p.values() | {"P_mean": mean, "P_var": variance}
    layer = linear_layer()
    error = layer["linear_error"].number(values)
    return {
        "W_12": layer["W_12"].number(values),
        "W_21": layer["W_21"].number(values),
        "epsilon_lin": error,
        "half_test": error / 2,
    }
