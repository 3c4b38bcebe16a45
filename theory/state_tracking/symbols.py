"""Symbol table of the state-tracking model (symbols of Forner et al., arXiv:2606.18164)."""

from theory.notation import array, symbol

# Sizes
N = symbol("N", integer=True, positive=True)  # states
L = symbol("L", integer=True, positive=True)  # actions per sequence
d_g = symbol("d_g", integer=True, positive=True)  # permutations in the vocabulary
d_h = symbol("d_h", integer=True, positive=True)  # rotary head dimension, even
n_train = symbol(
    "n_train", r"n_{\mathrm{train}}", integer=True, positive=True
)  # training sequences

# Training
eta = symbol("eta", positive=True)  # learning rate
alpha = symbol("alpha", nonnegative=True)  # training time, epochs / (d_g N)
sigma2 = symbol(
    "sigma2", r"\sigma^{2}", positive=True
)  # variance of the entries of W_Q, W_K at the start

# Order parameters and what follows from them
A, R, S = (symbol(x, real=True) for x in "ARS")
A_0 = symbol("A_0", positive=True)
R_0 = symbol("R_0", real=True)
S_0 = symbol("S_0", real=True)
zeta = symbol("zeta", r"\zeta_{\mathrm{init}}", real=True)
m = symbol("m", real=True)  # logit margin
g = symbol("g", positive=True)  # probability mass the mean-field student leaves on wrong states
z_k = symbol("z_k", r"\langle z_{k}\rangle", real=True)
z_kbar = symbol("z_kbar", r"\langle z_{\bar k}\rangle", real=True)
loss = symbol("loss", r"\ell_{\mathrm{CE}}", real=True)
c_R = symbol("c_R", real=True)
c_S = symbol("c_S", real=True)
tau = symbol("tau", real=True)  # mean overlap of distinct teachers
c_A = symbol("c_A", r"c(A)", nonnegative=True)
c_omega = symbol("c_omega", r"c_{\omega}", nonnegative=True)

# Indices and indexed arrays
a, b, c = (symbol(x, integer=True, positive=True) for x in "abc")  # actions
p, q, r, s = (symbol(x, integer=True, positive=True) for x in "pqrs")  # states
i, j, k = (symbol(x, integer=True, positive=True) for x in "ijk")  # positions
n = symbol("n", integer=True, positive=True)  # rotary block
t = symbol("t", integer=True, nonnegative=True)  # step of a rollout
M = array("M")
M_star = array("M_star", r"M^{\star}")
omega = array("omega", r"\omega")
W_Q2 = array("W_Q2", r"|W_Q|^{2}")  # squared norm of a rotary block of W_Q
W_K2 = array("W_K2", r"|W_K|^{2}")

# Logit distribution and rollout
mu_k, mu_kbar = symbol("mu_k", r"\mu_{k}", real=True), symbol("mu_kbar", r"\mu_{\bar k}", real=True)
sigma_k = symbol("sigma_k", r"\sigma_{k}", positive=True)
sigma_kbar = symbol("sigma_kbar", r"\sigma_{\bar k}", positive=True)
rho = symbol("rho", r"\varrho", positive=True)  # probability that a rolled-out state is right
accuracy = symbol(
    "accuracy", r"\bar{\mathcal{A}}", real=True
)  # next-token accuracy on a right state
recovery = symbol("recovery", r"\bar{\mathcal{B}}", real=True)  # same, on a wrong state

PAPER = "forner2026"


def ref(text: str) -> str:
    """Reference into the paper."""
    return f"{PAPER}, {text}"
