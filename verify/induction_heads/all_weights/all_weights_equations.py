"""Equations of all weights, row by row, and the O(N) code, against the full network and
autograd.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache

import numpy as np
import sympy as sp
import torch

from simulate.induction_heads import student as task
from simulate.induction_heads.student import (
    NAMES,
    THREE,
    Student,
    assemble,
    project,
    squared_error,
)
from theory.equations.equation import Equation
from theory.induction_heads import Parameters
from theory.induction_heads.all_weights import plateau
from theory.induction_heads.all_weights.plateau import FIVE
from theory.induction_heads.all_weights.running import loss_and_gradient
from theory.induction_heads.all_weights.scores import THETA
from theory.induction_heads.network import ENDS, MASKS
from theory.induction_heads.symbols import N as N_symbol
from theory.induction_heads.symbols import alpha, beta, gamma, q
from verify.checks.check import Check, identity, listed
from verify.rates import rates

# The full network at given values of the nineteen pseudo-parameters, and at random
# values of three, for the checks of gradients

CLOSE = 1e-12, "both sides float64, few operations"
BY_AUTOGRAD = 1e-10, "autograd in float64"
POINT_SIZES = (2, 3, 5, 8)
GENERATOR = 20251103  # any fixed seed; the checks hold for all


def gradient_of(x: torch.Tensor) -> torch.Tensor:
    """Gradient left by ``backward``."""
    if x.grad is None:
        raise ValueError("no gradient: call backward first")
    return x.grad


def pseudo(**values: float) -> np.ndarray:
    """The nineteen pseudo-parameters, zero but for these."""
    return np.array([values.get(name, 0.0) for name in NAMES])


class Network:
    """The full network on orthonormal sequences: loss and its gradient with respect to
    the nineteen pseudo-parameters, by autograd.

    Parameters
    ----------
    size : int
        Item-label pairs N.
    query : int or {'last', 'uniform'}
        Queried pair, counted from 1; of ``uniform``, each one once.
    mask : {'strict', 'inclusive'}
        Causal mask.
    right : int
        Right pairs, at the end of the context.
    """

    def __init__(self, size: int, query: int | str, mask: str, right: int = 1) -> None:
        asked = "last" if query == "last" else "each"
        p = Parameters(N=size, B=right, data="orthonormal", query=asked, mask=mask)
        random = torch.Generator().manual_seed(GENERATOR)
        drawn = task.sample(p, random, 1 if query == "last" else size, torch.float64)
        rows = [query - 1] if isinstance(query, int) else slice(None)
        self.batch = task.Batch(*(x[rows] for x in drawn))
        self.student = Student(p.dimension, mask, torch.float64)

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        D = self.student.D
        self.student.load_state_dict(
            assemble(dict(zip(NAMES, theta.tolist(), strict=True)), D)
        )
        self.student.zero_grad()
        loss = squared_error(self.student(self.batch.X), self.batch.y, "sum")
        loss.backward()
        slopes = project(
            {name: gradient_of(w) for name, w in self.student.weights().items()}
        )
        # A pseudo-parameter multiplies a matrix of squared norm D.
        return float(loss.detach()), D * slopes.numpy()


class Point:
    """The full network at some alpha, beta, gamma on random orthonormal data."""

    def __init__(self, N: int, pair: int, mask: str, seed: int) -> None:
        random = torch.Generator().manual_seed(GENERATOR + seed)
        self.N, self.pair, self.mask = N, pair, mask
        p = Parameters(N=N, data="orthonormal", query="last", mask=mask)
        items, labels, codes = task.orthonormal(p, 3, random, torch.float64)
        self.batch = task.batch_of(items, labels, codes, torch.full((3,), pair - 1))
        low = torch.tensor([-0.5, -1.0, 0.2])
        high = torch.tensor([2.0, 3.0, 1.8])
        self.theta = (
            (low + (high - low) * torch.rand(3, generator=random))
            .double()
            .requires_grad_()
        )
        self.D = p.dimension
        self.weights = assemble(dict(zip(THREE, self.theta, strict=True)), self.D)
        for w in self.weights.values():
            w.retain_grad()
        student = Student(self.D, mask, torch.float64)
        z = torch.func.functional_call(student, self.weights, (self.batch.X,))
        loss = squared_error(z, self.batch.y, "sum")
        loss.backward()
        self.loss = float(loss.detach())
        self.gradient = gradient_of(self.theta).tolist()

    def values(self) -> dict[str, float]:
        """Numbers by symbol name, abbreviations included."""
        a, b, c = (float(v) for v in self.theta.detach())
        attended = np.exp(a) / (2 * self.N - 2 + np.exp(a))
        s, F = np.exp(b * attended), 2 * self.N - 1
        return {
            "N": self.N,
            "q": self.pair,
            "alpha": a,
            "beta": b,
            "gamma": c,
            "p": attended,
            "G": np.exp(a) / attended,
            "s": s,
            "F": F,
            "r": s + F,
        }

    def number(self, expr: sp.Expr) -> float:
        """Value of an expression in alpha, beta, gamma, N and q."""
        v = self.values()
        return float(
            compiled(expr)(v["alpha"], v["beta"], v["gamma"], self.N, self.pair)
        )


@cache
def compiled(expr: sp.Expr) -> Callable[..., float]:
    """Compiled to plain Python, as sums run over few rows."""
    return sp.lambdify((alpha, beta, gamma, N_symbol, q), expr, "math")


Table = Mapping[str, Equation]
EXACT = 1e-12
EXACT_WHY = "both sides float64; gradient by autograd"
SIZES = (1, 2, 3, 5, 8)
LARGE = (500, 1000, 2000, 4000)  # five against all; the difference decreases as 1/N


def point(seed: int) -> np.ndarray:
    """Values of the nineteen pseudo-parameters."""
    return 0.7 * np.random.default_rng(seed).standard_normal(len(NAMES))


def by_equations(
    eq: Table, theta: np.ndarray, size: int, pair: int, mask: str
) -> float:
    """Loss from the equations only: scores of all rows, softmax, retrieved tokens,
    output, sum of squares. Not for pair 1.
    """
    end = ENDS[mask]
    numbers = dict(zip(NAMES, theta.tolist(), strict=True)) | {"N": size, "q": pair}
    scores = np.zeros(2 * size + 1)

    def score(name: str, **more: int) -> float:
        return eq[f"all_key_{name}{end}"].number(numbers | more)

    scores[2 * pair - 2], scores[2 * pair - 1] = score("own_item"), score("own_label")
    for apart in range(1, size - pair + 1):
        scores[2 * (pair + apart) - 2 : 2 * (pair + apart)] = (
            score("later_item", d=apart),
            score("later_label", d=apart),
        )
    if mask == "strict":
        scores[0], scores[-1] = score("first"), -np.inf
    else:
        scores[-1] = score("query")
    w = np.exp(scores) / np.exp(scores).sum()
    known = numbers | {"w_item": w[:-1:2], "w_label": w[1::2], "w_query": w[-1]}
    for kind in ("retrieved", "output"):
        for place in ("item", "label"):
            equation = eq[f"all_{kind}_{place}{end}"]
            known[f"{kind[0].replace('o', 'c')}_{place}"] = [
                equation.evaluate(known | {"k": m}) for m in range(1, size + 1)
            ]
    return eq["all_loss"].number(known)


@listed
def row_by_row(eq: Table, masks: tuple[str, ...] = tuple(MASKS)) -> Iterator[Check]:
    """The equations against the network, at pairs with earlier and later pairs."""
    for mask in masks:
        theta, size, pair = point(3), 4, 3
        yield identity(
            f"all-weights loss by its equations, {mask} mask",
            "all_loss",
            by_equations(eq, theta, size, pair, mask),
            Network(size, pair, mask)(theta)[0],
            EXACT,
            EXACT_WHY,
        )


@listed
def running_sums(_: Table) -> Iterator[Check]:
    """Loss and gradient in O(N) against the network for every query, both masks, and
    averaged over queries.
    """
    for mask in MASKS:
        by_sums, by_network = [], []
        for size in SIZES:
            for query in (*range(1, size + 1), "uniform"):
                by_sums.append(loss_and_gradient(point(size), size, query, mask))
                by_network.append(Network(size, query, mask)(point(size)))
        for k, name in enumerate(("loss", "gradient")):
            sums = np.concatenate([np.ravel(x[k]) for x in by_sums])
            network = np.concatenate([np.ravel(x[k]) for x in by_network])
            label = f"all-weights {name} in O(N), every q and uniform q, {mask} mask"
            yield identity(label, "all_loss", sums, network, EXACT, EXACT_WHY)


@listed
def five_numbers(eq: Table) -> Iterator[Check]:
    """Gradient of the loss of five pseudo-parameters against that of all, with gamma_1
    at its minimum, as N grows; and the sums in it.
    """
    loss = eq["plateau_loss"].rhs
    variables = [THETA[n] for n in FIVE]
    slopes = [sp.diff(loss, variable) for variable in variables]
    arguments = [*variables, N_symbol]
    slope = sp.lambdify(arguments, slopes, ["scipy", "numpy"], cse=True)
    state = {
        "alpha_3": 1.2,
        "beta_2": 0.8,
        "gamma_2": 0.9,
        "gamma_3": 1.3,
        "gamma_4": -1.1,
    }
    gaps: dict[str, list[float]] = {n: [] for n in FIVE}
    first = NAMES.index("gamma_1")
    for size in LARGE:
        theta = pseudo(**state)
        for _ in range(2):  # the loss is quadratic in gamma_1, with curvature 2
            theta[first] -= loss_and_gradient(theta, size, size)[1][first] / 2
        exact = dict(zip(NAMES, loss_and_gradient(theta, size, size)[1], strict=True))
        for predicted, n in zip(slope(*state.values(), size), FIVE, strict=True):
            scale = size**2 if n in ("alpha_3", "beta_2") else size
            gaps[n].append(scale * abs(predicted - exact[n]))
    for n, differences in gaps.items():
        label = f"slope of {n} in the flow of five, order of its error in 1/N"
        rate = rates(0.0, differences, 1 / np.array(LARGE))
        yield rate.check(label, "plateau_loss")
    j, size, grown = np.arange(1, 60), 60, 3.5
    Phi = 2 * j * (2 * j + 1) / (2 * j + grown) ** 3
    delta = j * (2 * j + 1) * (1 / (2 * j) ** 2 - 1 / (2 * j + grown) ** 2)
    sums = {"plateau_Phi": float(Phi.sum()), "plateau_delta": delta.sum() / size}
    for name, value in sums.items():
        yield identity(
            f"all-weights {name.replace('_', ' ')} by polygammas",
            name,
            eq[name].evaluate({"N": size, "e": grown}),
            value,
            EXACT,
            EXACT_WHY,
        )
    far = 10**9
    yield identity(
        "all-weights plateau phi as a limit",
        "plateau_phi",
        eq["plateau_phi"].evaluate({"e": grown}),
        2 * eq["plateau_Phi"].number({"N": far, "e": grown}) - np.log(far),
        1e-6,
        "e/N, and rounding of ln N",
    )
    yield from layer(eq)


@listed
def layer(eq: Table) -> Iterator[Check]:
    """Initial time layer: rates of its closed form against the exact gradient at large
    N, with the other pseudo-parameters still zero.
    """
    size, tau = 10**5, 0.9
    t = plateau.tau
    short = plateau.layer()
    for query, name in (
        ("last", "plateau_Gamma"),
        ("uniform", "plateau_Gamma_uniform"),
    ):
        Gamma = float(eq[name].rhs.subs(t, tau))
        fourth = float(short[f"{query}_gamma_4"].subs(t, tau))
        theta = pseudo(gamma_2=Gamma / 2, gamma_3=Gamma / 2, gamma_4=fourth)
        slopes = loss_and_gradient(theta, size, size if query == "last" else query)[1]
        exact = dict(zip(NAMES, slopes, strict=True))
        rate = -size * (exact["gamma_2"] + exact["gamma_3"])
        yield identity(
            f"all-weights first layer in time, {query}",
            name,
            sp.diff(eq[name].rhs, t).subs(t, tau),
            rate,
            20 * np.log(size) / size,
            "ln N / N",
        )
