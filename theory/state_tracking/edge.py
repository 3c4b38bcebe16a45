"""Sharpness of the loss, and the largest learning rate: amplitudes of keys and queries as linear
coordinates, in which the Jacobian of the flow is the Hessian of the loss.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from theory import Equations, Flow, scope, sweep, symbol, table, written_as
from theory.arguments import Positive
from theory.catalogue import cache
from theory.notation import Forms
from theory.numeric import function
from theory.parameters import ParameterError, most_extreme
from theory.state_tracking import mean_field, norms
from theory.state_tracking.attention import ANSATZ
from theory.state_tracking.decay import late_states, widest
from theory.state_tracking.norms import PER_TIME, WIDEST, decay, gap, lead, pushing_alike
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.scope import LATE_STATES, decaying_flow
from theory.state_tracking.symbols import A, L, N, R, S, d_g, d_h, eta, g, m, ref

BEYOND = "beyond the paper: large learning rates"
HELD = "R and S held: they have a per cent of the eigenvector's weight"

up = symbol("lined_up", r"p_{+}", "amplitude of keys and queries that are lined up", real=True)
down = symbol("opposed", r"p_{-}", "amplitude of those that are opposed", real=True)
sharpness_of_loss = symbol("sharpness", r"\Lambda", "largest eigenvalue of the Hessian", real=True)
largest = symbol("eta_edge", r"\eta_{\mathrm{e}}", "largest stable learning rate", positive=True)
SCORE, NORM = (up**2 - down**2) / 2, (up**2 + down**2) / 2  # of all blocks


@cache
def amplitudes() -> Forms:
    """Rates of the sum and the difference of keys and (turned) queries, over the root of two: each
    moves by itself, and their squares give score and norm.
    """
    push = pushing_alike()
    form = {up: (push - PER_TIME) * up, down: -(push + PER_TIME) * down}
    blocks = {norms.U[norms.n]: SCORE, norms.W_Q2[norms.n]: NORM, norms.W_K2[norms.n]: NORM}
    blocks |= {norms.push: push, norms.loss_rate: PER_TIME}
    for quantity, rate in ((SCORE, norms.of_score()), (NORM, norms.of_norm(norms.KEYS))):
        written_as(rate.subs(blocks), sum(sp.diff(quantity, x) * r for x, r in form.items()))
    return form


@cache
def of_A() -> sp.Expr:
    """Attention as a function of the amplitudes."""
    return norms.attention_of_lead().subs(norms.h, gap / sp.sqrt(d_h) * SCORE)


@cache
def flow(teacher_overlap: str = "iid") -> Flow:
    """Flow with norms in linear coordinates: amplitudes of keys and queries, R and S.

    Parameters
    ----------
    teacher_overlap : {'iid', 'distinct', 'group', 'tau'}
        As for `theory.state_tracking.dynamics.flow`.
    """
    plain = norms.flow(teacher_overlap)
    rates = {x: r for x, r in plain.rhs.items() if x not in (A, norms.P)}
    scored = sp.sqrt(d_h) / gap * lead()
    start = {x: plain.initial[norms.P] + sign * scored for x, sign in ((up, 1), (down, -1))}
    known = {A: plain.initial[A], gap: WIDEST}
    return replace(
        plain,
        name="state_tracking, amplitudes",
        rhs={x: r.subs(gap, WIDEST) for x, r in amplitudes().items()} | rates,
        initial={x: sp.sqrt(v.subs(known)) for x, v in start.items()}
        | {x: v for x, v in plain.initial.items() if x in rates},
        where={**plain.where, A: of_A().subs(gap, WIDEST)},
        reference=ref(BEYOND),
        observables={**plain.observables, "A": A},
    )


@cache
def of_learned_state() -> sp.Expr:
    """Sharpness of the learned state under weight decay, along keys and queries: the decay times
    twice the lead of the score times minus the logarithmic slope of the push in the lead.
    """
    spelled = pushing_alike().subs(g, mean_field.equations()["g"].rhs)
    margin = mean_field.margin_of_state()
    falls = sp.diff(spelled.subs(m, margin), A) * A * (1 - A)  # per lead
    slope = falls / spelled.subs(m, margin)
    form = 2 * A - 1 + A * (1 - A) * (1 - g) * N / (N - 1) * (1 - 1 / d_g) * (R - S)
    in_margin = form.subs(g, mean_field.equations()["g"].rhs).subs(m, margin)
    written_as(in_margin, -slope)
    by_up = written_as(gap / sp.sqrt(d_h) * up**2, up * sp.diff(gap / sp.sqrt(d_h) * SCORE, up))
    full = by_up.subs(up**2, 2 * sp.sqrt(d_h) / gap * lead())  # up^2 = 2 P, down = 0
    # The push equals the decay there, eta d_g N times the weight decay.
    return written_as(2 * lead(), full) * decay * form


@cache
def equations() -> Equations:
    """Amplitudes, and the sharpness of the learned state."""
    rates = amplitudes()
    return table(
        ref(BEYOND),
        status="closure",
        lined_up=(sp.Derivative(up, norms.alpha), lambda: rates[up], ANSATZ, norms.ALIKE),
        opposed=(sp.Derivative(down, norms.alpha), lambda: rates[down], ANSATZ, norms.ALIKE),
        sharpness_learned=(
            sharpness_of_loss,
            of_learned_state,
            "leading order",
            *norms.STEADY,
            HELD,
        ),
        eta_edge=(largest, 2 / sharpness_of_loss, "exact"),
    )


# Sharpness along the flow and of the learned state, and the learning rate up to which descent
# is stable there, as numbers

STATE = (up, down, R, S)
OTHERS = (N, L, d_g, d_h, decay, gap, eta)


@cache
def _hessian() -> Any:
    """Minus the Jacobian of the flow per eta d_g N, without the drift of zeta."""
    flow = norms.flow()
    rates = amplitudes() | {x: r for x, r in flow.rhs.items() if x in (R, S)}
    spelled = [flow._spell(rates[x]).subs(A, of_A()).subs(norms.zeta_now, 0) for x in STATE]
    jacobian = -sp.Matrix(spelled).jacobian(STATE) / (eta * d_g * N)
    return function([*jacobian], (*STATE, *OTHERS))


def sharpest(p: Parameters, state: Any, width: float) -> np.ndarray:
    """Largest eigenvalue of the Hessian in the reduced coordinates, at states ``(4, ...)``."""
    with np.errstate(all="ignore"):
        entries = _hessian()(*state, p.N, p.L, p.d_g, p.d_h, p.weight_decay, width, p.eta)
    matrix = np.moveaxis(np.array(entries), 0, -1)
    if not np.isfinite(matrix).all():
        return np.full(matrix.shape[:-1], np.nan)
    return np.linalg.eigvals(matrix.reshape(*matrix.shape[:-1], 4, 4)).real.max(-1)


@scope.guard(decaying_flow("iid"))
@sweep.over_fields
def sharpness(p: Parameters, alpha: Positive) -> xr.Dataset:
    """Sharpness along the flow with norms: where descent leaves it, at learning rates above
    ``eta_edge`` = 2 / sharpness.

    Parameters
    ----------
    p : Parameters
        Sizes, learning rate of the flow's clock, and weight decay, if any.
    alpha : float
        Length of the curve.

    Returns
    -------
    Dataset
        The curve of `theory.state_tracking.edge.flow`, with ``sharpness`` and ``eta_edge``; its
        loss is infinite where the logits of zeta overflow.

    Raises
    ------
    ParameterError
        If the attention at the start is none of random keys and queries, or numbers overflow.
    """
    try:
        with np.errstate(invalid="raise"):
            curve = flow().solve(p, alpha=alpha)
    except FloatingPointError:
        extreme = most_extreme(p.as_dict())
        raise ParameterError(f"{extreme}: no start of random keys and queries") from None
    state = np.array([curve[x.name].values for x in STATE])
    eigenvalues = sharpest(p, state, p.L / (p.L - 1))
    if not np.isfinite(eigenvalues).all():
        raise ParameterError(f"{most_extreme(p.as_dict())}: the Hessian leaves double precision")
    return curve.assign(sharpness=("alpha", eigenvalues), eta_edge=("alpha", 2 / eigenvalues))


@scope.guard(LATE_STATES)
@sweep.over_fields
def largest_rate(p: Parameters) -> float:
    """Largest learning rate at which descent with weight decay stays in the learned state; NaN
    where there is none.

    Parameters
    ----------
    p : Parameters
        With ``weight_decay``. Fields as arrays by keyword.
    """
    ends = late_states(p).sel(state="learned")
    if np.isnan(ends.A):
        return np.nan
    state = np.array([np.sqrt(2 * float(ends.P)), 0.0, float(ends.R), float(ends.S)])
    return float(2 / sharpest(p, state, widest(p)))
