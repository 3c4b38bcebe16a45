"""Errors in the proportional limit: against least-squares fits at d = 20 to 80 and the best
attention on a pool at d = 100 and 200, all extrapolated to infinite d.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from linear_attention.proportional import Parameters, equations, error_new
from linear_attention.proportional.fits import draws, fit, tasks, unlimited
from theory.streams import keyed
from verify.check import Check, against, listed, near, sampled
from verify.report import Table, reporting

SETTINGS = {  # d is the smaller of two sizes
    "many sequences": Parameters(d=20, draws=64),
    "few sequences": Parameters(tau=0.3, kappa=2.0, d=40, draws=64),
    "few tasks": Parameters(kappa=0.5, alpha=3.0, tau=3.0, d=20, draws=96),
    "a ridge at tau = 1": Parameters(tau=1.0, ridge=0.5, rho=0.1, d=20, draws=64),
}
POOLS = {
    "few tasks": Parameters(kappa=0.6, alpha=10.0, d=100, draws=16),
    "kappa = 1": Parameters(alpha=10.0, d=100, draws=16),
    "many tasks": Parameters(kappa=2.0, alpha=10.0, d=100, draws=16),
}


def at_infinity(p: Parameters, made: Callable[..., Any]) -> np.ndarray:
    """Both errors at infinite d, draw by draw, shape (2, draws): linear in 1/d, from d and 2 d."""
    return (2 * draws(p.replace(d=2 * p.d), made) - draws(p, made)).T


@listed
def fits(table: Table) -> Iterator[Check]:
    """Both errors of fits to sequences."""
    for label, p in SETTINGS.items():
        for kind, errors in zip(("trained", "new"), at_infinity(p, fit), strict=True):
            told = f"error on {kind} tasks, {label}"
            name = f"error_{kind}"
            known = p.values() | {"error_trained": table["error_trained"].evaluate(p.values())}
            yield against(table, sampled, told, name, known, errors)


@listed
def pools(table: Table) -> Iterator[Check]:
    """Error on new tasks of the best attention on a pool."""
    for label, p in POOLS.items():
        told = f"error without limit on sequences, {label}"
        errors = at_infinity(p, unlimited)[1]
        yield against(table, sampled, told, "new_unlimited", p.values(), errors)


@listed
def spectrum(table: Table) -> Iterator[Check]:
    """M and M' at z, of eigenvalues of one large pool."""
    p = Parameters(kappa=0.7, d=600)
    why = (0.01, "traces of one pool scatter by 1/d")
    pool = tasks(p, keyed(0, 0))
    r = np.linalg.eigvalsh(pool.T @ pool / len(pool))
    for z in (0.1, 1.0):
        known = {"kappa": p.kappa, "z": z}
        known["M_z"] = float(table["mp_transform"].evaluate(known))
        for name, function in (("transform", 1 / (r + z)), ("slope", -1 / (r + z) ** 2)):
            label = f"mp {name} of a pool, z = {z:g}"
            yield against(table, near, label, f"mp_{name}", known, function.mean(), *why)


@listed
def limits(table: Table) -> Iterator[Check]:
    """Laws of the ends, against the errors: the peak at tau = 1 from both sides, the transition at
    kappa = 1.
    """
    p = Parameters(alpha=3.0, kappa=0.8)
    off = 1e-5
    label = "height of the peak from both sides"
    peaks = off * error_new(p, tau=[1 - off, 1 + off])
    why = (1e-3, "tau off 1 by 1e-5")
    yield against(table, near, label, "error_peak", p.values(), peaks, *why)
    for s in (-2.0, 0.0, 1.0):
        x = 1e-8
        q = Parameters(alpha=1e6, kappa=1 + s * x**0.5, rho=0.01)
        known = q.values() | {"x_star": x}
        M = float(table["mp_transform"].evaluate(known | {"z": x}))
        slope = float(table["mp_slope"].evaluate(known | {"z": x, "M_z": M}))
        whole = table["new_unlimited"].evaluate(known | {"M_x": M, "dM_x": slope})
        excess = (float(whole) - q.rho) / x**0.5
        why = (1e-3, "sqrt(x) = 1e-4")
        label = f"excess at the transition, s = {s:g}"
        yield against(table, near, label, "transition", {"s": s}, excess, *why)


report = reporting(spectrum, limits, pools, fits, equations=equations)
