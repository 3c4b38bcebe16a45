"""Symbols of the tied rank-one attention layer on two tokens, and of its order parameters."""

from __future__ import annotations

from theory.notation import symbol

L = symbol("L", integer=True, positive=True)
d = symbol("d", integer=True, positive=True)
alpha = symbol("alpha", r"\alpha", positive=True)
lam = symbol("lam", r"\lambda", positive=True)
sigma = symbol("sigma", r"\sigma", positive=True)
omega = symbol("omega", r"\omega", nonnegative=True)
rho = symbol("rho_star", r"\rho", positive=True)
A_12, A_21 = symbol("A_12", "A_{12}", real=True), symbol("A_21", "A_{21}", real=True)

# Order parameters (6) and their conjugates, hats summed over the two tokens.
q, V = symbol("q", positive=True), symbol("V", positive=True)
m, theta = symbol("m", real=True), symbol("theta", r"\theta", real=True)
q_hat, V_hat = symbol("q_hat", r"\hat{q}", positive=True), symbol("V_hat", r"\hat{V}", real=True)
m_hat, theta_hat = (
    symbol("m_hat", r"\hat{m}", real=True),
    symbol("theta_hat", r"\hat{\theta}", real=True),
)

# Fields of one sentence: student z and w, teacher h; entries of the target attention matrix.
z_1, z_2 = symbol("z_1", real=True), symbol("z_2", real=True)
w_1, w_2 = symbol("w_1", real=True), symbol("w_2", real=True)
h_1, h_2 = symbol("h_1", r"h^{\star}_{1}", real=True), symbol("h_2", r"h^{\star}_{2}", real=True)
Y_12, Y_21 = symbol("Y_12", "Y_{12}", real=True), symbol("Y_21", "Y_{21}", real=True)

# Gaussian averages over the output channel; their numbers are in
# `theory.positional_semantic.numbers.channel`.
E_gg = symbol("E_gg", r"\mathbb{E}[g_{1}^{2}+g_{2}^{2}]", nonnegative=True)
E_g = symbol("E_g", r"\mathbb{E}[g_{1}-g_{2}]", real=True)
E_gxi = symbol("E_gxi", r"\mathbb{E}[g_{1}\xi_{1}+g_{2}\xi_{2}]", real=True)
E_geta = symbol("E_geta", r"\mathbb{E}[g_{1}\eta_{1}+g_{2}\eta_{2}]", real=True)
E_M = symbol("E_M", r"\mathbb{E}[\bar{\mathcal{M}}]", nonnegative=True)
E_loss = symbol("E_loss", r"\mathbb{E}[\ell(z^{\ast},Y)]", nonnegative=True)

epsilon_t = symbol("epsilon_t", r"\epsilon_{t}", real=True)
Phi = symbol("Phi", r"\Phi", real=True)
D = symbol("D", positive=True)


def ref(place: str) -> str:
    """Reference into the paper."""
    return f"cui2024, {place}"


ORDER = (q, m, V, theta)
CONJUGATE = (q_hat, m_hat, V_hat, theta_hat)
