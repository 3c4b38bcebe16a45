"""The gradient lemma, one step, and the gradient flow, against autograd in double
precision.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from sympy import Indexed, Sum
from torch import Tensor

from simulate.training.gradient_flow import Weights, integrate, rates
from theory.associative_memory.gradient_memory import Parameters, equations, margin
from theory.equations.equation import Equation
from verify.checks.check import Check, Sides, identity, listed
from verify.checks.report import Table, derivations

# The gradient lemma, one step, and the gradient flow, against autograd in double
# precision

AUTOGRAD = (1e-12, "autograd in float64")
FEW = (1e-14, "few operations")
N, K, D = 7, 5, 6
GENERATOR = 2025


class Inputs:
    """A random joint distribution of keys and classes,
    random embeddings and weights.
    """

    def __init__(self) -> None:
        rng = np.random.default_rng(GENERATOR)
        self.rng = rng
        self.key = rng.dirichlet(np.ones(N))
        self.law = rng.dirichlet(np.ones(K), size=N).T  # (class, key)
        self.e, self.u = rng.normal(size=(N, D)), rng.normal(size=(K, D))
        self.W = torch.tensor(rng.normal(size=(D, D)), requires_grad=True)

    def loss(self, scores: Tensor) -> Tensor:
        """Mean cross-entropy of scores ``(key, class)``."""
        truth = torch.tensor(self.law.T * self.key[:, None])
        return -(truth * torch.log_softmax(scores, dim=1)).sum()

    def scores(self, W: Tensor) -> Tensor:
        """``u_k^T W e_z``, shape ``(key, class)``."""
        return torch.tensor(self.e) @ W.T @ torch.tensor(self.u).T

    def prediction(self) -> np.ndarray:
        """Softmax, shape ``(class, key)``."""
        return torch.softmax(self.scores(self.W), dim=1).detach().numpy().T


def _entries(equation: Equation, values: dict[str, np.ndarray]) -> np.ndarray:
    """Evaluate the summand of an equation in its indexed entries; the caller sums."""
    body = equation.rhs.replace(lambda q: isinstance(q, Sum), lambda q: q.function)
    given = {x: values[x.base.label.name] for x in body.atoms(Indexed)}
    return np.asarray(replace(equation, rhs=body).evaluate(given))


def lemma(eq: Table) -> list[Check]:
    """Gradient as a sum of outer products, with the residual per (key, class) from the
    backward equation and the probabilities of the keys.
    """
    x = Inputs()
    (measured,) = torch.autograd.grad(x.loss(x.scores(x.W)), x.W)
    known = {"e": x.e[:, None, None, :], "u": x.u[None, :, :, None]}  # (z, k, i, j)
    outer = _entries(eq["score_gradient"], known)
    known |= {"p_hat": x.prediction().T[..., None, None], "p": x.law.T[..., None, None]}
    residual = _entries(
        eq["gradient_lemma"], known | {"p_key": x.key[:, None, None, None]}
    )
    one = torch.zeros(D, D, dtype=torch.float64, requires_grad=True)
    (score,) = torch.autograd.grad(x.scores(one)[2, 3], one)
    whole, name = residual.sum((0, 1)), "gradient_lemma"
    return [
        identity(
            "derivative of a score",
            "score_gradient",
            outer[2, 3],
            score.numpy(),
            *AUTOGRAD,
        ),
        identity("gradient lemma", name, whole, measured.numpy(), *AUTOGRAD),
    ]


def noisy(eq: Table) -> list[Check]:
    """Noisy inputs: class means against prediction-weighted means."""
    x, name = Inputs(), "gradient_noisy"
    (measured,) = torch.autograd.grad(x.loss(x.scores(x.W)), x.W)
    prior = x.law @ x.key
    mean = (x.law * x.key) @ x.e / prior[:, None]
    mean_hat = (x.prediction() * x.key) @ x.e / prior[:, None]
    known = {"mu_class": mean[:, None, :], "mu_class_hat": mean_hat[:, None, :]}
    known |= {"p_class": prior[:, None, None], "u": x.u[:, :, None]}
    whole = _entries(eq[name], known).sum(0)
    return [
        identity("gradient for noisy inputs", name, whole, measured.numpy(), *AUTOGRAD)
    ]


def inner(eq: Table) -> list[Check]:
    """Inner matrix of ``u_k^T U relu(W e_z)``: outer product of the backward vector and
    the input.
    """
    x, name = Inputs(), "gradient_inner"
    U = torch.tensor(x.rng.normal(size=(D, D)))
    e = torch.tensor(x.e)
    u = torch.tensor(x.u)
    hidden = (e @ x.W.T).detach().requires_grad_()
    (v,) = torch.autograd.grad(x.loss(torch.relu(hidden) @ U.T @ u.T), hidden)
    (measured,) = torch.autograd.grad(x.loss(torch.relu(e @ x.W.T) @ U.T @ u.T), x.W)
    whole = _entries(eq[name], {"v": v.numpy()[:, :, None], "e": x.e[:, None, :]}).sum(
        0
    )
    return [
        identity(
            "gradient of an inner matrix", name, whole, measured.numpy(), *AUTOGRAD
        )
    ]


@listed
def steps(eq: Table) -> Iterator[Check]:
    """One step from zero with orthonormal embeddings and f(z) = z mod K; the flow of
    all weights against the closed margin.
    """
    p, time = Parameters(N=12, K=4, eta=3.0), 60.0
    target = torch.arange(p.N) % p.K
    hit = torch.nn.functional.one_hot(target, p.K).T.bool()

    def risk(weights: Weights) -> Tensor:
        return torch.nn.functional.cross_entropy(weights["W"].T, target)

    def gaps(W: Tensor) -> Tensor:
        return (W.gather(0, target[None]) - W)[~hit]

    zero = {"W": torch.zeros(p.K, p.N, dtype=torch.float64)}
    W = p.eta * rates(risk, zero)[1]["W"]
    values = p.values()
    few, by_autograd = Sides(eq, *FEW), Sides(eq, *AUTOGRAD)
    late = Sides(eq, 1e-8, "ODE of all weights at 1e-10")
    few.add("right logit after one step", "step_right", values, W[hit])
    few.add("wrong logits after one step", "step_wrong", values, W[~hit])
    few.add(
        "margin after one step, every key and class", "step_margin", values, gaps(W)
    )
    few.add("loss after one step", "step_loss", values, risk({"W": W}))
    (last,), _ = integrate(risk, zero, time)
    reached = values | {"t": time, "m": float(gaps(last["W"]).mean())}
    late.add(
        "margin of many small steps, their limit",
        "margin_flow",
        reached,
        gaps(last["W"]),
    )
    by_autograd.add("loss by the margin", "margin_loss", reached, risk(last))
    half = margin(p, eq["half_loss_time"].evaluate(values))
    half_loss = eq["margin_loss"].evaluate(values | {"m": half})
    omega = margin(p, time)
    exact = eq["margin_flow"].evaluate(reached)
    why = FEW[1]
    yield from few.checks()
    yield from late.checks()
    yield identity("  by Wright's omega", "margin_flow", omega, exact, 1e-13, why)
    yield from by_autograd.checks()
    half_of_first = np.log(p.K) / 2
    yield identity(
        "half-loss time", "half_loss_time", half_loss, half_of_first, 1e-12, why
    )


GRADIENTS = (lemma, noisy, inner, steps)

checks, gradients = derivations(GRADIENTS, equations)
