"""When semantic attention emerges: alpha_c, alpha_l, and the phase diagram over omega;
where informed descent ends.
"""

import itertools
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr
from scipy.interpolate import PchipInterpolator

from theory import Equation, Onset, ParameterError
from theory.call import scope
from theory.dynamics import prediction
from theory.positional_semantic import errors, state_evolution
from theory.positional_semantic.branches import Thresholds, curve, line
from theory.positional_semantic.branches import thresholds as crossings
from theory.positional_semantic.errors import baseline
from theory.positional_semantic.fixed_point import FixedPoint, solve, transverse
from theory.positional_semantic.model.parameters import (
    DESCENT,
    FREE,
    MINIMUM,
    Parameters,
)
from theory.positional_semantic.state_evolution import OVERLAP

SETTING = ("omega", "sigma", "lam", "L", "target", "prox")  # in the title of the figure
DRAWN_ORDER = 8  # nodes per axis for figures only: alpha_c to half a percent
OMEGAS = 0.1  # spacing of omega
START = 0.3  # omega to start from if there is no crossing at the given one
DRAWN = 33  # points per branch, enough for a smooth curve
BOTH = tuple(OVERLAP)  # branches
STYLES = {
    "alpha_c": ("C0", "-", "semantic is the global minimum above"),
    "alpha_l": ("C2", "--", "semantic beats the linear layer above"),
}
DIFFERENCES = {
    "alpha_c": "training loss, semantic $-$ positional branch",
    "alpha_l": (
        r"test error $\mathbb{E}|y-f|^2/(2d)$, semantic branch $-$ linear layer"
    ),
}
LABELS = {
    "omega": "positional fraction of the target",
    "alpha_c": "sample complexity n/d above which semantic is the global minimum",
    "alpha_l": "sample complexity n/d above which semantic beats the linear layer",
}


@scope.pointwise(MINIMUM)
def onset(p: Parameters, until: float | None = None) -> Onset:
    """Thresholds at ``p.omega``, the fixed points of both branches there, and the data
    of the phase diagram.

    Parameters
    ----------
    p : Parameters
        Model. If ``p.alpha`` is set, the fixed points at that sample complexity are
        included.
    until : None
        Refused: these are minima of the loss, without a training time.

    Returns
    -------
    Onset
        With numbers ``omega``, ``alpha_c``, ``alpha_l`` (NaN if there is no crossing,
        see ``notes``) and details ``prox``, ``at_alpha_c``, ``at_alpha``, ``errors``
        and ``reasons``.
    """
    if until is not None:
        raise ParameterError(
            f"until = {until}: there is no training time; alpha = n/d is a field"
        )
    thresholds_at = _crossings(p.replace(alpha=None))
    reasons = thresholds_at.reasons
    notes = [f"{name}: {why}" for name, why in reasons.items()]
    details: dict[str, Any] = {"prox": p.prox, "at_alpha_c": None, "reasons": reasons}
    if thresholds_at.at_alpha_c:
        _describe_crossing(p, details, notes)
    if p.alpha is not None:
        _describe_alpha(p, details, notes)
    for place in ("at_alpha_c", "at_alpha"):
        reports = details.get(place) or {}
        for branch, values in reports.items():
            if values and values["transverse"] > 1:
                notes.append(
                    f"{place}: the {branch} branch is unstable towards the other"
                    " overlap (transverse > 1), descent leaves it"
                )
    return Onset(
        numbers={"omega": p.omega, **thresholds_at.summary()},
        labels=LABELS,
        absent={"alpha_c": "no crossing", "alpha_l": "no crossing"},
        notes=notes,
        curves=lambda: curves(p, thresholds_at),
        plot=lambda result, axes: draw(p, result, axes),
        details=details,
        setting={name: getattr(p, name) for name in SETTING},
        equations=_equations,
    )


def _equations() -> list[Equation]:
    """Equations that the thresholds follow from."""
    by_name = state_evolution.equations() | errors.equations()
    return [*(by_name | errors.linear_layer()).values()]


def _describe_crossing(p: Parameters, details: dict, notes: list[str]) -> None:
    """Details and notes on both branches at alpha_c."""
    points = _at_crossing(p.replace(alpha=None))
    details["at_alpha_c"] = {branch: report(f) for branch, f in points.items()}
    positional = points["positional"]
    semantic = points["semantic"]
    gap = abs(positional.error["train_loss"] - semantic.error["train_loss"])
    shift = gap / (positional.slope - semantic.slope)
    changes = {}
    for branch, point in points.items():
        changes[branch] = {name: abs(v) for name, v in point.error.items()}
    details["errors"] = {"alpha_c": shift, "at_alpha_c": changes}
    worst = max(c["train_loss"] for c in changes.values())
    notes.append(
        f"{p.order} nodes per axis against {p.finer}: alpha_c moves by {shift:.1e},"
        f" training losses by {worst:.1e}"
    )
    jumps = [branch for branch, f in points.items() if f.jump > 1e-6]
    if jumps:
        notes.append(
            f"the {p.prox} minimiser of the envelope jumps on the"
            f" {' and '.join(jumps)} branch: the replicon condition is formally"
            " violated (see replicon, jump)"
        )


def _describe_alpha(p: Parameters, details: dict, notes: list[str]) -> None:
    """Details and notes on both branches at the alpha that is set."""
    details["at_alpha"] = {branch: report(solve(p, branch)) for branch in BOTH}
    for branch, values in details["at_alpha"].items():
        if values is None:
            note = (
                f"no {branch} branch at alpha = {p.alpha:g}, its overlap has vanished"
            )
            details["reasons"][f"at_alpha.{branch}"] = note
        else:
            names = "q", OVERLAP[branch], "V", "train_loss", "test_mse_half"
            numbers = ", ".join(f"{x} = {values[x]:.5g}" for x in names)
            note = f"at alpha = {p.alpha:g}, {branch} branch, {p.prox} prox: {numbers}"
        notes.append(note)


@lru_cache(64)
def _crossings(p: Parameters) -> Thresholds:
    """Thresholds, which do not depend on alpha, remembered for a sweep over it."""
    return crossings(p)


@lru_cache(64)
def _at_crossing(p: Parameters) -> dict[str, FixedPoint]:
    """Fixed points of both branches at alpha_c, with their error."""
    crossing = _crossings(p)
    p = p.replace(alpha=crossing.alpha_c)
    nearby = crossing.at_alpha_c
    return {
        branch: solve(p, branch, near, error=True) for branch, near in nearby.items()
    }


@scope.pointwise(MINIMUM)
def thresholds(p: Parameters) -> xr.Dataset:
    """Critical sample complexities; arrays of fields become dimensions.

    Parameters
    ----------
    p : Parameters
        Model; ``alpha`` does not enter.

    Returns
    -------
    Dataset
        ``alpha_c`` and ``alpha_l`` in n/d; NaN if there is no crossing.
    """
    variables = {}
    for name, value in crossings(p).summary().items():
        variables[name] = ((), value, {"long_name": LABELS[name], "units": "n/d"})
    return xr.Dataset(variables)


def report(point: FixedPoint) -> dict[str, float] | None:
    """Summary of a fixed point, or None if the branch does not exist."""
    if not point.exists:
        return None
    return {
        **point.summary(),
        "replicon": point.replicon,
        "jump": point.jump,
        "along": point.along,
        "transverse": transverse(point),
    }


def curves(p: Parameters, here: Thresholds) -> dict[str, xr.Dataset]:
    """Thresholds over omega (``lines``) and both branches over alpha at ``p.omega``,
    with a coarse quadrature.
    """
    p = p.replace(order=min(p.order, DRAWN_ORDER))
    centre = here.alpha_c if here.at_alpha_c else 1.5
    grid = np.linspace(0.6 * centre, 1.6 * centre, DRAWN)
    drawn = {"lines": lines(p, here)}
    for branch in BOTH:
        drawn[branch] = curve(p, branch, grid)
    return drawn


def lines(p: Parameters, here: Thresholds) -> xr.Dataset:
    """Thresholds over omega, continued to both sides from ``p.omega``, or from 0.3 if
    there is no crossing there.
    """
    if not here.at_alpha_c:
        here = crossings(p.replace(omega=START))
    rows = [here]
    if here.at_alpha_c:
        below = np.arange(here.omega - OMEGAS, -1e-9, -OMEGAS)
        above = np.arange(here.omega + OMEGAS, 0.501, OMEGAS)
        rows += line(p, below.clip(0), here)
        rows += line(p, above.clip(0), here)
    rows.sort(key=lambda r: r.omega)
    data = {
        "alpha_c": ("omega", [r.alpha_c for r in rows]),
        "alpha_l": ("omega", [r.alpha_l for r in rows]),
    }
    return xr.Dataset(data, coords={"omega": [r.omega for r in rows]})


def interpolated(omegas: Any, values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Smooth monotone interpolation of thresholds over omega.

    Parameters
    ----------
    omegas, values : array_like, shape (n,)
        Increasing positional fractions and positive thresholds; fewer than two points
        are returned unchanged.
    """
    omegas = np.asarray(omegas, float)
    values = np.asarray(values, float)
    if len(omegas) < 2:
        return omegas, values
    fine = np.linspace(omegas[0], omegas[-1], 200)
    return fine, np.exp(PchipInterpolator(omegas, np.log(values))(fine))


def draw(p: Parameters, result: Onset, axes: Any) -> None:
    """Phase diagram on the left; on the right the two differences whose zeros are the
    thresholds: training losses of the branches, test errors of the semantic one and of
    the linear layer.
    """
    phases, differences = axes
    drawn = result.curves()
    lines = drawn["lines"].dropna("omega", subset=["alpha_c"])
    highest = float(np.nanmax([*lines.alpha_c, *lines.alpha_l.fillna(0), 1.0]))
    top = min(3.0, 1.15 * highest)
    across = phases.transAxes
    if lines.sizes["omega"] > 1:
        for name, (colour, style, text) in STYLES.items():
            label = rf"$\{name}$: {text}"
            known = lines[name].dropna("omega")
            fine, smooth = interpolated(known.omega, known)
            phases.plot(fine, smooth, color=colour, ls=style, label=label)
            phases.plot(known.omega, known, ".", color=colour, ms=6)
            if name == "alpha_c":
                phases.fill_between(fine, 0, smooth, color="C0", alpha=0.12, lw=0)
                phases.fill_between(fine, smooth, top, color="C1", alpha=0.12, lw=0)
        phases.text(0.97, 0.06, "positional", transform=across, color="C0", ha="right")
        phases.text(0.03, 0.72, "semantic", transform=across, color="C1")
    else:
        phases.text(0.5, 0.5, "no crossing", transform=across, ha="center")
    rightmost = float(lines.omega.max()) if lines.sizes["omega"] else 1
    phases.set(
        xlabel=r"positional fraction $\omega$",
        ylabel=r"sample complexity $\alpha = n/d$",
        ylim=(0, top),
        xlim=(0, rightmost),
    )
    semantic = drawn["semantic"]
    gaps = {
        "alpha_c": semantic.train_loss - drawn["positional"].train_loss,
        "alpha_l": semantic.test_mse_half - baseline(p)["half_test"],
    }
    for name, gap in gaps.items():
        colour, style, _ = STYLES[name]
        label = DIFFERENCES[name]
        differences.plot(gap.alpha, 1e3 * gap, color=colour, ls=style, label=label)
        value = result.numbers[name]
        if np.isfinite(value):
            tex = rf"$\{name.replace('_', '_{')}}} = {value:.3f}$"
            phases.plot([p.omega], [value], "k.", ms=5)
            differences.plot([value], [0], "o", color=colour, ms=5, label=tex)
    differences.axhline(0, color="0.5", lw=0.6)
    differences.set(
        xlabel=r"sample complexity $\alpha = n/d$",
        ylabel=r"difference per dimension $[10^{-3}]$",
    )


# Prediction of informed descent in the limit of infinite d

# variables that the students have, too
SHARED = ["q", "m", "theta", "train_loss", "test_mse_half"]


@scope.pointwise(DESCENT)
def predict(p: Parameters, runs: xr.Dataset | None = None) -> xr.Dataset:
    """Predict order parameters, training loss and test error at the end of informed
    descent.

    Informed descent stays in its initial well; therefore the local branch of the
    proximal operator is used for any ``p.prox``.

    Parameters
    ----------
    p : Parameters
        Parameters of the training; ``p.start`` is its initial condition.
    runs : Dataset, optional
        Students. If they have the sample complexity ``alpha`` as a dimension, so has
        the result.

    Returns
    -------
    Dataset
        ``q``, ``m``, ``theta`` (absolute values), ``train_loss`` and ``test_mse_half``;
        NaN if the branch does not exist.

    Raises
    ------
    ParameterError
        For a start on neither branch, an extension that the theory does not cover, a
        missing alpha, or runs trained with other parameters.
    """
    local = p.replace(prox="local")
    return over_alpha(p, runs, lambda alphas: curve(local, p.start, alphas)[SHARED])


def over_alpha(
    p: Parameters, runs: xr.Dataset | None, ends: Callable[[list[float]], xr.Dataset]
) -> xr.Dataset:
    """Ends of descent at the sample complexities of runs, or at that of the parameters.

    Parameters
    ----------
    ends : callable
        ``ends(alphas)``: the prediction over ``alpha``.

    Raises
    ------
    ParameterError
        For runs trained with other parameters.
    """
    if runs is not None and "alpha" in runs.dims:
        prediction.check_runs(p, runs, (), free=(*FREE, "alpha"))
        return ends(runs.alpha.values.tolist())
    if runs is not None:
        prediction.check_runs(p, runs, (), free=FREE)
    return ends([p.complexity]).isel(alpha=0, drop=True)


# Tables for the explorer

OF_BRANCHES = np.linspace(0, 0.5, 6)  # omegas; thresholds take a tenth of the time
OF_THRESHOLDS = np.linspace(0, 0.5, 21)
ALPHAS = np.geomspace(0.5, 4, 9)
SHOWN = ("train_loss", "test_mse_half", "m", "theta", "q", "V")
NOTE = (
    f"fixed points computed beforehand, with {DRAWN_ORDER} nodes per axis, at the"
    " places of the sliders; none where a branch or a crossing does not exist; every"
    " other field as in the start"
)


@scope.guard(MINIMUM)
def charts(p: Parameters) -> dict[str, xr.Dataset]:
    """Order parameters, losses and errors of both branches over (omega, alpha), and
    thresholds over omega; NaN where there is no crossing.
    """
    p = p.replace(order=min(p.order, DRAWN_ORDER), alpha=None)
    curves = {branch: curve(p, branch, ALPHAS, omega=OF_BRANCHES) for branch in BOTH}
    variables = {}
    for name, branch in itertools.product(SHOWN, BOTH):
        variables[f"{name}_{branch}"] = curves[branch][name]
    about = {"reference": "cui2024, Eqs. (7)-(14)", "status": "closure"}
    about["note"] = f"the {p.prox} minimiser of the envelope; {NOTE}"
    branches = xr.Dataset(variables, {"omega": OF_BRANCHES, "alpha": ALPHAS}, about)
    # From the middle, where both crossings exist, to either side.
    middle = len(OF_THRESHOLDS) // 2
    up = line(p, OF_THRESHOLDS[middle:])
    down = line(p, OF_THRESHOLDS[middle - 1 :: -1], up[0])
    points = [*down[::-1], *up]
    words = {"long_name": "thresholds of the sample complexity n/d"}
    alphas = {
        "alpha_c": ("omega", [t.alpha_c for t in points], words),
        "alpha_l": ("omega", [t.alpha_l for t in points], words),
    }
    labels = "; ".join(f"{name}: {LABELS[name]}" for name in alphas)
    about = about | {"note": f"{labels}; {about['note']}"}
    over_omega = xr.Dataset(alphas, {"omega": OF_THRESHOLDS}, about)
    return {"thresholds": over_omega, "branches": branches}
