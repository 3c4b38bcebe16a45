"""Symbol table of the induction-head model (symbols of Musat et al., arXiv:2511.01033)."""

from theory.notation import array, symbol

# Sizes and places
N = symbol("N", integer=True, positive=True)  # item-label pairs in the context
D = symbol(
    "D", integer=True, positive=True
)  # dimension of items, labels and positional codes, even
q = symbol("q", integer=True, positive=True)  # pair that is queried
k, l, d = (symbol(x, integer=True, positive=True) for x in "kld")  # pairs
i, j = (symbol(x, integer=True, positive=True) for x in "ij")  # rows of the sequence
m, n = (symbol(x, integer=True, positive=True) for x in "mn")  # coordinates

# Weights and training
t = symbol(
    "t", nonnegative=True
)  # training time: unit rate on the three parameters, loss summed over D
tau = symbol("tau", real=True)  # t / N
alpha, beta, gamma = (symbol(x, real=True) for x in ("alpha", "beta", "gamma"))
squared_error = symbol("squared_error", r"\mathcal{L}", real=True)

# Abbreviations of App. B.4
G = symbol("G", positive=True)
F = symbol("F", positive=True)
p = symbol("p", positive=True)  # attention of a label on its own item, first layer
s = symbol(
    "s", positive=True
)  # unnormalised attention of the query on the right label, second layer
r = symbol("r", positive=True)
Z_q = symbol("Z_q", positive=True)  # normaliser of the query's second-layer attention

# Asymptotics
x = symbol("x", positive=True)  # 1 / (2 N)
E = symbol("E", positive=True)  # exp(beta^2 / 2)
u = symbol("u", positive=True)
w = symbol("w", positive=True)  # beta p
beta_c = symbol("beta_c", r"\beta_{c}", positive=True)
kappa = symbol("kappa", r"\kappa", positive=True)
T_gamma = symbol("T_gamma", r"T_{\gamma}", positive=True)
T_beta = symbol("T_beta", r"T_{\beta}", positive=True)
T_alpha = symbol("T_alpha", r"T_{\alpha}", positive=True)
T_drop = symbol("T_drop", r"T_{\mathrm{drop}}", positive=True)

# Arrays
a, b, y = array("a"), array("b"), array("y")
code = array("p")  # positional codes
X_token, X_position = array("X_token", "X^{(1)}"), array("X_position", "X^{(2)}")
U, V = array("U"), array("V")
W1, W2, W3 = array("W1", "W^{(1)}"), array("W2", "W^{(2)}"), array("W3", "W^{(3)}")
M = array("M_swap", "M")
S, T, P, Q = (array(name) for name in ("S_1", "T_1", "P_2", "Q_2"))
output = array("z")

PAPER = "musat2025"


def ref(text: str) -> str:
    """Reference into the paper."""
    return f"{PAPER}, {text}"
