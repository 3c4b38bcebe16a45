"""Symbol table of the induction-head model (symbols of Musat et al.,
arXiv:2511.01033).
"""

from theory.symbols.notation import array, symbol

# Sizes and places
N = symbol("N", means="item-label pairs in the context", integer=True, positive=True)
D = symbol(
    "D",
    means="dimension of items, labels and positional codes, even",
    integer=True,
    positive=True,
)
B = symbol(
    "B", means="right pairs, at the end of the context", integer=True, positive=True
)
mean_B = symbol(
    "mean_B", r"\langle B\rangle", "mean number of right pairs", positive=True
)
mean_B2 = symbol("mean_B2", r"\langle B^{2}\rangle", "its mean square", positive=True)
q = symbol("q", means="pair that is queried", integer=True, positive=True)
k = symbol("k", means="a pair", integer=True, positive=True)
l = symbol("l", means="a pair", integer=True, positive=True)
d = symbol("d", means="distance of a pair", integer=True, positive=True)
i = symbol("i", means="a row of the sequence", integer=True, positive=True)
j = symbol("j", means="a row of the sequence", integer=True, positive=True)
m = symbol("m", means="a coordinate", integer=True, positive=True)
n = symbol("n", means="a coordinate", integer=True, positive=True)

# Weights and training
t = symbol(
    "t",
    means="training time: unit rate on the parameters, loss summed over D",
    nonnegative=True,
)
tau = symbol("tau", means="t / N", real=True)
alpha = symbol("alpha", means="first layer: from a label to its item", real=True)
beta = symbol(
    "beta", means="second layer: from the query to the label of its item", real=True
)
gamma = symbol("gamma", means="output: size of what is retrieved", real=True)
squared_error = symbol(
    "squared_error", r"\mathcal{L}", "loss: squared error summed over D", real=True
)

# Abbreviations of App. B.4
G = symbol(
    "G", means="normaliser of the last label's attention, first layer", positive=True
)
F = symbol("F", means="number of wrong rows, 2 N - 1", positive=True)
p = symbol(
    "p", means="attention of a label on its own item, first layer", positive=True
)
s = symbol(
    "s",
    means="unnormalised attention of the query on the right label, second layer",
    positive=True,
)
r = symbol("r", means="normaliser of that attention", positive=True)
Z_q = symbol(
    "Z_q", means="normaliser of the query's second-layer attention", positive=True
)

# Asymptotics
x = symbol("x", means="1 / (2 N)", positive=True)
E = symbol("E", means="exp(beta^2 / 2)", positive=True)
u = symbol("u", positive=True)
w = symbol("w", means="score of the right label, beta p", positive=True)
beta_c = symbol("beta_c", r"\beta_{c}", "beta at which the loss drops", positive=True)
kappa = symbol("kappa", r"\kappa", "constant of the drop, a number", positive=True)
T_gamma = symbol("T_gamma", r"T_{\gamma}", "time of gamma = 1/2", positive=True)
T_beta = symbol("T_beta", r"T_{\beta}", "time of beta = 1/2", positive=True)
T_alpha = symbol("T_alpha", r"T_{\alpha}", "time of alpha = 1/2", positive=True)
T_drop = symbol("T_drop", r"T_{\mathrm{drop}}", "time of loss = 1/2", positive=True)

# Arrays
a = array("a", means="items")
b = array("b", means="labels")
y = array("y", means="target")
code = array("p", means="positional codes")
X_token = array("X_token", "X^{(1)}", "tokens of the rows")
X_position = array("X_position", "X^{(2)}", "positional codes of the rows")
U = array("U", means="residual stream after the first layer")
V = array("V", means="residual stream after the second layer")
W1 = array("W1", "W^{(1)}", "key-query matrix of the first layer")
W2 = array("W2", "W^{(2)}", "key-query matrix of the second layer")
W3 = array("W3", "W^{(3)}", "output matrix")
M = array("M_swap", "M", "swap of the halves of a positional code: item to label")
S = array("S_1", means="scores of the first layer")
T = array("T_1", means="attention of the first layer")
P = array("P_2", means="scores of the second layer")
Q = array("Q_2", means="attention of the second layer")
output = array("z", means="output at the query")

PAPER = "musat2025"


def ref(text: str) -> str:
    """Reference into the paper."""
    return f"{PAPER}, {text}"
