"""Symbol table of the state-tracking model (symbols of Forner et al.,
arXiv:2606.18164).
"""

from theory.symbols.notation import array, symbol

# Sizes
N = symbol("N", means="states", integer=True, positive=True)
L = symbol("L", means="actions per sequence", integer=True, positive=True)
d_g = symbol("d_g", means="permutations in the vocabulary", integer=True, positive=True)
d_h = symbol("d_h", means="rotary head dimension, even", integer=True, positive=True)
n_train = symbol(
    "n_train",
    r"n_{\mathrm{train}}",
    means="training sequences",
    integer=True,
    positive=True,
)

# Training
eta = symbol("eta", means="learning rate", positive=True)
alpha = symbol("alpha", means="training time, epochs / (d_g N)", nonnegative=True)
sigma2 = symbol(
    "sigma2", r"\sigma^{2}", means="variance of the weights at the start", positive=True
)

# Order parameters and what follows from them
A = symbol("A", means="attention on the right action", real=True)
R = symbol("R", means="overlap of logic matrices with their own teachers", real=True)
S = symbol("S", means="overlap of logic matrices with the other teachers", real=True)
A_0 = symbol("A_0", means="A at time 0", positive=True)
R_0 = symbol("R_0", means="R at time 0", real=True)
S_0 = symbol("S_0", means="S at time 0", real=True)
zeta = symbol(
    "zeta", r"\zeta_{\mathrm{init}}", "mean sum of all logits, conserved", real=True
)
m = symbol("m", means="logit margin of the right state", real=True)
g = symbol(
    "g",
    means="probability that the mean-field student leaves to wrong states",
    positive=True,
)
z_k = symbol("z_k", r"\langle z_{k}\rangle", "mean logit of the right state", real=True)
z_kbar = symbol(
    "z_kbar", r"\langle z_{\bar k}\rangle", "mean logit of a wrong state", real=True
)
loss = symbol(
    "loss", r"\ell_{\mathrm{CE}}", "cross-entropy of the mean-field student", real=True
)
c_R = symbol("c_R", means="weight of R in the right logit", real=True)
c_S = symbol("c_S", means="weight of S in the right logit", real=True)
tau = symbol("tau", means="mean overlap of distinct teachers", real=True)
c_A = symbol("c_A", r"c(A)", "rate of A per force -dl/dA on it", nonnegative=True)
c_omega = symbol(
    "c_omega", r"c_{\omega}", "attention constant of the frequencies", nonnegative=True
)

# Indices and indexed arrays
a, b, c = (symbol(x, means="an action", integer=True, positive=True) for x in "abc")
p, q, r, s = (symbol(x, means="a state", integer=True, positive=True) for x in "pqrs")
i, j, k = (symbol(x, means="a position", integer=True, positive=True) for x in "ijk")
n = symbol("n", means="a rotary block", integer=True, positive=True)
t = symbol("t", means="a step of a sequence or rollout", integer=True, nonnegative=True)
M = array("M", means="logic matrices of the student, one per action")
M_star = array("M_star", r"M^{\star}", "their teachers: permutation matrices")
omega = array("omega", r"\omega", "rotary frequencies")
W_Q2 = array("W_Q2", r"|W_Q|^{2}", "squared norms of the rotary blocks of W_Q")
W_K2 = array("W_K2", r"|W_K|^{2}", "squared norms of the rotary blocks of W_K")

# Logit distribution and rollout
mu_k = symbol("mu_k", r"\mu_{k}", "mean of the right logit over inputs", real=True)
mu_kbar = symbol(
    "mu_kbar", r"\mu_{\bar k}", "mean of wrong logits over inputs", real=True
)
sigma_k = symbol(
    "sigma_k", r"\sigma_{k}", "deviation of the right logit", positive=True
)
sigma_kbar = symbol(
    "sigma_kbar", r"\sigma_{\bar k}", "deviation of wrong logits", positive=True
)
rho = symbol(
    "rho", r"\varrho", "probability that a rolled-out state is right", positive=True
)
accuracy = symbol(
    "accuracy",
    r"\bar{\mathcal{A}}",
    "next-token accuracy after a right state",
    real=True,
)
recovery = symbol(
    "recovery",
    r"\bar{\mathcal{B}}",
    "next-token accuracy after a wrong state",
    real=True,
)

PAPER = "forner2026"


def ref(text: str) -> str:
    """Reference into the paper."""
    return f"{PAPER}, {text}"
