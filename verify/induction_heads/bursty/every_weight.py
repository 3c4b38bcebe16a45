"""All weights on a burst: closed flow against the network, law against the flow, students."""

from typing import Any

import numpy as np
import torch

from simulate.induction_heads import task, train
from simulate.induction_heads.student import NAMES, Nineteen, squared_error
from simulate.pool import one_thread
from theory.induction_heads import Parameters
from theory.induction_heads.all_weights import burst, burst_loss
from theory.induction_heads.numbers import all_weights as times
from theory.induction_heads.numbers import leading_order, recent
from theory.induction_heads.numbers.burst_loss import loss_and_gradient
from verify.check import Check, identity
from verify.induction_heads import all_weights
from verify.induction_heads.all_weights_equations import EXACT, EXACT_WHY, Table, point

KINDS = ("item", "label")
SIZES = ((2, 1), (3, 2), (5, 1), (5, 3), (8, 4))
LAW = ((64, 2), (64, 4), (512, 4), (512, 16))
LAW_CLOSE, LAW_WHY = 0.02, "relative orders 1/N and B/N"
RECENT = ((64, 1 / 8), (64, 1 / 4))
# Set when 2.5% had been seen at the first of these; the second was not looked at before.
RECENT_CLOSE, RECENT_WHY = 0.05, "relative order ln N / N"
LARGE = 64  # pairs of the larger network that descends beside the running sums
# Batches that students are trained with: at N = 32 batches of 32 and 128 are too small for a limit
# of order 1/batch (162.1, 158.2; extrapolated 4.3% late).
STUDENTS = {(16, 2): (32, 128), (32, 4): (128, 512)}
SEEDS = {16: range(8), 32: range(3)}


def network(size: int, right: int, mask: str, theta: torch.Tensor) -> torch.Tensor:
    """Loss of the network with the given nineteen numbers on one orthonormal frame."""
    p = Parameters(N=size, B=right, data="orthonormal", query="last", mask=mask)
    batch = task.sample(p, torch.Generator().manual_seed(size), 1, torch.float64)
    student = Nineteen(p.dimension, mask, torch.float64)
    given = {"theta": theta}
    return squared_error(torch.func.functional_call(student, given, (batch.X,)), batch.y, "sum")


def running_sums() -> list[Check]:
    """Loss and gradient in O(N) against the network, both masks, with one right pair and more."""
    checks = []
    for mask in all_weights.MASKS:
        told, found = [], []
        for size, right in SIZES:
            theta = torch.tensor(point(size), requires_grad=True)
            loss = network(size, right, mask, theta)
            (gradient,) = torch.autograd.grad(loss, theta)
            value, slopes = loss_and_gradient(theta.detach().numpy(), size, right, mask)
            told.append(np.append(slopes, value))
            found.append(np.append(gradient.numpy(), loss.detach().numpy()))
        name = f"loss and gradient of all weights on a burst, {mask} mask"
        there = np.concatenate(found)
        checks.append(identity(name, "burst_loss", np.concatenate(told), there, EXACT, EXACT_WHY))
    return checks


def by_equations(eq: Table, theta: np.ndarray, size: int, right: int, mask: str) -> float:
    """Loss from the equations only: scores, softmax, retrieved tokens, output, sum of squares."""
    end = "" if mask == "strict" else "_inclusive"
    known: dict[str, Any] = dict(zip(NAMES, theta.tolist(), strict=True))
    known |= {"N": size, "B": right}

    def attended(name: str, **more: int) -> float:
        return float(np.exp(eq[f"burst_key_{name}{end}"].evaluate(known | more)))

    inside, others = range(1, right + 1), range(1, size - right + 1)
    w = {
        f"w_{x}": np.append(np.ones(len(others)), [attended(f"right_{x}", k=k) for k in inside])
        for x in KINDS
    }
    if mask == "strict":
        w["w_item"][0] = attended("first")
    else:
        w["w_query"] = np.array(attended("query"))
    every = sum(x.sum() for x in w.values())
    known |= {"w_query": 0.0} | {name: x / every for name, x in w.items()}
    for name, short in (("retrieved", "r"), ("output", "c")):
        for x in KINDS:
            form = eq[f"burst_{name}_{x}{end}"]
            known[f"{short}_{x}"] = [form.evaluate(known | {"l": l}) for l in others]
    known |= {f"C_{x}": eq[f"burst_output_right_{x}{end}"].evaluate(known) for x in KINDS}
    return float(eq["burst_loss"].evaluate(known))


def row_by_row(eq: Table, masks: tuple[str, ...] = all_weights.MASKS) -> list[Check]:
    """The equations against the network."""
    theta, size, right = point(3), 5, 2
    name = "loss of all weights on a burst by its equations"
    checks = []
    for mask in masks:
        told = by_equations(eq, theta, size, right, mask)
        there = float(network(size, right, mask, torch.tensor(theta)))
        checks.append(identity(f"{name}, {mask} mask", "burst_loss", told, there, EXACT, EXACT_WHY))
    return checks


def descent(size: int = 6, right: int = 2, steps: int = 300, **more: Any) -> list[Check]:
    """Training in the nineteen directions against the closed gradient, at every step."""
    p = all_weights.student_parameters(size, "last", "nineteen", steps=steps, right=right)
    runs = train(p.replace(eval_every=1), seeds=[0], dtype="float64", **more)
    path = times.euler(size, "last", p.mask, p.time_per_step, steps, right)
    why = f"rounding of {steps} steps, float64"
    name = f"descent of all weights on a burst step by step, N = {size}, B = {right}"
    return [identity(name, "burst_loss", path, runs.pseudo.values[0], 1e-11, why)]


def against_law(settings: tuple[tuple[int, int], ...] = LAW) -> tuple[list[Check], list[str]]:
    """Times of alpha_3 = 1/2 and of the drop: eight numbers against all of them."""
    checks: list[Check] = []
    notes: list[str] = []
    for N, B in settings:
        law, flow = leading_order.predicted(N, right=B), all_weights.flow_times(N, "last", B)
        for name in ("T_alpha", "T_drop"):
            what = f"law of all weights on a burst for {name}, N = {N}, B = {B}"
            checks.append(
                identity(what, "plateau_loss_burst", law[name], flow[name], LAW_CLOSE, LAW_WHY)
            )
        notes.append(
            f"  all weights, N = {N}, B = {B}: T_alpha {flow['T_alpha']:.5g}, "
            f"law {law['T_alpha']:.5g}; T_drop {flow['T_drop']:.5g}, law {law['T_drop']:.5g}"
        )
    return checks, notes


def of_places(settings: tuple[tuple[int, float], ...] = RECENT) -> tuple[list[Check], list[str]]:
    """One right pair among the last: five numbers against the flow of all weights."""
    checks: list[Check] = []
    notes: list[str] = []
    for N, w in settings:
        law, flow = (times_of(N, w, rtol=1e-5) for times_of in (recent.predicted, recent.exact))
        for name in ("T_alpha", "T_drop"):
            what = f"law of all weights for {name}, right pair among the last {w:g} N, N = {N}"
            told = law[name], flow[name]
            checks.append(identity(what, "T_alpha_all_recent", *told, RECENT_CLOSE, RECENT_WHY))
        notes.append(
            f"  all weights, last {w:g} N, N = {N}: T_alpha {flow['T_alpha']:.5g}, "
            f"law {law['T_alpha']:.5g}; T_drop {flow['T_drop']:.5g}, law {law['T_drop']:.5g}"
        )
    return checks, notes


def everything(full: bool = True, **more: Any) -> tuple[list[Check], list[str]]:
    """All of the above; students whose weights all move if ``full``."""
    with one_thread():
        eq = burst.equations() | burst_loss.equations()
        checks = [*row_by_row(eq), *running_sums(), *descent(**more)]
        checks += descent(LARGE, 4, 100, **more)
    notes: list[str] = []
    for rows, lines in (against_law(), of_places()):
        checks, notes = checks + rows, notes + lines
    for (N, B), batches in STUDENTS.items() if full else ():
        rows, lines = all_weights.of_batches(N, "last", B, SEEDS[N], batches, **more)
        checks, notes = checks + rows, notes + lines
    return checks, notes
