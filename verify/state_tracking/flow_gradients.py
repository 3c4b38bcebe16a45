"""The flow (15) against small steps of descent, and against its pieces."""

from collections.abc import Iterator

import numpy as np
import torch

from theory.equation import Equation
from theory.state_tracking import dynamics
from verify.check import Check, identity, listed
from verify.report import Table
from verify.state_tracking.inputs import EXACT, EXACT_WHY, Inputs


def flow_increments(eq: Table) -> list[Check]:
    """One small step of descent on the mean-field loss changes A, R and S as in the flow.

    W_Q, W_K and M are all trained; A is that of the actual attention. The flow is given the drawn
    teachers' tau and the c_omega that makes its closure exact at this point; the limit of a
    vanishing step is taken by extrapolating two steps.
    """
    x = Inputs()
    p, student = x.p, x.student

    def state() -> torch.Tensor:
        x.A = student.attention(x.actions[:1], x.states[:1, :-1])[0].diagonal().mean()
        return torch.stack([x.A, *x.overlaps()])

    before = state()
    weights = [student.W_Q, student.W_K, student.M]
    steps = torch.autograd.grad(x.loss(), weights, retain_graph=True)
    factor = (
        p.d_g
        * p.N
        * sum(float(g.square().sum()) for g in torch.autograd.grad(before[0], weights[:2]))
    )
    values = x.values()
    values["c_omega"] = factor / (p.L * values["A"] * (1 - values["A"]))
    start = [w.detach().clone() for w in weights]

    def slope(h: float) -> np.ndarray:
        for w, w0, g in zip(weights, start, steps, strict=True):
            w.data = w0 - p.eta * p.d_g * p.N * h * g
        return ((state() - before) / h).detach().numpy()

    h = 1e-4
    measured = 2 * slope(h / 2) - slope(h)
    system = dynamics.flow("tau")
    chained = eq["dA_dalpha_chain"].evaluate(values | {"c_A": factor})
    predicted = {
        s.name: Equation(s.name, s, rhs, "", "exact").evaluate(values)
        for s, rhs in system.expanded.items()
    }
    why = "third-order term of the extrapolation, step 1e-4"
    names = ["dA_dalpha", "dR_dalpha", "dS_dalpha"]
    return [
        identity("dA/dalpha by the chain rule", "dA_dalpha_chain", chained, measured[0], 1e-6, why),
        *(
            identity(f"d{s}/dalpha of the flow", e, predicted[s], v, 1e-6, why)
            for s, e, v in zip("ARS", names, measured, strict=True)
        ),
    ]


@listed
def flow_at_paper_overlap(eq: Table) -> Iterator[Check]:
    """The flow (15) at tau = 1/N against its pieces: mean updates per epoch and the closed
    attention equation.
    """
    x = Inputs()
    values = x.values() | {"c_omega": 0.83}
    c_A = eq["c_closure"].evaluate(values)
    pieces = {
        "A": eq["dA_dalpha_chain"].evaluate(values | {"c_A": c_A}),
        "R": eq["delta_R"].evaluate(values | {"tau": 1 / x.p.N}) * x.p.d_g * x.p.N,
        "S": eq["delta_S"].evaluate(values | {"tau": 1 / x.p.N}) * x.p.d_g * x.p.N,
    }
    spelled = dynamics.flow().where
    for name, piece in pieces.items():
        rhs = eq[f"d{name}_dalpha"].rhs
        for short, meaning in spelled.items():
            rhs = rhs.subs(short, meaning)
        flow_value = Equation(name, rhs, rhs, "", "exact").evaluate(values)
        yield identity(
            f"flow (15) of {name} from its pieces",
            f"d{name}_dalpha",
            flow_value,
            piece,
            EXACT,
            EXACT_WHY,
        )
