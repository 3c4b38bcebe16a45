"""Gradient lemma: the gradient of the cross-entropy is an associative memory, a sum of outer
products of outputs and inputs.
"""

from functools import cache

import sympy as sp

from theory import Equation, array, delta_gradient, delta_sum, proved, symbol, table
from theory.associative_memory.symbols import (
    F,
    K,
    N,
    W,
    d,
    e,
    i,
    j,
    k,
    l,
    p,
    p_hat,
    ref,
    u,
    v,
    x,
    y,
    z,
)

delta = sp.KroneckerDelta
SLIDES = ref("slides, lemma 'gradients as memories'")
sample_loss = symbol("loss_sample", r"\ell", "cross-entropy of one sample", real=True)
risk = symbol("risk", "L(W)", "mean cross-entropy", real=True)
hidden = array("h_hidden", "h", "output of an inner matrix")
mean = array("mu_class", r"\mu", "mean input of a class")
mean_hat = array("mu_class_hat", r"\hat{\mu}", "mean input weighted by the prediction of a class")
prior = array("p_class", "p", "probability of a class")


def score() -> sp.Expr:
    """``F_k(z) = u_k^T W e_z``."""
    return sp.Sum(u[k, l] * W[l, x] * e[z, x], (l, 1, d), (x, 1, d))


def score_gradient() -> sp.Expr:
    """Derivative of a score with respect to an entry of W: the outer product of output and
    input.
    """
    return delta_gradient(score(), W[i, j])


def backward() -> sp.Expr:
    """Derivative of ``ln sum_l exp F_l - F_y`` with respect to the score F_k, in terms of the
    prediction.
    """
    partition = sp.Sum(sp.exp(F[l]), (l, 1, K))
    derivative = sp.diff(sp.log(partition) - F[y], F[k])
    resolved = derivative.replace(
        lambda q: isinstance(q, sp.Sum) and q.has(delta), lambda q: delta_sum(q.function, *q.limits)
    )
    return sp.expand(resolved.subs(sp.exp(F[k]), p_hat[k] * partition))


def averaged() -> sp.Expr:
    """Mean of (p_hat_k - delta_yk) over the answers y of one key with probabilities p(y|z)."""
    residual = backward().subs(p_hat[k], p_hat[k, z])
    total = delta_sum(residual.coeff(delta(k, y)) * delta(k, y) * p[y, z], (y, 1, K))
    # The other terms do not depend on y, and sum_y p(y|z) = 1.
    return sp.expand(total + residual - residual.coeff(delta(k, y)) * delta(k, y))


@cache
def equations() -> dict[str, Equation]:
    """Score, its gradient, the backward factor, the lemma, and its forms for noisy inputs and inner
    matrices.
    """
    outer = score_gradient()
    residual = averaged()
    weight = array("p_key", "p", "probability of a key")
    entry = sp.Sum(weight[z] * residual * outer, (k, 1, K), (z, 1, N))
    # Noisy inputs: samples x with vectors e_x, collected by class.
    back = backward()
    per_class = back.coeff(delta(k, y)) * prior[k] * mean[k, j] + (
        back - back.coeff(delta(k, y)) * delta(k, y)
    ).subs(p_hat[k], prior[k] * mean_hat[k, j])
    noisy = sp.Sum(sp.factor(per_class) * u[k, i], (k, 1, K))
    inner = sp.Sum(W[l, x] * e[z, x], (x, 1, d))
    chain = delta_sum(v[l] * delta_sum(delta(l, i) * delta(x, j) * e[z, x], (x, 1, d)), (l, 1, d))
    proved(
        sp.expand(chain - v[i] * e[z, j]) == 0,
        "the gradient of an inner matrix is not an outer product",
    )
    means = "mu_k: mean input of class k; mu_hat_k: mean of input times prediction of k, over p(k)"
    slope, of_loss = (sp.Derivative(of, W[i, j]) for of in (risk, sample_loss))
    is_v = "v is the derivative of the loss by the output W e_z of the matrix"
    return {
        **table(
            SLIDES,
            status="exact",
            score=(F[k], score()),
            score_gradient=(sp.Derivative(F[k], W[i, j]), outer),
            backward=(sp.Derivative(sample_loss, F[k]), back, "cross-entropy of one sample"),
            gradient_lemma=(slope, entry, "any law of (z, y)"),
        ),
        **table(
            ref("derived here, for inputs that are not embeddings"),
            status="exact",
            gradient_noisy=(slope, noisy, means),
        ),
        **table(
            ref("slides, 'more generally, replace u_k by a backward vector'"),
            status="exact",
            hidden=(hidden[l], inner),
            gradient_inner=(of_loss, chain, is_v),
        ),
    }
