"""Symbols of the proportional limit (those of Lu et al., arXiv:2405.11751, where it has one), and
tables of equations in them.
"""

from typing import Any

from theory import equation, symbol

alpha = symbol("alpha", means="pairs in the context over d", positive=True)
kappa = symbol("kappa", means="training tasks over d", positive=True)
tau = symbol("tau", means="training sequences over d^2", positive=True)
rho = symbol("rho", means="variance of label noise, that of labels being 1", positive=True)
ridge = symbol("ridge", r"\lambda", "ridge, per training sequence", nonnegative=True)
x = symbol("x_star", r"x^{\star}", "variance with which a context shows its task", positive=True)
r = symbol("r", means="eigenvalue of the tasks' second moment R", nonnegative=True)
z = symbol("z", means="argument of the Stieltjes transform", positive=True)
M = M_z = symbol("M_z", "M(z)", "mean of 1/(r + z) over the eigenvalues of R", positive=True)
slope = symbol("dM_z", "M'(z)", "its derivative", negative=True)
M_x = symbol("M_x", r"M(x^{\star})", "M at x", positive=True)
slope_x = symbol("dM_x", r"M'(x^{\star})", "its derivative at x", negative=True)
xi = symbol("xi", means="effective ridge", positive=True)
trained = symbol("error_trained", r"e^{\mathrm{IDG}}", "error on the trained tasks", positive=True)
new = symbol("error_new", r"e^{\mathrm{ICL}}", "error on new tasks", positive=True)
width = symbol("s", means="distance of kappa from 1, (kappa - 1)/sqrt(x)", real=True)

GAUSSIAN = "products of token and context act like Gaussian features of their covariance"
LARGE = "d large at fixed alpha, kappa, tau; tasks N(0, I), tokens N(0, I/d)"


def table(place: str, *assumptions: str, **rows: Any) -> dict[str, equation.Equation]:
    """Equations of one origin."""
    return equation.table(f"zhang2025, beside it: Lu et al. 2024, {place}", *assumptions, **rows)
