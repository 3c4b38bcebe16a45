"""One matrix for key and query: the time of the drop, by the whole flow and by students."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from linear_attention.simulate import student, train
from linear_attention.theory import merged
from linear_attention.theory.onset import merged_time
from linear_attention.theory.parameters import Parameters
from linear_attention.verify import flows
from linear_attention.verify.flows import ODE
from verify.check import Check, identity, near, sampled
from verify.emergence import first_crossing
from verify.report import Report, Request, Table

STARTS = (1.5e-6, 1.186e-7)  # P(0)
SEEDS = range(4)
SMALL = 3e-3, "corrections of the order of the start, sqrt(P(0)) = 1e-3"
EXPONENTS = tuple(10.0**-k for k in (3, 4, 5, 6))  # starts
DECADES = 1e-2, "starts up to 0.001 shift a time by up to 0.003, over three decades"
ALIGNED = Parameters.white().replace(H=1, begin="aligned")


def drop(p: Parameters, seed: int, begun: student.Weights | None = None) -> float:
    """Drop of the flow of all weights from a start."""
    begun = begun or student.start(p, seed)
    return flows.flow(p, begun, 30, events=flows.dropping(p))[1]["drop"]


def flow(table: Table) -> list[Check]:
    """White data: generic heads, an unbalanced head, and s over time."""
    rows = []
    for P_0 in STARTS:
        p, label = (
            Parameters.white().replace(start=P_0**0.5),
            f"drop of generic heads, P(0) = {P_0:g}",
        )
        expected, times = table["T_drop"].evaluate(p.values()), [drop(p, seed) for seed in SEEDS]
        rows.append(near(label, "T_drop", expected, times, *SMALL))
    begun, known = student.start(ALIGNED, 0), ALIGNED.values()
    (last,), _ = flows.flow(ALIGNED, begun, 3.0)
    s, expected = student.matrix(last)[0, 0], table["merged_s"].evaluate(known | {"t": 3.0})
    rows.append(identity("s of a balanced head", "merged_s", expected, s, *ODE))
    begun["v"] = begun["v"] + 0.1
    v, u = float(begun["v"][0]), float(begun["U"].norm())
    known |= {"kappa": v**2 - u**2, "s_0": v * u / known["D"] ** 0.5}
    expected, found = table["T_unbalanced"].evaluate(known), drop(ALIGNED, 0, begun)
    return [*rows, identity("drop of an unbalanced head", "T_unbalanced", expected, found, *ODE)]


def early(table: Table) -> list[Check]:
    """Early growth of every head (while W is small), and the invariants at all times."""
    p = Parameters(start=1e-6)
    square, known, begun = torch.as_tensor(p.eigenvalues**2).diag(), p.values(), student.start(p, 1)
    rate, t = known["gamma"], 8 / known["gamma"]  # grown e^8-fold: W is still below 1e-5
    (last,), _ = flows.flow(p, begun, t)
    (v, u), now = ((w["v"], (w["U"] * square).sum((1, 2)) / rate) for w in (begun, last))
    expected = table["merged_rate"].evaluate(known)
    rows = [identity("rate of the growth", "merged_rate", expected, square.norm(), 1e-12, "a norm")]
    for name, measured in zip("vu", now, strict=True):
        equation, label = f"merged_{name}_early", f"{name} of every head, early"
        predicted = table[equation].evaluate(known | {"v": v.numpy(), "u": u.numpy(), "t": t})
        rows.append(identity(label, equation, predicted, measured, 1e-4, "W of 1e-5 by then"))
    begun = student.start(Parameters(), 0)
    (last,), _ = flows.flow(Parameters(), begun, 20)
    return [*rows, *flows.conserved(table, "merged", "merged_invariant", begun, last)]


def spectra(table: Table) -> list[Check]:
    """Any Lambda: one effective head of D + 1 numbers against all heads; exponents in the start.

    The time is linear in ln(1/start) with slope 1/gamma; as a power of 1/start its exponent is
    close to zero.
    """
    x, each = np.log(1 / np.array(EXPONENTS)), [Parameters(start=s) for s in EXPONENTS]
    times = np.array([[drop(p, seed) for p in each] for seed in SEEDS])
    theory = np.array([merged_time(p) for p in each])
    slope = np.polyfit(x, times.mean(0), 1)[0]
    power, expected = (np.polyfit(x, np.log(y), 1)[0] for y in (times.mean(0), theory))
    gamma, of = table["merged_rate"].evaluate(each[0].values()), "merged_du_dt"
    why, label = "order of the start", "slope of the drop over ln of 1/start"
    return [
        near("drop at any Lambda", of, theory[1], times[:, 1], 1e-2, why),
        near(label, "merged_rate", 1 / gamma, slope, *DECADES),
        near("fitted power of 1/start, merged", of, expected, power, *DECADES),
    ]


def steps(table: Table) -> list[Check]:
    """Delay by finite steps of gradient descent, for students of the population gradient."""
    rows, base = [], float(merged.equations()["T_drop"].evaluate(ALIGNED.values()))
    for eta in (0.01, 0.02):
        p = ALIGNED.replace(eta=eta, eval_every=1, steps=round(4 / eta))
        learned, at = train(p, progress=False, workers=1).learned, f"eta = {eta:g}"
        half = learned.mean("direction")
        rows.append(flows.added_by_steps(table, "T_step", base, p.values(), half, at))
    return rows


def students(table: Table, **more: Any) -> list[Check]:
    """The attention on drawn tokens, all weights moving: eight seeds."""
    p = Parameters.white().replace(student="tokens", batch_size=256, steps=250, eval_every=2)
    times = first_crossing(train(p, range(8), **more).learned.mean("direction"), 0.5).values
    predicted = table["T_step"].evaluate(p.values())
    return [sampled("drop of the attention on drawn tokens", "T_step", predicted, times)]


def report(request: Request) -> Report:
    """Everything on the derived equations."""
    return flows.report(request, merged.equations(), (flow, early, spectra, steps), students)
