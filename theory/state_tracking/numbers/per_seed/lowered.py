"""Rates of the fixed-disorder theory as generated from its equations; reference for the faster
hand-written code.
"""

from functools import cache

import numpy as np

from theory.parameters import ParameterError
from theory.state_tracking import fixed_disorder
from theory.state_tracking.numbers.per_seed.fixed_disorder import FixedDisorder
from theory.state_tracking.numbers.per_seed.realisation import Realisation
from theory.state_tracking.numbers.per_seed.start import Start
from theory.state_tracking.parameters import Parameters

compiled = cache(fixed_disorder.rates)


class Spelled(FixedDisorder):
    """`FixedDisorder` for counted training sets, with rates generated from the equations."""

    def __init__(self, p: Parameters, start: Start, given: Realisation) -> None:
        super().__init__(p, start, given)
        if given.pairs is None:
            raise ParameterError("pairs = None: must be counts of a training set")
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
        d_M, force = compiled()({**self.numbers, "pi": pi, "M": M.transpose(0, 2, 3, 1)})
        d_q, d_k = self.attention.backward(W_Q, W_K, pi, force)
        return [d_q, d_k, -d_M.transpose(0, 3, 1, 2) / self.p.eta]
