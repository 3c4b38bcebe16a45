"""A committee of erf units learns another one, one example after the other (Saad and Solla,
Phys. Rev. E 52, 4225 (1995); noise of labels as in Goldt et al. 2019).
"""

from typing import Any

import numpy as np
import scipy.optimize

from committee import dynamics
from committee import dynamics as phases
from committee.dynamics import STATE, K, R, S, eta, flow, loss, rates, sigma
from committee.parameters import COMMITTEE, Parameters, applies
from theory import Onset, numeric, of_onset, scope, until
from theory.catalogue import catalogue
from theory.onset import tabulated

__all__ = [
    "Parameters",
    "applies",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "onset",
    "sections",
]


# When the units of a committee tell teachers apart

HALF = R - S - 0.5
ALIKE = 1e-12  # difference of overlaps that is rounding: on the plateau it would be blown up
NOISES = 12  # steps from no noise to that of the labels
SET = (K, eta, sigma)
LONGEST = 60  # times of the escape, after which the event is given up


def error_left(p: Parameters) -> float:
    """Generalisation error where the flow ends with label noise; NaN if it is lost on the way from
    no noise.
    """
    of = numeric.function(list(rates().values()), [*STATE, *SET])
    state = np.array([1.0, 0.0, 1.0, 0.0])
    for share in np.linspace(0, 1, NOISES)[1:]:
        noisy = p.K, p.eta, share * p.sigma
        solved = scipy.optimize.root(lambda x, noisy=noisy: of(*x, *noisy), state, tol=1e-13)
        if not solved.success:
            return float("nan")
        state = solved.x
    return float(numeric.function(loss(), [*STATE, *SET])(*state, p.K, p.eta, p.sigma))


@until("alpha")
@scope.pointwise(COMMITTEE)
def onset(p: Parameters, until: float | None = None) -> Onset:
    """Numbers and curves of one committee.

    Parameters
    ----------
    p : Parameters
        Sizes, learning rate, noise and start.
    until : float, optional
        Length of the curves (also ``alpha=``); 1.6 times the specialisation by default.

    Returns
    -------
    Onset
        ``alpha_half`` (R - S = 1/2), escape rate, errors of plateau and end, largest learning rate.
    """
    known, rows = p.values(), dict[str, tuple[Any, ...]]()
    for name, text in (
        ("escape_rate", "growth rate of R - S on the plateau, small eta"),
        ("plateau_error", "generalisation error on the plateau, small eta"),
        ("eta_max", "learning rate above which the end is lost"),
    ):
        rows[name] = phases.phases()[name].number(known), text
    end, half = LONGEST / rows["escape_rate"][0], float("nan")
    alike = abs(p.R_0 - p.S_0) <= ALIKE
    if p.R_0 - p.S_0 >= 0.5:
        half = 0.0
    elif not alike:
        half = float(flow().solve(p, at=[0.0], events={"half": HALF}, alpha=end)["half"])
    rows = {"alpha_half": (half, "time of R - S = 1/2: units have teachers", "alpha")} | rows
    notes = ["for N to infinity, and a start that is alike for all units"]
    if alike:
        notes.append("R_0 = S_0: nothing tells teachers apart, so that the flow stays symmetric")
    if p.R_0 < p.S_0:
        notes.append("R_0 < S_0: units turn away from the teachers of their numbers")
    left = float("nan")
    if p.eta < (most := rows["eta_max"][0]):
        left = error_left(p)
    else:
        notes.append(f"eta = {p.eta:g} is not below eta_max = {most:.4g}: the end is not stable")
    rows["error_end"] = left, "generalisation error at the end, which label noise leaves"
    last = until or (1.6 * half if np.isfinite(half) else end)
    return tabulated(
        rows,
        curves=lambda: {"flow": flow().solve(p, alpha=last)},
        equations=lambda: [*flow().equations().values(), *phases.phases().values()],
        plot=draw,
        absent={"alpha_half": f"not within {LONGEST} times of the escape", "error_end": "lost"},
        notes=notes,
        setting=known,
        crossings={"alpha_half": (flow(), p, HALF)},
    )


emergence_times = of_onset(onset)


def draw(result: Onset, axes: Any) -> None:
    """Generalisation error with its plateau (left), and the four overlaps (right)."""
    curve = result.curves()["flow"]
    left, right = axes
    left.semilogy(curve.alpha, curve.loss, "C0", label="flow")
    level = result.numbers["plateau_error"]
    left.axhline(level, color="k", ls=":", lw=0.9, label="symmetric plateau, small $\\eta$")
    left.set(xlabel="examples over N, $\\alpha$", ylabel="generalisation error $\\epsilon_g$")
    for k, name in enumerate("RSQC"):
        right.plot(curve.alpha, curve[name], f"C{k}", ls=("-", "--")[k % 2], label=f"${name}$")
    right.set(xlabel="examples over N, $\\alpha$", ylabel="overlap")
    for axis in axes:
        if np.isfinite(half := result.numbers["alpha_half"]):
            axis.axvline(half, color="0.7", lw=0.9, zorder=0)


flows, sections, equations = catalogue(
    {
        "Committee: online dynamics": [dynamics.equations],
        "Committee: plateau and end": [phases.phases],
    },
    flow,
)
