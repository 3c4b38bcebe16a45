"""Rates of the fixed-disorder theory as generated from its equations."""

from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from theory.numbers.lowered import Lowered
from theory.state_tracking.model.parameters import Parameters
from theory.state_tracking.model.symbols import N, b, d_g, i, j, r, s
from theory.state_tracking.single_students import fixed_disorder
from theory.state_tracking.single_students.fixed_disorder import (
    GROUP,
    FixedDisorder,
    force,
    mean,
    plain,
)
from theory.state_tracking.single_students.realisation import Realisation, Start

rate = sp.IndexedBase("rate_M")  # rate per epoch


@cache
def generated(xp: Any = np) -> Lowered:
    """Array code generated from the equations: change of M per epoch and force on
    attention, from ``M``, ``M_star``, ``pi``, ``nu`` and ``pairs`` of a stack of
    students, and the sizes.

    An empty group is treated as one row; it has no pairs and no fluctuations, and does
    not contribute.

    Parameters
    ----------
    xp : module
        Array module, as `theory.numbers.lowered.Lowered`.
    """
    eq = fixed_disorder.equations()
    logit = sp.exp(mean[(*GROUP, r)])
    student = sp.Symbol("student", integer=True, positive=True)
    steps = ("mean_weight", "group_logit", "mean_entry", "entry_covariance", "scatter")
    later = ("logit_lift", "mean_probability", "response", "force")
    made = {eq[name].lhs: eq[name].rhs for name in steps}
    made[plain[r]] = logit / sp.Sum(logit, (r, 1, N))
    made |= {eq[name].lhs: eq[name].rhs for name in later}
    made[rate[b, r, s]] = eq["rate_M"].rhs / (d_g * N)
    return Lowered(made, (rate[b, r, s], force[i, j]), (student, *GROUP), xp)


class Spelled(FixedDisorder):
    """`FixedDisorder` for counted training sets, with rates generated from the
    equations.
    """

    def __init__(self, p: Parameters, start: Start, given: Realisation) -> None:
        super().__init__(p, start, given)
        self.numbers = {
            **{"N": p.N, "L": p.L, "d_g": p.d_g, "n_train": p.n_train, "eta": p.eta},
            "nu": np.maximum(given.share, 1 / (p.n_train * p.L)),
            "pairs": given.pairs.astype(float),
            "M_star": self.teachers.transpose(0, 2, 3, 1),
        }

    def gradients(self) -> list[np.ndarray]:
        """Derivatives of the loss by the state."""
        W_Q, W_K, M = self.state
        pi = self.attention.forward(W_Q, W_K)
        d_M, by_at = generated()(
            {**self.numbers, "pi": pi, "M": M.transpose(0, 2, 3, 1)}
        )
        heads = self.attention.backward(W_Q, W_K, pi, by_at)
        return [*heads, -d_M.transpose(0, 3, 1, 2) / self.p.eta]
