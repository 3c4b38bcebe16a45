"""Symbols of the model (those of Zhang et al., arXiv:2501.16265, where it has one), and tables of
equations in them.
"""

from typing import Any

from theory import equation
from theory.notation import array, symbol

INTEGER = {"integer": True, "positive": True}

# Sizes and places; arrays run over directions d = 1..D, the eigenvectors of Lambda
D = symbol("D", means="dimension of tokens", **INTEGER)
N = symbol("N", means="examples in the prompt", **INTEGER)
H = symbol("H", means="heads", **INTEGER)
R = symbol("R", means="rank of key and query", **INTEGER)
m = symbol("m", means="directions that are learned", **INTEGER)
d, i, j, k, l = (symbol(x, means="a direction", **INTEGER) for x in "dijkl")
g, h = (symbol(x, means="a head", **INTEGER) for x in "gh")
r, s = (symbol(x, means="a row of key and query", **INTEGER) for x in "rs")

# Data
SIZE = "trace of Lambda, the covariance of tokens"
lam = array("lambda", r"\lambda", "eigenvalues of Lambda")
a = array("a", means="eigenvalues of E beta beta^T")
trace = symbol("tr_Lambda", r"\operatorname{tr}\Lambda", SIZE, positive=True)
lam_1 = symbol("lambda_1", r"\lambda_{1}", "eigenvalue of the direction at hand", positive=True)
a_1 = symbol("a_1", means="a in that direction", positive=True)
c = symbol("c", means="a at Lambda = I", positive=True)

# Weights and training
t = symbol("t", means="gradient flow of unit rate on half the loss", nonnegative=True)
eta = symbol("eta", means="step in t", positive=True)
W = array("W", means="sum over heads of value times key-query matrix")
G = array("G", means="force: minus the gradient of half the loss in W")
U = array("U", means="merged key-query matrices of the heads")
K, Q = array("K", means="keys of the heads"), array("Q", means="queries of the heads")
v, u = array("v", means="values of the heads"), array("u", means="weight along a direction")
w = array("w", means="best weight along a direction")
plus = array("p_plus", "p^{+}", "(k + q)/2 at the start, rank one")
minus = array("p_minus", "p^{-}", "(k - q)/2 at the start, rank one")
v_0 = symbol("v_0", means="value at the start", real=True)
u_0 = symbol("u_0", means="weight along the direction at the start", positive=True)
P_0 = symbol("P_0", means="squared value at the start", positive=True)
s_0 = symbol("s_0", means="s at the start", positive=True)
value = symbol("v", means="value of the one head", real=True)
along = symbol("u", means="weight of the one head along its direction", real=True)
scale = symbol("s", means="value times weight per direction, white data", real=True)
rate = symbol("gamma", means="early growth rate, the norm of Lambda^2", positive=True)
kappa = symbol("kappa", means="invariant of the one head: unbalance of its start", positive=True)
tau = symbol("tau", means="integral of v over t", real=True)
loss = symbol("L", r"\mathcal{L}", "squared error of the last token", real=True)
drop = symbol("T_drop", r"T_{\mathrm{drop}}", "time of half the drop of the loss", positive=True)


def table(place: str, *assumptions: str, **rows: Any) -> dict[str, equation.Equation]:
    """Equations of one origin; references to the paper give the topic, as its equation numbers were
    not available.
    """
    return equation.table(f"zhang2025, {place}", *assumptions, **rows)
