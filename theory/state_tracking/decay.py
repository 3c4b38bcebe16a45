"""Coupled weight decay under descent: the overlap of the learned state, where the gradient of
the loss balances the decay; all fixed points, both critical decays, and the onset under decay.
"""

from functools import cache
from typing import Any

import numpy as np
import scipy.optimize
import sympy as sp
import xarray as xr

from theory import Equations, ParameterError, by_dimension, scope, sweep, symbol, table, written_as
from theory.numeric import function
from theory.onset import Onset, tabulated
from theory.state_tracking import late_time, norms
from theory.state_tracking.norms import BEYOND, decay, gap, kappa, steady
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.scope import DECAY_THRESHOLDS, DECAYING, LATE_STATES
from theory.state_tracking.symbols import A, L, N, R, d_g, d_h, ref

LARGEST = 600.0  # of N R / (N - 1), whose exponential is a number
LOCKED = ("A = 1", late_time.INDEPENDENT, "infinite training set")

lambert = symbol("W_r", r"W_{N-1}", "root W of W e^W + (N - 1) W = 1/(decay d_g)", positive=True)
R_inf = symbol("R_inf", r"R_{\infty}", "R in the end", positive=True)


def balance() -> sp.Expr:
    """Decay at which R stands still: the `norms.balance` at A = 1, where S has decayed."""
    R_still, S_still = (x.subs({A: 1, norms.steady: R}) for x in norms.overlaps())
    written_as(R, R_still)
    written_as(sp.S.Zero, S_still)
    form = 1 / (d_g * N * R * (1 + sp.exp(N * R / (N - 1)) / (N - 1)))
    return written_as(form, norms.balance().subs({A: 1, norms.steady: R}))


def by_lambert() -> sp.Expr:
    """R by the generalised Lambert function, whose defining equation is the balance."""
    at_one = norms.by_lambert().subs({A: 1, norms.lambert: lambert})
    return written_as((N - 1) / N * lambert, at_one)


@cache
def equations() -> Equations:
    """Balance of loss and decay, and the overlap in the end."""
    return table(
        ref(BEYOND),
        *LOCKED,
        status="closure",
        decay_of_R=(decay, balance),
        R_decayed=(R_inf, by_lambert),
    )


@by_dimension()
@scope.guard(DECAYING)
def late_overlap(p: Any, **swept: Any) -> np.ndarray:
    """Overlap R in the end under descent with coupled weight decay.

    Parameters
    ----------
    p : Parameters
        With ``weight_decay``; infinite without.
    **swept
        Arrays of fields of the parameters.

    Raises
    ------
    ParameterError
        If decay is so weak that N R / (N - 1) would be above 600, where probabilities underflow.

    Returns
    -------
    ndarray
        R where attention stays on the right action.
    """
    values = sweep.numbers(p, names := ("weight_decay", "N", "d_g"), **swept)

    def one(rate: float, states: float, actions: float) -> float:
        return per_attention(rate, 1.0, states, actions) if rate else np.inf

    return np.vectorize(one, otypes=[float])(*(values[name] for name in names))[()]


def per_attention(rate: float, attention: float, states: float, actions: float) -> float:
    """R - S per attention where both stand still under a weight decay.

    Raises
    ------
    ParameterError
        If the exponential of the margin is beyond the largest number.
    """
    balance = _compiled()["balance"]
    largest = LARGEST * (states - 1) / states / (attention**2 + (1 - attention**2) / actions)
    if rate < balance(attention, largest, states, actions):
        raise ParameterError(
            f"weight_decay = {rate:g}: must be 0, or large enough for R < {largest:g}"
        )
    most = min(1 / (rate * actions * states), largest)  # largest where g = 1
    return scipy.optimize.brentq(
        lambda x: np.log(balance(attention, x, states, actions) / rate),
        1e-12 * min(most, 1),
        most,
        xtol=1e-14 * most,
    )


# Fixed points under coupled weight decay, and the decays at which they appear, as numbers

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
    eq = norms.steady_equations()
    sizes = (A, kappa, N, d_g)
    return {
        "gap": function(norms.gap_of_block(), (norms.w, L)),
        "kappa": function(eq["kappa_w"].rhs, (gap, N, d_g, d_h)),
        "decay": function(eq["decay_of_A"].rhs, sizes),
        "r": function(eq["r_steady"].rhs, (A, kappa)),
        "R": function(eq["R_steady"].rhs, (A, d_g, steady)),
        "S": function(eq["S_steady"].rhs, (A, d_g, steady)),
        "P": function(eq["P_steady"].rhs, (A, L, d_h, gap)),
        "balance": function(norms.balance(), (A, steady, N, d_g)),
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
    low = grid[max(best - 1, 0)]
    high = grid[min(best + 1, grid.size - 1)]
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
    attention = np.array(ends)
    unlearned = per_attention(p.weight_decay, 1 / p.L, p.N, p.d_g)
    per_A = np.array([unlearned, code["r"](ends[1], steepness(p))])
    states = {"A": attention, **{x: code[x](attention, p.d_g, per_A) for x in "RS"}}
    with np.errstate(divide="ignore"):
        states["P"] = np.maximum(code["P"](attention, p.L, p.d_h, widest(p)), 0)
    numbers = p.values() | {x: states[x][0] for x in "RS"} | {"gap": widest(p)}
    wrong = p.weight_decay * p.d_g * p.N * per_A[0]
    growth = float(norms.steady_equations()["decay_growth"].evaluate(numbers | {"g": wrong}))
    data = {x: ("state", v, {"long_name": MEANING[x]}) for x, v in states.items()}
    grown = ((), growth, {"long_name": MEANING["decay_growth"]})
    return xr.Dataset(data | {"decay_growth": grown}, coords={"state": ["unlearned", "learned"]})


# Emergence under coupled weight decay

SHOWN = ("N", "L", "d_g", "d_h", "eta", "weight_decay", "A_0", "R_0", "S_0", "zeta")
ABSENT = {"alpha_half": "never emerges"} | dict.fromkeys(
    [f"{x}_learned" for x in "ARSP"], "no learned state"
)
EARLY = (
    "alpha_half leaves out the noise of M, which delays emergence: by 30% in the mean of eight "
    "students of the small setting (standard error 9%)"
)
AGES, FOLDS = 20.0, 20.0  # followed: times of decay, and of growth from the unlearned state


def horizon(p: Parameters, growth: float) -> float:
    """Time within which attention emerges if it does: random keys decay, then grow again."""
    lost = p.eta * p.weight_decay * p.d_g * p.N
    return AGES / lost + (FOLDS * (1 + lost / growth) / growth if growth > 0 else 0.0)


def onset(p: Parameters, until: float | None = None) -> Onset:
    """Numbers and curves under weight decay.

    Parameters
    ----------
    p : Parameters
        Parameters with ``weight_decay``.
    until : float, optional
        Length of the curves in alpha; by default 2.5 times the time of A = 1/2, or the time in
        which weights decay.
    """
    edges, late = decay_thresholds(p), late_states(p)
    learned = late.sel(state="learned")
    growth = float(late.decay_growth)
    with_norms, end = norms.flow(p.teachers), horizon(p, growth)
    half = {"half": A - sp.Rational(1, 2)}
    time = float(with_norms.solve(p, alpha=end, events=half, at=[0.0]).half)
    if p.A_0 is not None and p.A_0 >= 0.5:
        time = 0.0
    notes = [EARLY] if time > 0 else []
    if np.isnan(time) and np.isfinite(learned.A):
        notes.append(
            "from this start attention dies out; what was learned under less decay would be kept"
        )
    if until is None:
        until = 2.5 * time if time > 0 else end / 4
    scratch = float(edges.decay_unlearned)
    lost = float(edges.decay_lost)
    return tabulated(
        {
            "decay_unlearned": (
                scratch,
                "weight decay above which nothing is learned from scratch",
            ),
            "decay_lost": (lost, "weight decay above which what was learned is lost"),
            "decay_growth": (growth, "growth rate of small keys and queries beside A = 1/L"),
            "alpha_half": (time, "time of A = 1/2, flow with norms", "alpha"),
            "A_learned": (float(learned.A), "attention of the learned state"),
            "R_learned": (float(learned.R), "its overlap R"),
            "S_learned": (float(learned.S), "its overlap S"),
            "P_learned": (float(learned.P), "its squared norm of keys, or queries"),
        },
        curves=lambda: {"flow": with_norms.solve(p, alpha=until), "decay": branches(p)},
        equations=lambda: [
            *with_norms.equations().values(),
            *norms.equations().values(),
            *norms.steady_equations().values(),
        ],
        plot=draw,
        absent=ABSENT,
        notes=notes,
        setting={name: v for name, v in p.values().items() if name in SHOWN},
        crossings={"alpha_half": (with_norms, p, half["half"])},
    )


def branches(p: Parameters) -> xr.Dataset:
    """Weight decay at which attention is stationary, as a function of attention, and the stability
    of that state.
    """
    attention = 1 - np.geomspace(1 - 1 / p.L, 1e-4, 400)
    attention[0] = 1 / p.L
    values = {"weight_decay": of_attention(p, attention), "stable": attention > edge(p)}
    return xr.Dataset({x: ("A", v) for x, v in values.items()}, coords={"A": attention})


def draw(result: Onset, axes: Any) -> None:
    """Order parameters over time (left), and attention in the end over decay (right)."""
    from theory.runtime import plotting  # imports matplotlib, needed for figures only

    left, right = axes
    curve = result.curves()["flow"]
    ends = result.curves()["decay"]
    for x, dash in (("A", "-"), ("R", "--"), ("S", ":")):
        left.plot(curve.alpha, curve[x], ls=dash, label=f"${x}$")
    left.set(
        xlabel=r"training time $\alpha$ = epochs / $(d_g N)$",
        ylabel="attention $A$, overlaps $R$, $S$",
        xlim=(0, float(curve.alpha[-1])),
    )
    first = result.numbers["decay_unlearned"]
    decay_here = result.setting["weight_decay"]
    last = 1.5 * max(result.numbers["decay_lost"], decay_here)
    guess = float(ends.A[0])
    learned = ends.where(ends.stable)
    between = ends.where(~ends.stable)
    right.plot(learned.weight_decay, learned.A, color="C0", label="learned, stable")
    right.plot(between.weight_decay, between.A, color="C1", ls="--", label="unstable")
    right.plot([first, last], [guess, guess], color="C2", ls="-.", label="$A = 1/L$, stable")
    right.plot([0, first], [guess, guess], color="C1", ls="--")
    right.axvline(decay_here, color="0.6", lw=0.8, label="weight decay here")
    right.set(
        xlabel=r"weight decay $\lambda_{\mathrm{w}}$",
        ylabel="attention $A$ in the end",
        xlim=(0, last),
        ylim=(0, 1.05),
    )
    for axis in axes:
        plotting.below(axis)
