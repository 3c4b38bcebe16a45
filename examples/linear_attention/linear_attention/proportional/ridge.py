"""Ridge regression on Gaussian features, about as many as samples: one scalar problem per weight
(Gordon's comparison), and the two numbers that it leaves, by stationarity.
"""

from functools import cache

import sympy as sp

from linear_attention.proportional.spectrum import mean
from linear_attention.proportional.symbols import M_z, r, rho, ridge, slope, tau, trained, x, xi, z
from theory.algebra import linear_root, proved, vanishes, written_as

F = r + x  # variance of a feature: of a context along an eigenvector of R
TARGET = r / F  # best weight there, which shrinks the noisy context
T, b, s, c = sp.symbols("T b s c", positive=True)
v, g = sp.symbols("v g", real=True)


@cache
def weight() -> tuple[sp.Expr, sp.Expr]:
    """Deviation v of the weight of a feature of variance s from its target c, in units of the
    feature: its mean, and its coefficient of T g / sqrt(n), g Gaussian, given xi.

    The mean squared error of the fit is max_b 2 b |e| - b^2; Gordon's comparison replaces the
    residual |e| by sqrt(sigma^2 + |v|^2) - g.v, and a square root is min_T (T + (...)/T)/2.
    """
    mode = b / T * v**2 - 2 * b * g * v + ridge * (c + v / sp.sqrt(s)) ** 2
    solution = linear_root(sp.diff(mode, v), v).subs(b, ridge * T / xi)
    bias = solution.subs(g, 0)
    return sp.factor(bias), sp.factor(sp.diff(solution, g) / T)


def at_mode(of: sp.Expr) -> sp.Expr:
    """A function of s and c at an eigenvalue r."""
    return of.subs({s: F, c: TARGET})


def over(of: sp.Expr) -> sp.Expr:
    """Mean over eigenvalues at z = x + xi."""
    return mean(of.subs(xi, z - x)).subs(z, x + xi)


@cache
def penalty() -> sp.Expr:
    """Ridge at which xi is the effective one, from stationarity in b: T - g.v = b."""
    _, noise = weight()
    share = over(at_mode(noise)) / tau  # d^2 weights over n samples
    return sp.expand(xi * (1 - share))


@cache
def error() -> sp.Expr:
    """Error on the trained tasks, T^2 = sigma^2 + |v|^2 (stationarity in T), solved for T^2; the
    error sigma^2 of the best weights is what no weight explains.
    """
    bias, noise = weight()
    stationary = sp.diff(b * T + b * (trained + v**2) / T, T)  # trained stands for sigma^2
    proved(vanishes(stationary.subs(trained, T**2 - v**2)), "T^2 is not the error")
    least = rho + r * (1 - TARGET)
    loss = over(sp.cancel(least + at_mode(bias) ** 2 - rho)) + rho
    above = rho + x + (xi**2 - x**2) * M_z + xi * (x + xi) ** 2 * slope
    form = tau * above / (tau - 1 + 2 * xi * M_z + xi**2 * slope)
    return written_as(form, loss / (1 - over(at_mode(noise) ** 2) / tau))


@cache
def second_moment() -> sp.Expr:
    """Mean square of the weights themselves, c + v/sqrt(s), given the error on trained tasks."""
    bias, noise = (at_mode(part / sp.sqrt(s)) for part in weight())
    return over(sp.cancel((TARGET + bias) ** 2)) + trained * over(noise**2) / tau


@cache
def overlap() -> sp.Expr:
    """Mean of the weights that pass a task on: the diagonal ones."""
    return over(sp.cancel(TARGET + at_mode(weight()[0] / sp.sqrt(s))))
