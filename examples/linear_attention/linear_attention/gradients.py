"""Every rate against autograd of the statement's student on all prompts: three
Gauss-Hermite nodes are exact, as no Gaussian variable enters the squared error with a
power above four.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from linear_attention import simulate as students
from linear_attention.parameters import Parameters
from linear_attention.statement import regression
from linear_attention.theory import equations
from simulate.training.gradient_flow import rates as moved_by
from theory.statement.derivation import remedies
from theory.symbols.special import gauss_legendre
from verify.checks.check import (
    Check,
    Sides,
    against,
    at_least,
    identity,
    sampled,
    vanishing,
)
from verify.checks.report import Table, derivations, sided
from verify.statement.printed import Entries, every, generic, invariant, rates

Group = Callable[[Table], list[Check]]
SEED = 20250127  # any fixed seed; the checks hold for all
EXACT = 1e-10, "sum over all prompts of the rule, float64"
SMALL = (("1.3", 3), ("1.4,0.6", 2), ("1.2,0.9,0.4", 1))  # spectrum, N
DRAWN = Parameters(spectrum="1.4,0.6", N=4, H=2, batch_size=2**15)
BATCHES, SIZE = (
    80,
    0.4,
)  # number of drawn prompts: their loss to 1%; size of the weights


def tensors(weights: Any) -> students.Weights:
    """Weights for PyTorch."""
    return {n: torch.as_tensor(w) for n, w in weights.items()}


def point(kind: str, p: Parameters, weights: Any = None) -> Entries:
    """The statement's student, with the numbers that equations read: W, and its slope
    G.
    """
    x = Entries(regression(kind), p.values(), weights, SIZE, SEED)
    heads = (
        {n: w[None] for n, w in x.weights.items()} if kind == "one head" else x.weights
    )
    W = heads["W"] if kind == "W" else students.matrix(tensors(heads)).numpy()
    x.known |= {"W": W, "G": Entries(regression(), p.values(), {"W": W}).rates["W"]}
    return x


def points(attention: str, R: int = 1) -> list[Entries]:
    """Two heads at small sizes, each entry of every weight drawn."""
    settings = dict(H=2, R=R, attention=attention)
    return [point(attention, Parameters(spectrum=x, N=N, **settings)) for x, N in SMALL]


def slopes(p: Parameters) -> tuple[np.ndarray, np.ndarray]:
    """Force on the diagonal of W at W = 0, and by how much W = 1 lowers it: it is
    linear in W.
    """
    D = p.eigenvalues.size
    zero, one = (
        point("W", p, {"W": W}).rates["W"] for W in (np.zeros((D, D)), np.eye(D))
    )
    return zero.diagonal(), (zero - one).diagonal()


@sided(*EXACT)
def moments(sides: Sides) -> None:
    """E beta beta^T from the curvature of the loss,
    at any Lambda and at the identity.
    """
    label = "second moment of beta"
    for spectrum, N in SMALL:
        p = Parameters(spectrum=spectrum, N=N, H=1)
        white = p.replace(spectrum=",".join("1" * p.eigenvalues.size))
        every(sides, label, "a", p.values(), slopes(p)[1] / p.eigenvalues)
        sides.add(f"{label} at the identity", "c", white.values(), slopes(white)[1])


@sided(*EXACT)
def losses(sides: Sides) -> None:
    """Loss of the attention, its gradient in W, its minimum, and the loss when some
    directions are learned.
    """
    for x, (spectrum, N) in zip(points("merged"), SMALL, strict=True):
        p, known = Parameters(spectrum=spectrum, N=N, H=2), x.known
        zero, curved = slopes(p)
        best, eye = zero / curved, np.eye(zero.size)
        sides.add("loss of the attention", "loss", known, 2 * x.loss)
        every(sides, "slope of the loss in W", "force", known, known["G"])
        every(sides, "weight at the minimum", "w_best", known, best)
        for m in range(best.size + 1):
            left = (
                2 * point("W", p, {"W": (np.arange(best.size) < m) * best * eye}).loss
            )
            sides.add(
                "loss with the first directions learned", "plateau", p.learned(m), left
            )
        sides.add("least loss", "loss_least", known, left)


def heads_of(system: str, R: int, *laws: str) -> Group:
    """Group: rates of all weights of two heads, and their invariants."""

    @sided(*EXACT)
    def heads(sides: Sides) -> list[Check]:
        """Rates and invariants of all pairs of heads."""
        states = points(system, R)
        rates(sides, states, system)
        measured = {
            n: lambda w, n=n: students.invariants(tensors(w))[n].numpy() for n in laws
        }
        return [invariant(sides, states, n, of, EXACT) for n, of in measured.items()]

    return heads


@sided(*EXACT)
def one_head(sides: Sides) -> None:
    """Merged: D + 1 numbers of a head along the eigenvectors; s where Lambda = I."""
    v = 0.7
    for spectrum, N in SMALL:
        D = spectrum.count(",") + 1
        for text, u in (
            (spectrum, np.linspace(0.3, 0.6, D)),
            (",".join("1" * D), np.full(D, 0.4)),
        ):
            x = point(
                "one head",
                Parameters(spectrum=text, N=N, H=1),
                {"v": v, "U": np.diag(u)},
            )
            known = x.known | {"u": u}
            dv = x.rates["v"]
            du = x.rates["U"].diagonal()
            sides.add("rate of the value of one head", "merged_dvalue_dt", known, dv)
            every(sides, "rate of its directions", "merged_du_dt", known, du)
        known |= {"kappa": v**2 - (u**2).sum(), "s": v * u[0]}
        sides.add("rate of s", "merged_ds_dt", known, dv * u[0] + v * du[0])


@sided(*EXACT)
def aligned(sides: Sides) -> list[Check]:
    """Separate: scalar equations of one head with a row per direction, and of one of
    rank one.
    """
    astray, label = [], "rate of an aligned head"
    for spectrum, N, R in (("1.4,0.6", 2, 2), ("1.2,0.9,0.4", 1, 2), ("1.4,0.6", 2, 1)):
        p = Parameters(spectrum=spectrum, N=N, H=1, R=R, attention="separate")
        u = np.linspace(0.5, 0.8, R)
        v = np.sqrt((u**2).sum())
        rows = u[:, None] * np.eye(R, p.eigenvalues.size)[None]
        x = point("separate", p, {"v": [v], "K": rows, "Q": rows})
        known, of_keys = x.known | {"v": v, "u": u}, x.rates["K"][0]
        du = of_keys.diagonal()
        off = of_keys * (1 - np.eye(*of_keys.shape))
        astray += [*np.ravel(of_keys - x.rates["Q"][0]), *np.ravel(off)]
        of_value = "rate of the value of an aligned head"
        sides.add(of_value, "separate_dvalue_dt", known | p.learned(R), x.rates["v"])
        every(sides, "rate of its rows", "separate_du_dt", known, du)
        if R == 1:
            sides.add(f"{label} of rank one", "aligned_du_dt", known | {"u": v}, du[0])
    return [vanishing(f"{label} out of alignment", "separate_dK_dt", astray, *EXACT)]


def early(table: Table) -> list[Check]:
    """Separate: v^2 over tau, where every direction turns (k, q) hyperbolically."""
    p, tau = Parameters(attention="separate"), 0.6
    begun, x = students.start(p, SEED), p.eigenvalues
    v, k, q = float(begun["v"][0]), *(begun[n][0, 0].numpy() for n in "KQ")
    nodes, weights = gauss_legendre(40, 0, tau)
    c, s = (turn(np.outer(nodes, x**2)) for turn in (np.cosh, np.sinh))
    slope = 2 * ((c * k + s * q) * (c * q + s * k) * x**2).sum(
        1
    )  # of v^2: 2 k.Lambda^2.q
    known = p.values() | {
        "v_0": v,
        "p_plus": (k + q) / 2,
        "p_minus": (k - q) / 2,
        "tau": tau,
    }
    label = "value of a head before it drops"
    why = (1e-10, "quadrature with 40 nodes")
    return [
        against(
            table, identity, label, "v_squared", known, v**2 + weights @ slope, *why
        )
    ]


def drawn(table: Table) -> list[Check]:
    """The loss on drawn prompts, to 1%."""
    weights = {n: SIZE * w / w.std() for n, w in students.start(DRAWN, SEED).items()}
    whole = students.embedded(weights, DRAWN.eigenvalues.size)
    losses = []
    for k in range(BATCHES):
        X, answers = students.sample(DRAWN, SEED, k)
        losses.append(float((answers - students.attention(whole, X)).square().mean()))
    known = DRAWN.values() | {"W": students.matrix(weights).numpy()}
    return [
        against(
            table,
            sampled,
            "loss on drawn prompts",
            "loss",
            known,
            losses,
            required=0.01,
        )
    ]


def derived(_: Table) -> list[Check]:
    """Derived classes, gradients of all weights and descent of one head."""
    return generic(remedies.derived(regression("one head")), 1)


def plain_of(attention: str, R: int = 1) -> Group:
    """Group: the attention on tokens, which was written without the statement."""

    def plain(_: Table) -> list[Check]:
        """Its weights move alike; those that start at zero stay there,
        and only those.
        """
        outside, inside, rows = [], [], []
        for x in points(attention, R):
            inputs = np.concatenate([x.input("x"), x.input("q")[:, None]], 1).transpose(
                0, 2, 1
            )
            X, y = students.tokens(inputs, x.input("w")[..., None])
            share, D = torch.as_tensor(x.data.chances), inputs.shape[1]

            def half(
                w: Any, X: Any = X, y: Any = y, share: Any = share
            ) -> torch.Tensor:
                return (share * (y - students.attention(w, X)) ** 2).sum() / 2

            moved = moved_by(half, students.embedded(tensors(x.weights), D))[1]
            reduced = students.extracted(moved)
            small = students.embedded(reduced, D)
            outside += [float((moved[n] - w).abs().max()) for n, w in small.items()]
            inside += [float(w.abs().max()) for w in small.values()]
            rows += [np.ravel(reduced[n].numpy() - w) for n, w in x.rates.items()]
        label, off = f"{attention} rate of", np.concatenate(rows)
        why = "the same attention does move"
        return [
            vanishing(
                f"{label} the plain attention, less the statement's",
                "loss",
                off,
                *EXACT,
            ),
            vanishing(f"{label} weights that start at zero", "loss", outside, *EXACT),
            at_least(f"{label} the others", "loss", 1e-2, min(inside), why),
        ]

    return plain


MERGED = ("merged_invariant",)
SEPARATE = ("separate_norm", "separate_rows")
GRADIENTS = {
    "merged": (
        moments,
        losses,
        heads_of("merged", 1, *MERGED),
        one_head,
        drawn,
        derived,
        plain_of("merged"),
    ),
    "separate": (
        heads_of("separate", 2, *SEPARATE),
        aligned,
        early,
        plain_of("separate", 2),
    ),
}
checks, report = derivations(GRADIENTS, equations)
