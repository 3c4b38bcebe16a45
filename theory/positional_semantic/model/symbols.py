"""Symbols of the tied rank-one attention layer on two tokens, and of its order
parameters.
"""

from theory.symbols.notation import symbol

L = symbol("L", means="tokens per sentence", integer=True, positive=True)
d = symbol("d", means="embedding dimension", integer=True, positive=True)
alpha = symbol("alpha", r"\alpha", "sample complexity n / d", positive=True)
lam = symbol("lam", r"\lambda", "weight decay", positive=True)
sigma = symbol("sigma", r"\sigma", "standard deviation of token entries", positive=True)
omega = symbol(
    "omega", r"\omega", "weight of the fixed matrix in the target", nonnegative=True
)
rho = symbol("rho_star", r"\rho", "variance of the teacher's field", positive=True)
A_12 = symbol("A_12", "A_{12}", "entry of the fixed matrix of the target", real=True)
A_21 = symbol("A_21", "A_{21}", "entry of the fixed matrix of the target", real=True)

# Order parameters (6) and their conjugates, hats summed over the two tokens.
q = symbol("q", means="variance of the student's field", positive=True)
V = symbol(
    "V", means="variance of the student's field under its posterior", positive=True
)
m = symbol("m", means="overlap with the positional embedding", real=True)
theta = symbol("theta", r"\theta", "overlap with the teacher", real=True)
q_hat = symbol("q_hat", r"\hat{q}", "conjugate of q", positive=True)
V_hat = symbol("V_hat", r"\hat{V}", "conjugate of V", real=True)
m_hat = symbol("m_hat", r"\hat{m}", "conjugate of m", real=True)
theta_hat = symbol("theta_hat", r"\hat{\theta}", "conjugate of theta", real=True)
nu = symbol(
    "nu", r"\nu", "variance of the teacher's field given the student's", positive=True
)

# Fields of one sentence: student z and w, teacher h; entries of the target attention
# matrix.
z_1 = symbol("z_1", means="student's field of a token", real=True)
z_2 = symbol("z_2", means="student's field of a token", real=True)
w_1 = symbol("w_1", means="centre of the field z", real=True)
w_2 = symbol("w_2", means="centre of the field z", real=True)
h_1 = symbol("h_1", r"h^{\star}_{1}", "teacher's field of a token", real=True)
h_2 = symbol("h_2", r"h^{\star}_{2}", "teacher's field of a token", real=True)
Y_12 = symbol("Y_12", "Y_{12}", "entry of the target attention", real=True)
Y_21 = symbol("Y_21", "Y_{21}", "entry of the target attention", real=True)

# Gaussian averages over the output channel, evaluated in
# `theory.positional_semantic.channel`.
E_gg = symbol(
    "E_gg",
    r"\mathbb{E}[g_{1}^{2}+g_{2}^{2}]",
    "channel average, drives q",
    nonnegative=True,
)
E_g = symbol("E_g", r"\mathbb{E}[g_{1}-g_{2}]", "channel average, drives m", real=True)
E_gxi = symbol(
    "E_gxi",
    r"\mathbb{E}[g_{1}\xi_{1}+g_{2}\xi_{2}]",
    "channel average, drives V",
    real=True,
)
E_geta = symbol(
    "E_geta",
    r"\mathbb{E}[g_{1}\eta_{1}+g_{2}\eta_{2}]",
    "channel average, drives theta",
    real=True,
)
E_M = symbol(
    "E_M", r"\mathbb{E}[\bar{\mathcal{M}}]", "mean Moreau envelope", nonnegative=True
)
E_loss = symbol(
    "E_loss",
    r"\mathbb{E}[\ell(z^{\ast},Y)]",
    "mean loss of a training sentence",
    nonnegative=True,
)

ENTRY_ERROR = "mean squared error of an attention entry"
S_gap = symbol(
    "E_S_12", r"\mathbb{E}[(Y_{12}-S_{12})^{2}]", ENTRY_ERROR, nonnegative=True
)
R_gap = symbol(
    "E_S_21", r"\mathbb{E}[(Y_{21}-S_{21})^{2}]", ENTRY_ERROR, nonnegative=True
)

epsilon_t = symbol("epsilon_t", r"\epsilon_{t}", "training loss by d", real=True)
Phi = symbol("Phi", r"\Phi", "free entropy by d", real=True)
D = symbol("D", means="curvature of the weights' potential", positive=True)


def ref(place: str) -> str:
    """Reference into the paper."""
    return f"cui2024, {place}"


ORDER = (q, m, V, theta)
CONJUGATE = (q_hat, m_hat, V_hat, theta_hat)
MOMENTS = (E_gg, E_g, E_gxi, E_geta)  # averages in the conjugates
