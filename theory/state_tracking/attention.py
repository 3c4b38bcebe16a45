"""Attention: softmax and rotary derivatives, attention factor c(A), its closure, and
the constant c_omega (Eqs. 5, 14, 62-73).
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import sympy as sp

from theory import (
    Chapter,
    Equations,
    array,
    delta_gradient,
    delta_sum,
    proved,
    symbol,
    vanishes,
    written_as,
)
from theory.numbers.numeric import dirichlet_kernel
from theory.runtime import memory
from theory.state_tracking.model import definitions
from theory.state_tracking.model.definitions import logit, pi, softmax_row
from theory.state_tracking.model.symbols import (
    W_K2,
    W_Q2,
    A,
    L,
    N,
    c_A,
    c_omega,
    d_g,
    d_h,
    i,
    j,
    k,
    n,
    omega,
    ref,
    sigma2,
)

if TYPE_CHECKING:
    from theory.state_tracking.model.parameters import Parameters

CLOSURE = "closure c(A) = L c_omega A (1 - A), matched at A = 1/L"
ANSATZ = "attention A on the right action, uniform elsewhere"

lambda_ = array(
    "lambda", r"\lambda", "mean of cos(omega_n (j - k)) over distinct positions"
)
w = symbol("omega_n", r"\omega_{n}", "rotary frequency of block n", positive=True)
offset = symbol("Delta_ij", r"(j-i)", "distance of two positions", integer=True)


def _weight(name: str, matrix: str, row: str) -> sp.Symbol:
    """One of the two weights of W_Q or W_K in a rotary block."""
    latex = rf"(W_{matrix})_{{{row}}}"
    return symbol(name, latex, f"weight of W_{matrix} in block n", real=True)


q1, q2 = _weight("q_1", "Q", "2n-1"), _weight("q_2", "Q", "2n")
k1, k2 = _weight("k_1", "K", "2n-1"), _weight("k_2", "K", "2n")
logit_block = symbol(
    "l_block", r"l_{ij}^{(n)}", "attention score from block n", real=True
)
QUERY, KEY = sp.Matrix([q1, q2]), sp.Matrix([k1, k2])

chapter = Chapter(ref, status="exact")


def rotation(angle: sp.Expr) -> sp.Matrix:
    """Rotation matrix of one rotary pair."""
    return sp.Matrix([[sp.cos(angle), -sp.sin(angle)], [sp.sin(angle), sp.cos(angle)]])


@chapter.derives(logit_block, "Eq. (5)", "one rotary block", name="attention_logit")
@cache
def block_logit() -> sp.Expr:
    """Contribution of one rotary block to the attention logit, W_Q^T Omega(j-i) W_K /
    sqrt(d_h).
    """
    return sp.expand((QUERY.T * rotation(w * offset) * KEY)[0] / sp.sqrt(d_h))


@chapter.derives(sp.Derivative(A, pi[j + L, j]), "Eqs. (8), (65)")
def dA_dpi() -> sp.Expr:
    """Derivative of A by an attention entry on the right action."""
    slope = delta_gradient(definitions.equations()["A"].rhs, pi[j + L, j])
    return slope.subs(sp.KroneckerDelta(j, j), 1)


@chapter.derives(sp.Derivative(pi[i], logit[k]), "Eq. (66)")
def softmax_derivative() -> sp.Expr:
    """Derivative d pi_i / d l_k of a softmax row, in terms of the attention entries."""
    weights = sp.Sum(sp.exp(logit[j]), (j, 1, L))
    derivative = sp.diff(softmax_row(), logit[k])
    derivative = derivative.replace(
        lambda e: isinstance(e, sp.Sum) and e.has(sp.KroneckerDelta),
        lambda e: delta_sum(e.function, *e.limits),
    )
    derivative = derivative.subs(sp.exp(logit[i]), pi[i] * weights)
    return sp.expand(derivative.subs(sp.exp(logit[k]), pi[k] * weights))


def slope_of_block(x: sp.Symbol) -> sp.Expr:
    """Derivative of the logit by one of the weights of the block."""
    return sp.diff(block_logit(), x)


for x, place in ((q1, "(67)"), (q2, "(67)"), (k1, "(68)"), (k2, "(68)")):
    slope = sp.Derivative(logit_block, x)
    chapter.state(f"dl_d{x.name}", slope, partial(slope_of_block, x), f"Eq. {place}")


@cache
def power_of_plane_waves() -> sp.Expr:
    """|sum_k e^{i omega k}|^2 over k = 1..L, from the geometric sum, for a generic
    frequency.
    """
    z = sp.Symbol("z")
    total = sp.Sum(z**k, (k, 1, L)).doit()
    generic = next(value for value, condition in total.args if condition == True)  # noqa: E712
    squared = generic * generic.subs(z, 1 / z)  # |z| = 1
    form = sp.sin(L * w / 2) ** 2 / sp.sin(w / 2) ** 2
    written_as(form.rewrite(sp.exp), squared.subs(z, sp.exp(sp.I * w)))
    return form


@chapter.derives(
    sp.Limit(lambda_[n], w, 2 * sp.pi),
    "below Eq. (69)",
    "the same at every multiple of 2 pi, by periodicity",
)
def lambda_2pi() -> sp.Expr:
    """lambda_n for a frequency at which positions look alike."""
    return sp.limit(generic_lambda(), w, 2 * sp.pi)


@chapter.derives(
    lambda_[n],
    "Eq. (70)",
    "omega_n not a multiple of 2 pi, where lambda_n = 1",
    name="lambda",
)
@cache
def generic_lambda() -> sp.Expr:
    """lambda_n for a frequency that is not a multiple of 2 pi: mean rotation over pairs
    of different positions.
    """
    wave = power_of_plane_waves()
    return written_as((wave / L - 1) / (L - 1), (wave - L) / (L * (L - 1)))


def sum_over_blocks(summand: sp.Expr) -> sp.Sum:
    """Sum over the rotary blocks."""
    return sp.Sum(summand, (n, 1, d_h / 2))


# Over blocks (1 - D^2)^2, D the Dirichlet kernel of their frequency; c(A) without that
# sum.
SPECTRUM = sum_over_blocks((1 - dirichlet_kernel(omega[n], L) ** 2) ** 2)
PREFACTOR = d_g * N / d_h * A**2 * (1 - A) ** 2


@cache
def mean_ansatz() -> sp.Expr:
    """c(A) under the ansatz, averaged over the initialisation (the squared norm of a
    block has mean 2 sigma^2).
    """
    gap = (1 - generic_lambda()).subs(
        power_of_plane_waves(), (L * dirichlet_kernel(w, L)) ** 2
    )
    apart = 1 - dirichlet_kernel(w, L) ** 2
    gap = written_as(L / (L - 1) * apart, gap)
    mean = PREFACTOR * 4 * sigma2 * SPECTRUM
    return written_as(mean * (L / (L - 1)) ** 2, mean * (gap / apart) ** 2)


@chapter.derives(c_A, "Eqs. (63), (69)", ANSATZ, name="c_ansatz")
@cache
def ansatz() -> sp.Expr:
    """c(A) under the ansatz: sum over rotary blocks of squared gradients.

    Raises
    ------
    ArithmeticError
        If the printed sum differs from the sum over blocks.
    """
    entries = k1**2 + k2**2 + q1**2 + q2**2
    per_block = written_as(
        A**2 * (1 - A) ** 2 * (1 - lambda_[n]) ** 2 * entries,
        gradient_squared_under_ansatz(lambda_[n]),
    )
    per_block = per_block.subs(entries, W_K2[n] + W_Q2[n])
    blocks = sum_over_blocks((1 - lambda_[n]) ** 2 * (W_K2[n] + W_Q2[n]))
    scaled = d_g * N / d_h * per_block / PREFACTOR
    proved(vanishes(scaled - blocks.function), "c(A) is not the sum of its blocks")
    return PREFACTOR * blocks


def gradient_squared_under_ansatz(lam: sp.Expr) -> sp.Expr:
    """|grad A|^2 of one rotary block, times d_h, for attention of the ansatz form.

    With pi_ii = A and pi_ik = (1-A)/(L-1), the double sum over positions of pi_ii
    (delta_ik - pi_ik) Omega(k-i-L) / L is a multiple of the rotation Omega(-L), because
    the sum of Omega(k-i) over i != k is the real number L (L-1) lambda_n. ``lam``
    stands for lambda_n.
    """
    off = (1 - A) / (L - 1)
    diagonal = delta_sum(A * (1 - A), (i, 1, L)) / L
    off_diagonal = -A * off * L * (L - 1) * lam / L
    norms = sp.S.Zero
    for turned in (rotation(-w * L) * KEY, rotation(w * L) * QUERY):
        square = sp.expand((turned.T * turned)[0])
        norms += sp.expand(square.subs(sp.sin(w * L) ** 2, 1 - sp.cos(w * L) ** 2))
    return sp.factor((diagonal + off_diagonal) ** 2) * norms


@chapter.derives(
    c_A,
    "Eqs. (69), (72)-(73)",
    "closure",
    ANSATZ,
    "key and query norms stay at their initial mean",
)
def c_ansatz_mean() -> sp.Expr:
    """c(A) under the averaged ansatz, in terms of c_omega."""
    spectrum = c_omega * (SPECTRUM / matched_constant())
    form = c_omega * L**3 / (L - 1) * A**2 * (1 - A) ** 2
    return written_as(form, mean_ansatz().subs(SPECTRUM, spectrum))


@chapter.derives(c_A, "above Eqs. (14), (71)", "closure", CLOSURE, name="c_closure")
def closure() -> sp.Expr:
    """The paper's closure of c(A)."""
    return L * c_omega * A * (1 - A)


@chapter.derives(
    c_omega,
    "Eqs. (14), (71)-(73)",
    "mean over independent centred entries of variance sigma^2",
    "matched at A = 1/L",
    name="c_omega",
)
@cache
def matched_constant() -> sp.Expr:
    """c_omega, from matching the closure L c_omega A (1 - A) to the averaged ansatz at
    A = 1/L.
    """
    constant = (mean_ansatz() / (closure() / c_omega)).subs(A, 1 / L)
    form = 2 * d_g * N / (L * (L - 1)) * sigma2 * (2 / d_h) * SPECTRUM
    return written_as(form, constant)


def gap_of_block() -> sp.Expr:
    """1 - lambda_n, continued to frequencies that do not tell positions apart."""
    form = L / (L - 1) * (1 - dirichlet_kernel(w, L) ** 2)
    generic = 1 - generic_lambda()
    power = power_of_plane_waves()
    written_as(form.subs(dirichlet_kernel(w, L), sp.sqrt(power) / L), generic)
    return form


def equations() -> Equations:
    """Equations 5, 14 and 62-73."""
    return chapter.equations


# Softmax of rotary logits and its derivative, vectorised over seeds


def _memory(p: Parameters) -> float:
    """Bytes of the rotary tables, while they are made."""
    return 24.0 * p.L**2 * p.d_h


class Attention:
    """Attention matrices (B, L, L) from keys and queries (B, d_h), and their backward
    pass. A rotary pair is a complex number.
    """

    def __init__(self, p: Parameters) -> None:
        memory.require(_memory, p, "attention of all positions")
        steps = np.arange(p.L)
        # Actions stand L places before the states that ask: the right one is at
        # distance -L.
        distance = steps[None, :] - steps[:, None] - p.L
        angle = distance[..., None] * p.frequencies
        turns = np.exp(1j * angle) / np.sqrt(p.d_h)
        self.turns = turns.reshape(p.L**2, -1).view(float)
        self.L = p.L

    def forward(self, W_Q: np.ndarray, W_K: np.ndarray) -> np.ndarray:
        """Softmax of the rotary logits."""
        pairs = W_Q.view(complex) * W_K.view(complex).conj()
        l = (pairs.view(float) @ self.turns.T).reshape(-1, self.L, self.L)
        weight = np.exp(l - l.max(2, keepdims=True))
        return weight / weight.sum(2, keepdims=True)

    def parts(self, W_Q: np.ndarray, W_K: np.ndarray) -> tuple[np.ndarray, ...]:
        """Attention (B, L, L), its diagonal, which is the weight on correct actions (B,
        L), and the sum of squares of the other entries (B, L).
        """
        at = self.forward(W_Q, W_K)
        own = np.einsum("bii->bi", at)
        return at, own, (at**2).sum(2) - own**2

    def backward(
        self, W_Q: np.ndarray, W_K: np.ndarray, at: np.ndarray, force: np.ndarray
    ) -> list[np.ndarray]:
        """Gradients with respect to W_Q and W_K from those with respect to the
        attention entries.
        """
        d_l = at * (force - (at * force).sum(2, keepdims=True))
        d_pairs = (d_l.reshape(len(force), -1) @ self.turns).view(complex)
        d_Q = d_pairs * W_K.view(complex)
        d_K = d_pairs.conj() * W_Q.view(complex)
        return [d_Q.view(float), d_K.view(float)]
