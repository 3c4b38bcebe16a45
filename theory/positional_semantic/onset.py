"""When semantic attention emerges: alpha_c, alpha_l, and the phase diagram over omega;
where informed descent ends.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr
from scipy.interpolate import PchipInterpolator

from theory import Onset, ParameterError
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
OMEGAS, START = (
    0.1,
    0.3,
)  # spacing of omega, and its start if there is no crossing at the given omega
DRAWN = 33  # points per branch, enough for a smooth curve
BOTH = tuple(OVERLAP)  # branches
STYLES = {
    "alpha_c": ("C0", "-", "semantic is the global minimum above"),
    "alpha_l": ("C2", "--", "semantic beats the linear layer above"),
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
    notes = [f"{name}: {why}" for name, why in thresholds_at.reasons.items()]
    details: dict[str, Any] = {
        "prox": p.prox,
        "at_alpha_c": None,
        "reasons": thresholds_at.reasons,
    }
    if thresholds_at.at_alpha_c:
        points = _at_crossing(p.replace(alpha=None))
        details["at_alpha_c"] = {k: report(f) for k, f in points.items()}
        shift = abs(
            points["positional"].error["train_loss"]
            - points["semantic"].error["train_loss"]
        ) / (points["positional"].slope - points["semantic"].slope)
        changes = {
            k: {name: abs(v) for name, v in f.error.items()} for k, f in points.items()
        }
        details["errors"] = {"alpha_c": shift, "at_alpha_c": changes}
        worst = max(c["train_loss"] for c in changes.values())
        notes.append(
            f"{p.order} nodes per axis against {p.finer}: alpha_c moves by {shift:.1e},"
            f" training losses by {worst:.1e}"
        )
        jumps = [k for k, f in points.items() if f.jump > 1e-6]
        if jumps:
            notes.append(
                f"the {p.prox} minimiser of the envelope jumps on the"
                f" {' and '.join(jumps)} branch: the replicon condition is formally"
                " violated (see replicon, jump)"
            )
    if p.alpha is not None:
        details["at_alpha"] = {k: report(solve(p, k)) for k in BOTH}
        for k, values in details["at_alpha"].items():
            if values is None:
                details["reasons"][f"at_alpha.{k}"] = (
                    f"no {k} branch at alpha = {p.alpha:g}, its overlap has vanished"
                )
                notes.append(details["reasons"][f"at_alpha.{k}"])
            else:
                names = "q", OVERLAP[k], "V", "train_loss", "test_mse_half"
                shown = ", ".join(f"{x} = {values[x]:.5g}" for x in names)
                notes.append(
                    f"at alpha = {p.alpha:g}, {k} branch, {p.prox} prox: {shown}"
                )
    notes += [
        f"{place}: the {k} branch is unstable towards the other overlap (transverse >"
        " 1), descent leaves it"
        for place in ("at_alpha_c", "at_alpha")
        for k, values in (details.get(place) or {}).items()
        if values and values["transverse"] > 1
    ]
    return Onset(
        numbers={"omega": p.omega, **thresholds_at.summary()},
        labels=LABELS,
        absent={"alpha_c": "no crossing", "alpha_l": "no crossing"},
        notes=notes,
        curves=lambda: curves(p, thresholds_at),
        plot=lambda result, axes: draw(p, result, axes),
        details=details,
        setting={name: getattr(p, name) for name in SETTING},
        equations=lambda: [
            e
            for part in (
                state_evolution.equations,
                errors.equations,
                errors.linear_layer,
            )
            for e in part().values()
        ],
    )


@lru_cache(64)
def _crossings(p: Parameters) -> Thresholds:
    """Thresholds, which do not depend on alpha, remembered for a sweep over it."""
    return crossings(p)


@lru_cache(64)
def _at_crossing(p: Parameters) -> dict[str, FixedPoint]:
    """Fixed points of both branches at alpha_c, with their error."""
    crossing = _crossings(p)
    p = p.replace(alpha=crossing.alpha_c)
    return {k: solve(p, k, near, error=True) for k, near in crossing.at_alpha_c.items()}


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
    result = crossings(p).summary()
    words = {name: {"long_name": LABELS[name], "units": "n/d"} for name in result}
    return xr.Dataset(
        {name: ((), value, words[name]) for name, value in result.items()}
    )


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


def curves(p: Parameters, found: Thresholds) -> dict[str, xr.Dataset]:
    """Thresholds over omega (``lines``) and both branches over alpha at ``p.omega``,
    with a coarse quadrature.
    """
    p = p.replace(order=min(p.order, DRAWN_ORDER))
    centre = found.alpha_c if found.at_alpha_c else 1.5
    grid = np.linspace(0.6 * centre, 1.6 * centre, DRAWN)
    return {"lines": lines(p, found), **{k: curve(p, k, grid) for k in BOTH}}


def lines(p: Parameters, found: Thresholds) -> xr.Dataset:
    """Thresholds over omega, continued to both sides from ``p.omega``, or from 0.3 if
    there is no crossing there.
    """
    found = found if found.at_alpha_c else crossings(p.replace(omega=START))
    rows = [found]
    if found.at_alpha_c:
        for grid in (
            np.arange(found.omega - OMEGAS, -1e-9, -OMEGAS),
            np.arange(found.omega + OMEGAS, 0.501, OMEGAS),
        ):
            rows += line(p, grid.clip(0), found)
    rows.sort(key=lambda r: r.omega)
    data = {k: ("omega", [getattr(r, k) for r in rows]) for k in ("alpha_c", "alpha_l")}
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
    left, right = axes
    drawn = result.curves()
    lines = drawn["lines"].dropna("omega", subset=["alpha_c"])
    top = min(
        3.0, 1.15 * float(np.nanmax([*lines.alpha_c, *lines.alpha_l.fillna(0), 1.0]))
    )
    if lines.sizes["omega"] > 1:
        for name, (colour, style, text) in STYLES.items():
            known = lines[name].dropna("omega")
            fine, smooth = interpolated(known.omega, known)
            left.plot(fine, smooth, color=colour, ls=style, label=rf"$\{name}$: {text}")
            left.plot(known.omega, known, ".", color=colour, ms=6)
            if name == "alpha_c":
                left.fill_between(fine, 0, smooth, color="C0", alpha=0.12, lw=0)
                left.fill_between(fine, smooth, top, color="C1", alpha=0.12, lw=0)
        left.text(
            0.97, 0.06, "positional", transform=left.transAxes, color="C0", ha="right"
        )
        left.text(0.03, 0.72, "semantic", transform=left.transAxes, color="C1")
    else:
        left.text(0.5, 0.5, "no crossing", transform=left.transAxes, ha="center")
    left.set(
        xlabel=r"positional fraction $\omega$",
        ylabel=r"sample complexity $\alpha = n/d$",
        ylim=(0, top),
        xlim=(0, float(lines.omega.max()) if lines.sizes["omega"] else 1),
    )
    positional, semantic = (drawn[name] for name in BOTH)
    gaps = {
        "alpha_c": (
            semantic.train_loss - positional.train_loss,
            "training loss, semantic $-$ positional branch",
        ),
        "alpha_l": (
            semantic.test_mse_half - baseline(p)["half_test"],
            r"test error $\mathbb{E}|y-f|^2/(2d)$, semantic branch $-$ linear layer",
        ),
    }
    for name, (gap, words) in gaps.items():
        colour, style, _ = STYLES[name]
        right.plot(gap.alpha, 1e3 * gap, color=colour, ls=style, label=words)
        value = result.numbers[name]
        if np.isfinite(value):
            tex = rf"$\{name.replace('_', '_{')}}} = {value:.3f}$"
            left.plot([p.omega], [value], "k.", ms=5)
            right.plot([value], [0], "o", color=colour, ms=5, label=tex)
    right.axhline(0, color="0.5", lw=0.6)
    right.set(
        xlabel=r"sample complexity $\alpha = n/d$",
        ylabel=r"difference per dimension $[10^{-3}]$",
    )


# Prediction of informed descent in the limit of infinite d

SHARED = [
    "q",
    "m",
    "theta",
    "train_loss",
    "test_mse_half",
]  # variables that the students have, too


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
    return over_alpha(
        p, runs, lambda alphas: curve(p.replace(prox="local"), p.start, alphas)[SHARED]
    )


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
    swept = runs is not None and "alpha" in runs.dims
    if runs is not None:
        prediction.check_runs(p, runs, (), free=(*FREE, *(["alpha"] if swept else [])))
    if runs is not None and swept:
        return ends(runs.alpha.values.tolist())
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
    curves = {b: curve(p, b, ALPHAS, omega=OF_BRANCHES) for b in BOTH}
    branches = {f"{name}_{b}": curves[b][name] for name in SHOWN for b in BOTH}
    # From the middle, where both crossings exist, to either side.
    middle = len(OF_THRESHOLDS) // 2
    up = line(p, OF_THRESHOLDS[middle:])
    points = [*line(p, OF_THRESHOLDS[middle - 1 :: -1], up[0])[::-1], *up]
    words = {"long_name": "thresholds of the sample complexity n/d"}
    found = {
        name: ("omega", [getattr(t, name) for t in points], words)
        for name in ("alpha_c", "alpha_l")
    }
    about = {
        "reference": "cui2024, Eqs. (7)-(14)",
        "status": "closure",
        "note": f"the {p.prox} minimiser of the envelope; {NOTE}",
    }
    labels = "; ".join(f"{name}: {LABELS[name]}" for name in found)
    return {
        "thresholds": xr.Dataset(
            found,
            {"omega": OF_THRESHOLDS},
            about | {"note": f"{labels}; {about['note']}"},
        ),
        "branches": xr.Dataset(
            branches, {"omega": OF_BRANCHES, "alpha": ALPHAS}, about
        ),
    }
