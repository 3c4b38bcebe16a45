"""Fixed points under coupled weight decay, and the decays at which they appear, as numbers."""

from functools import cache
from typing import Any

import numpy as np
import scipy.optimize
import xarray as xr

from theory import ParameterError, scope, sweep
from theory.numeric import function
from theory.state_tracking import norms, phases
from theory.state_tracking.norms import gap
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.phases import kappa, steady
from theory.state_tracking.scope import DECAY_THRESHOLDS, LATE_STATES
from theory.state_tracking.symbols import A, L, N, d_g, d_h

UNDONE = 1e-12  # smallest 1 - A of a learned state
WORDS = {
    "decay_unlearned": "weight decay above which nothing is learned from scratch: A = 1/L is stable",
    "decay_lost": "weight decay above which what was learned is lost: only A = 1/L is left",
}
FAINT = 1e-12  # largest gap that is a rounding error
MEANING = {
    "A": "attention on the right action",
    "R": "overlap with the own teachers",
    "S": "overlap with other teachers",
    "P": "squared norm of keys, or queries",
    "decay_growth": "growth rate of small keys and queries, per time alpha",
}


@cache
def _compiled() -> dict[str, Any]:
    """Array code of the equations, in the numbers that they need."""
    eq = phases.equations()
    sizes = (A, kappa, N, d_g)
    return {
        "gap": function(norms.gap_of_block(), (norms.w, L)),
        "kappa": function(eq["kappa_w"].rhs, (gap, N, d_g, d_h)),
        "decay": function(eq["decay_of_A"].rhs, sizes),
        "r": function(eq["r_steady"].rhs, (A, kappa)),
        "R": function(eq["R_steady"].rhs, (A, d_g, steady)),
        "S": function(eq["S_steady"].rhs, (A, d_g, steady)),
        "P": function(eq["P_steady"].rhs, (A, L, d_h, gap)),
        "balance": function(phases.balance(), (A, steady, N, d_g)),
    }


def widest(p: Parameters) -> float:
    """Largest gap 1 - lambda_n of a rotary block.

    Raises
    ------
    ParameterError
        If no block tells positions apart.
    """
    most = float(_compiled()["gap"](p.frequencies, p.L).max())
    if most < FAINT:
        raise ParameterError(
            f"rope_theta = {p.rope_theta:g}: no rotary block tells positions apart, d_h = {p.d_h}"
        )
    return most


def steepness(p: Parameters) -> float:
    """The constant kappa_w."""
    return float(_compiled()["kappa"](widest(p), p.N, p.d_g, p.d_h))


def of_attention(p: Parameters, attention: Any) -> Any:
    """Weight decay at which attention is stationary at given values, stable or not."""
    return _compiled()["decay"](attention, steepness(p), p.N, p.d_g)


def edge(p: Parameters) -> float:
    """Attention at the largest decay with a learned state; 1/L if decay falls with it from
    there on.
    """
    grid = np.linspace(1 / p.L, 1 - 1e-9, 400)
    best = int(of_attention(p, grid).argmax())
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
    maximum = scipy.optimize.minimize_scalar(
        lambda x: -float(of_attention(p, x)),
        bounds=(low, high),
        method="bounded",
        options=dict(xatol=1e-12),
    )
    return float(maximum.x) if best else float(grid[0])


@scope.guard(DECAY_THRESHOLDS)
@sweep.over_fields
def decay_thresholds(p: Parameters) -> xr.Dataset:
    """Weight decay above which nothing is learned from scratch, and the larger one above which a
    learned state is lost. In between students keep what they have learned, but learn nothing from
    scratch.

    Parameters
    ----------
    p : Parameters
        Sizes; the learning rate does not matter. Fields as arrays by keyword: ``L=[3, 10]``.

    Returns
    -------
    Dataset
        ``decay_unlearned``, ``decay_lost``, and ``A_lost``, the attention at which it is lost.
    """
    last = edge(p)
    values = {
        "decay_unlearned": of_attention(p, 1 / p.L),
        "decay_lost": of_attention(p, last),
        "A_lost": last,
    }
    words = WORDS | {"A_lost": "least attention of a learned state"}
    return xr.Dataset(
        {name: ((), float(v), {"long_name": words[name]}) for name, v in values.items()}
    )


@scope.guard(LATE_STATES)
@sweep.over_fields
def late_states(p: Parameters) -> xr.Dataset:
    """Fixed points under coupled weight decay: A = 1/L, where keys and queries have died out, and
    the learned state.

    Parameters
    ----------
    p : Parameters
        With ``weight_decay`` above zero. Fields as arrays by keyword.

    Returns
    -------
    Dataset
        ``A``, ``R``, ``S`` and ``P`` over ``state`` (``unlearned``, ``learned``), the learned one
        NaN where it does not exist; and ``decay_growth``, the rate at which keys and queries grow
        from the unlearned one, per time alpha: it is stable where this is negative.
    """
    code, ends = _compiled(), [1 / p.L, np.nan]
    last = edge(p)
    if p.weight_decay < of_attention(p, last):
        ends[1] = 1 - np.exp(
            scipy.optimize.brentq(
                lambda x: of_attention(p, 1 - np.exp(x)) / p.weight_decay - 1,
                np.log(UNDONE),
                np.log1p(-last),
                xtol=1e-13,
            )
        )
    balance = scipy.optimize.brentq(
        lambda x: np.log(code["balance"](1 / p.L, np.exp(x), p.N, p.d_g) / p.weight_decay),
        -50,
        np.log(1 / (p.weight_decay * p.d_g * p.N)),
        xtol=1e-13,
    )
    attention, per_A = np.array(ends), np.array([np.exp(balance), code["r"](ends[1], steepness(p))])
    states = {"A": attention, **{x: code[x](attention, p.d_g, per_A) for x in "RS"}}
    with np.errstate(divide="ignore"):
        states["P"] = np.maximum(code["P"](attention, p.L, p.d_h, widest(p)), 0)
    numbers = p.values() | {x: states[x][0] for x in "RS"} | {"gap": widest(p)}
    wrong = p.weight_decay * p.d_g * p.N * per_A[0]
    growth = float(phases.equations()["decay_growth"].evaluate(numbers | {"g": wrong}))
    data = {x: ("state", v, {"long_name": MEANING[x]}) for x, v in states.items()}
    grown = ((), growth, {"long_name": MEANING["decay_growth"]})
    return xr.Dataset(data | {"decay_growth": grown}, coords={"state": ["unlearned", "learned"]})
