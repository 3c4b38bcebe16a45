"""Symbols of the model (those of Zhang et al., arXiv:2501.16265, where it has one), and tables of
equations in them.
"""

from typing import Any

from theory import equation
from theory.notation import array, symbol

# Sizes and places; arrays run over directions d = 1..D, the eigenvectors of Lambda
D, N, H, R, m = (symbol(x, integer=True, positive=True) for x in "DNHRm")
d, e, f, g, h, i, j, k, l, n, o, r, s = (
    symbol(x, integer=True, positive=True) for x in "defghijklnors"
)

# Data
lam, a = array("lambda", r"\lambda"), array("a")  # eigenvalues of Lambda, of E beta beta^T
trace = symbol("tr_Lambda", r"\operatorname{tr}\Lambda", positive=True)
lam_1, a_1 = symbol("lambda_1", r"\lambda_{1}", positive=True), symbol("a_1", positive=True)
c = symbol("c", positive=True)  # a at Lambda = I

# Weights and training
t = symbol("t", nonnegative=True)  # gradient flow of unit rate on half the loss
eta = symbol("eta", positive=True)  # step in t
W, G, U, K, Q = (array(x) for x in "WGUKQ")
v, u, w = (array(x) for x in "vuw")  # heads; directions
plus, minus = array("p_plus", "p^{+}"), array("p_minus", "p^{-}")  # (k +- q)/2, rank one
v_0 = symbol("v_0", real=True)
u_0, P_0, s_0 = (symbol(x, positive=True) for x in ("u_0", "P_0", "s_0"))
value, along, scale = (symbol(x, real=True) for x in ("v", "u", "s"))
rate = symbol("gamma", positive=True)  # |Lambda^2|_F
kappa = symbol("kappa", positive=True)
tau = symbol("tau", real=True)  # integral of v over t
loss = symbol("L", r"\mathcal{L}", real=True)
drop = symbol("T_drop", r"T_{\mathrm{drop}}", positive=True)


def table(place: str, *assumptions: str, **rows: Any) -> dict[str, equation.Equation]:
    """Equations of one origin; of the paper the topic: its numbers were not at hand."""
    return equation.table(f"zhang2025, {place}", *assumptions, **rows)
