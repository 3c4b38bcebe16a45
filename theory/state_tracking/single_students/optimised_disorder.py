"""Fixed-disorder theory under any optimiser: its gradients go through the optimiser's
steps, and every step counts the batch that the seed's student takes.
"""

import numpy as np

from theory.call.refusal import ParameterError
from theory.dynamics.optimisers import Steps
from theory.state_tracking.model.parameters import Parameters
from theory.state_tracking.single_students.fixed_disorder import FixedDisorder
from theory.state_tracking.single_students.realisation import Realisation, Start


class Trained(FixedDisorder):
    """As `FixedDisorder`, step by step: momentum, Adam, schedules, clipping, batches.

    Parameters
    ----------
    p : Parameters
        With the optimiser and the length of the run.
    start : Start
        Initial keys and queries of the seeds.
    given : Realisation
        As for `FixedDisorder`, with its sequences.
    accuracies : bool
        Compute accuracies; otherwise they are NaN.

    Raises
    ------
    ParameterError
        If batches are asked for and the realisation has no sequences.
    """

    def __init__(
        self, p: Parameters, start: Start, given: Realisation, accuracies: bool = True
    ) -> None:
        super().__init__(p, start, given, accuracies)
        if p.batches > 1 and given.sequences is None:
            raise ParameterError(
                f"given: has no sequences, which batch_size = {p.batch_size} needs; "
                "make it by Realisation.of with these parameters"
            )
        self.whole = given
        self.epochs = 0
        self.steps = Steps(p, p.eta, p.updates)

    def epoch(self) -> None:
        """One epoch, or one step where those are counted."""
        for step in self.p.steps_of(self.epochs):
            if self.p.batches > 1:
                self.see(*self.whole.batch(self.p, step))
            self.state = self.steps(self.state, self.gradients())
        self.epochs += 1

    def observe(self) -> dict[str, np.ndarray]:
        """Order parameters, logits, loss and accuracies per seed, over the whole
        training set.
        """
        self.see(self.whole, self.p.n_train)
        return super().observe()


def system(
    p: Parameters, start: Start, given: Realisation, accuracies: bool = True
) -> FixedDisorder:
    """Fixed-disorder theory; in strides where steps depend on the weights alone."""
    if not p.steady or p.batches > 1:
        return Trained(p, start, given, accuracies)
    return FixedDisorder(p, start, given, accuracies)
