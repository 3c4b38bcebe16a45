"""Gradients as associative memories: lemma, one step, and gradient flow (slides; Bietti
et al. 2023).
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import sympy as sp

from theory import (
    Allowed,
    BaseParameters,
    Chapter,
    Equation,
    Flow,
    ParameterError,
    Preset,
    Scope,
    array,
    delta_gradient,
    delta_sum,
    parameter,
    proved,
    symbol,
    vanishes,
    written_as,
)
from theory.associative_memory.symbols import (
    DERIVED,
    F,
    K,
    L,
    N,
    W,
    d,
    e,
    eta,
    i,
    j,
    k,
    l,
    m,
    p,
    p_hat,
    ref,
    t,
    u,
    v,
    x,
    y,
    z,
)
from theory.call import scope
from theory.dynamics.catalogue import cache, catalogue
from theory.symbols.fractions import factored
from theory.symbols.special import log_linear

__all__ = ["Parameters", "applies", "equations", "flow", "flows", "margin", "sections"]


# Parameters of the gradient-as-memory system, and which learners its theory describes


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """Uniform keys ``z`` with one correct class each, orthonormal embeddings, zero
    initial weights.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    # As many classes as keys (slides); four classes.
    PRESETS = {
        "bijection": Preset("Every key has a class of its own."),
        "few_classes": Preset("All keys share four classes.", K=4),
    }
    N: int = parameter(32, "keys", low=2)
    K: int = parameter(32, "classes, at most N", low=2)
    eta: float = parameter(1.0, "learning rate", above=0)

    def __post_init__(self) -> None:
        """Check single fields, then that every class has a key."""
        super().__post_init__()
        if self.K > self.N:
            raise ParameterError(f"K = {self.K}: must be <= N = {self.N}")


MEMORY = Scope(
    "the flow of the margin", "uniform keys and orthonormal embeddings, zero start"
)
applies = scope.applies({"flow": MEMORY})


# One step from zero, and gradient flow at all times

ASSUMED = ("orthonormal embeddings", "uniform keys, one right class each")
logit_right = symbol(
    "s_right", r"u_{f(z)}^{\top} W_1 e_z", "right score after one step", real=True
)
logit_wrong = symbol(
    "s_wrong", r"u_{k}^{\top} W_1 e_z", "wrong score after one step", real=True
)
half_time = symbol(
    "t_half", r"t_{1/2}", "time at which half the loss is left", positive=True
)


def rates() -> tuple[sp.Expr, sp.Expr]:
    """Rates of the correct and of a wrong logit at margin m, by the gradient lemma.

    The residual in the lemma is prediction minus truth. With orthonormal embeddings the
    logit of (k, z) changes only by the residual of (k, z), times the probability 1/N of
    the key.
    """
    partition = sp.exp(m) + K - 1
    right = sp.exp(m) / partition
    return (1 - right) / N, -1 / partition / N


LOSS = sp.log(1 + (K - 1) * sp.exp(-m))


@cache
def flow() -> Flow:
    """Flow of the margin in t = eta * steps."""
    right, wrong = rates()
    rate = written_as(K / N / (sp.exp(m) + K - 1), factored(right - wrong))
    return Flow(
        name="gradient_memory",
        time=t,
        rhs={m: rate},
        initial={m: sp.S.Zero},
        reference=ref(DERIVED),
        status="exact",
        assumptions=ASSUMED,
        observables={"loss": LOSS},
        scope=MEMORY,
        clock="eta * steps",
    )


@cache
def descent_equations() -> dict[str, Equation]:
    """Logits, margin and loss after one step; margin of the flow, and the time at which
    its loss has halved.
    """
    by_right, by_wrong = (factored(eta * rate.subs(m, 0)) for rate in rates())
    right = written_as(eta / N * (1 - 1 / K), by_right)
    wrong = written_as(-eta / (N * K), by_wrong)
    margin = factored(right - wrong)
    step = Chapter(ref, "one step from W = 0", *ASSUMED, status="exact")
    slides = (
        "slides, one gradient step on the population loss; constant 1/K where the"
        " slides print 1/N (there K = N)"
    )
    step.state("step_right", logit_right, right, slides)
    step.state("step_wrong", logit_wrong, wrong, slides)
    step.state("step_margin", m, margin, DERIVED)
    step.state("step_loss", L, LOSS.subs(m, margin), DERIVED)
    # Separate variables: (e^m + K - 1) dm = K dt / N.
    travelled = sp.integrate(sp.expand(K / N / flow().rhs[m]), (m, 0, m))
    elapsed = K * t / N
    clock = sp.expand(travelled - elapsed)  # increases with m: one root
    start = (1 + elapsed) / (K - 1)
    closed = start - sp.LambertW(sp.exp(start) / (K - 1))
    W = sp.Dummy("W")  # W e^W = e^start / (K - 1)
    gap = clock.subs(sp.exp(m), (K - 1) * W).subs(m, start - W)
    proved(vanishes(gap), "the margin does not solve the separated equation")
    root = sp.Symbol("root", positive=True)  # sqrt(K)
    grown = sp.Symbol("E")  # e^m, where the loss is half of ln K
    goal = sp.solve(sp.Eq(1 + (root**2 - 1) / grown, root), grown)[0]
    goal = sp.factor(goal).subs(root, sp.sqrt(K))
    half = factored(N / K * travelled.subs(m, sp.log(goal)))
    half = written_as(N / K * (sp.sqrt(K) + (K - 1) * sp.log(sp.sqrt(K) + 1)), half)
    descent = Chapter(ref(DERIVED), *ASSUMED, status="exact")
    descent.state("margin_loss", L, LOSS)
    descent.state("margin_implicit", elapsed, travelled)
    descent.state("margin_flow", m, closed)
    halved = "loss half of its initial ln K"
    descent.state("half_loss_time", half_time, half, halved)
    return step.equations | descent.equations


# Gradient lemma

delta = sp.KroneckerDelta
LEMMA = "slides, lemma 'gradients as memories'"
sample_loss = symbol("loss_sample", r"\ell", "cross-entropy of one sample", real=True)
risk = symbol("risk", "L(W)", "mean cross-entropy", real=True)
hidden = array("h_hidden", "h", "output of an inner matrix")
mean = array("mu_class", r"\mu", "mean input of a class")
mean_hat = array(
    "mu_class_hat", r"\hat{\mu}", "mean input weighted by the prediction of a class"
)
prior = array("p_class", "p", "probability of a class")


def score() -> sp.Expr:
    """``F_k(z) = u_k^T W e_z``."""
    return sp.Sum(u[k, l] * W[l, x] * e[z, x], (l, 1, d), (x, 1, d))


def score_gradient() -> sp.Expr:
    """Derivative of a score with respect to an entry of W: the outer product of output
    and input.
    """
    return delta_gradient(score(), W[i, j])


def backward() -> sp.Expr:
    """Derivative of ``ln sum_l exp F_l - F_y`` with respect to the score F_k, in terms
    of the prediction.
    """
    partition = sp.Sum(sp.exp(F[l]), (l, 1, K))
    derivative = sp.diff(sp.log(partition) - F[y], F[k])
    for term in derivative.atoms(sp.Sum):
        if term.has(delta):
            resolved = delta_sum(term.function, *term.limits)
            derivative = derivative.subs(term, resolved)
    return sp.expand(derivative.subs(sp.exp(F[k]), p_hat[k] * partition))


def averaged() -> sp.Expr:
    """Mean of (p_hat_k - delta_yk) over the answers y of one key with probabilities
    p(y|z).
    """
    residual = backward().subs(p_hat[k], p_hat[k, z])
    right = delta(k, y)
    truth = residual.coeff(right) * right
    total = delta_sum(truth * p[y, z], (y, 1, K))
    # The other terms do not depend on y, and sum_y p(y|z) = 1.
    return sp.expand(total + residual - truth)


@cache
def lemma_equations() -> dict[str, Equation]:
    """Score, its gradient, the backward factor, the lemma, and its forms for noisy
    inputs and inner matrices.
    """
    chapter = Chapter(ref, status="exact")
    entry = W[i, j]
    chapter.state("score", F[k], score(), LEMMA)
    outer = score_gradient()
    chapter.state("score_gradient", sp.Derivative(F[k], entry), outer, LEMMA)
    back = backward()
    chapter.state(
        "backward",
        sp.Derivative(sample_loss, F[k]),
        back,
        LEMMA,
        "cross-entropy of one sample",
    )
    weight = array("p_key", "p", "probability of a key")
    mean_outer = sp.Sum(weight[z] * averaged() * outer, (k, 1, K), (z, 1, N))
    slope = sp.Derivative(risk, entry)
    chapter.state("gradient_lemma", slope, mean_outer, LEMMA, "any law of (z, y)")
    # Noisy inputs: samples x with vectors e_x, collected by class.
    truth = back.coeff(delta(k, y))
    predicted = back - truth * delta(k, y)
    per_class = truth * prior[k] * mean[k, j]
    per_class += predicted.subs(p_hat[k], prior[k] * mean_hat[k, j])
    noisy = sp.Sum(sp.factor(per_class) * u[k, i], (k, 1, K))
    chapter.state(
        "gradient_noisy",
        slope,
        noisy,
        "derived here, for inputs that are not embeddings",
        "mu_k: mean input of class k; mu_hat_k: mean of input times prediction of k,"
        " over p(k)",
    )
    # An inner matrix.
    general = "slides, 'more generally, replace u_k by a backward vector'"
    inner = sp.Sum(W[l, x] * e[z, x], (x, 1, d))
    chapter.state("hidden", hidden[l], inner, general)
    of_output = delta_sum(delta(l, i) * delta(x, j) * e[z, x], (x, 1, d))
    chain = delta_sum(v[l] * of_output, (l, 1, d))
    is_outer = sp.expand(chain - v[i] * e[z, j]) == 0
    proved(is_outer, "the gradient of an inner matrix is not an outer product")
    is_v = "v is the derivative of the loss by the output W e_z of the matrix"
    of_loss = sp.Derivative(sample_loss, entry)
    chapter.state("gradient_inner", of_loss, chain, general, is_v)
    return chapter.equations


# The margin as a number

Times = Annotated[np.ndarray | float, Allowed(low=0)]


@scope.pointwise(MEMORY)
def margin(p: Parameters, t: Times) -> np.ndarray:
    """Margin of `margin_flow` at times ``t = eta * steps``, without overflow."""
    others = p.K - 1
    return log_linear((1 + p.K * np.asarray(t, float) / p.N) / others, others)


flows, sections, equations = catalogue(
    {
        "Gradients as memories": [lemma_equations],
        "One gradient step, and descent to the end": [descent_equations, flow],
    },
    flow,
)
