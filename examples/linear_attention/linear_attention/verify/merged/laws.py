"""One matrix for key and query: the time of the drop, by the whole flow and by students."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from linear_attention.simulate import student, train
from linear_attention.theory import merged
from linear_attention.theory.merged.onset import merged_time
from linear_attention.theory.parameters import Parameters
from linear_attention.verify.groups import Table, law
from linear_attention.verify.prompts import dropping, integrate
from verify.check import Check, identity, near, sampled, vanishing
from verify.emergence import first_crossing
from verify.report import Report, Request, gathered

STARTS = (1.5e-6, 1.186e-7)  # P(0)
SEEDS = range(4)
SMALL = 3e-3, "corrections of the order of the start, sqrt(P(0)) = 1e-3"
ODE = 1e-6, "ODE of all weights at 1e-10"
EXPONENTS = tuple(10.0**-k for k in (3, 4, 5, 6))  # starts
DECADES = 1e-2, "starts up to 0.001 shift a time by up to 0.003, over three decades"
ALIGNED = Parameters.white().replace(H=1, begin="aligned")


def whole(p: Parameters, seed: int, until: float, begun: student.Weights | None = None) -> float:
    """Drop of the flow of all weights from a start."""
    begun = begun or student.start(p, seed)
    return integrate(p, begun, until, {"drop": dropping(p)})[0]["drop"]


def farthest(values: Any, expected: float) -> float:
    """The one that differs most."""
    return float(max(values, key=lambda x: abs(x - expected)))


def flow(table: Table) -> list[Check]:
    """White data: generic heads, an unbalanced head, and s over time."""
    rows = []
    for P_0 in STARTS:
        p = Parameters.white().replace(start=P_0**0.5)
        known, label = p.values(), f"drop of generic heads, P(0) = {P_0:g}"
        expected = float(merged.equations()["T_drop"].evaluate(known))
        found = farthest([whole(p, seed, 10) for seed in SEEDS], expected)
        rows.append(law(table, "T_drop", label, known, found, *SMALL))
    begun, known = student.start(ALIGNED, 0), ALIGNED.values()
    _, last, _ = integrate(ALIGNED, begun, 3.0)
    s = float(student.matrix(last)[0, 0])
    rows.append(law(table, "merged_s", "s of a balanced head", known | {"t": 3.0}, s, *ODE))
    begun["v"] = begun["v"] + 0.1
    v, u = float(begun["v"][0]), float(begun["U"].norm())
    known |= {"kappa": v**2 - u**2, "s_0": v * u / known["D"] ** 0.5}
    found = whole(ALIGNED, 0, 10, begun)
    rows.append(law(table, "T_unbalanced", "drop of an unbalanced head", known, found, *ODE))
    return rows


def early(table: Table) -> list[Check]:
    """Growth of every head before W matters, and the invariants to the end."""
    p = Parameters(start=1e-6)
    along, known = torch.as_tensor(p.eigenvalues**2).diag(), p.values()
    rate = known["gamma"]
    t = 8 / rate  # grown e^8-fold: W is still below 1e-5
    begun = student.start(p, 1)
    _, last, _ = integrate(p, begun, t)
    parts = [(w["v"], torch.einsum("hij,ij->h", w["U"], along) / rate) for w in (begun, last)]
    (v, u), now = ([x.numpy() for x in pair] for pair in parts)
    rows = [law(table, "merged_rate", "rate of the growth", known, along.norm(), 1e-12, "a norm")]
    for name, measured in zip("vu", now, strict=True):
        equation, label = f"merged_{name}_early", f"{name} of every head, early"
        predicted = table[equation].evaluate(known | {"v": v, "u": u, "t": t})
        rows.append(identity(label, equation, predicted, measured, 1e-4, "W of 1e-5 by then"))
    begun = student.start(Parameters(), 0)
    _, last, _ = integrate(Parameters(), begun, 20)
    drift, label = student.invariants(last) - student.invariants(begun), "merged invariants"
    rows.append(vanishing(f"{label} along training", "merged_invariant", drift, 1e-7, ODE[1]))
    return rows


def spectra(table: Table) -> list[Check]:
    """Any Lambda: one effective head of D + 1 numbers against all heads; exponents in the start.

    Over ln(1/start) the time is a line of slope 1/gamma; over 1/start it hardly grows.
    """
    p, x = Parameters(), np.log(1 / np.array(EXPONENTS))
    times = np.array([[whole(p.replace(start=s), k, 30) for s in EXPONENTS] for k in SEEDS])
    theory = np.array([merged_time(p.replace(start=s)) for s in EXPONENTS])
    worst = farthest(times[:, 1], theory[1])
    slope = np.polyfit(x, times.mean(0), 1)[0]
    power, expected = (np.polyfit(x, np.log(y), 1)[0] for y in (times.mean(0), theory))
    rate, label = (
        float(table["merged_rate"].evaluate(p.values())),
        "fitted power of 1/start, merged",
    )
    return [
        near("drop at any Lambda", "merged_du_dt", theory[1], worst, 1e-2, "order of the start"),
        near("slope of the drop over ln of 1/start", "merged_rate", 1 / rate, slope, *DECADES),
        near(label, "merged_du_dt", expected, power, *DECADES),
    ]


def steps(table: Table) -> list[Check]:
    """What gradient descent adds to the time, by students of the population gradient."""
    rows = []
    for eta in (0.01, 0.02):
        p = ALIGNED.replace(eta=eta, eval_every=1, steps=round(4 / eta))
        learned = train(p, progress=False, workers=1).learned.mean("direction")
        flowing = float(merged.equations()["T_drop"].evaluate(p.values()))
        adds = float(first_crossing(learned, 0.5).values[0]) - flowing
        shift = float(table["T_step"].evaluate(p.values())) - flowing
        label = f"what a step adds, eta = {eta:g}"
        rows.append(near(label, "T_step", shift, adds, 0.04, "next order in eta"))
    return rows


def students(table: Table, **more: Any) -> list[Check]:
    """The attention on drawn tokens, all weights moving: eight seeds."""
    p = Parameters.white().replace(student="tokens", batch_size=256, steps=250, eval_every=2)
    runs = train(p, range(8), **more)
    times = first_crossing(runs.learned.mean("direction"), 0.5).values
    predicted = float(table["T_step"].evaluate(p.values()))
    return [sampled("drop of the attention on drawn tokens", "T_step", predicted, times)]


def report(request: Request) -> Report:
    """Everything on the derived equations."""
    table = merged.equations()
    rows = gathered((flow, early, spectra, steps), table)
    return Report([*rows, *students(table, **request.training)])
