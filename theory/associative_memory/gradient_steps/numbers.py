"""Numerical value of the second gradient."""

import numpy as np

from theory import Allowed, number, scope, sweep
from theory.associative_memory.gradient_steps.parameters import STEPS, Parameters


@scope.guard(STEPS)
@sweep.over_fields
def second_gradient(p: Parameters) -> float:
    """Negative gradient of a trigger's own association in the second step, per unit learning rate
    of the first step.

    To leading order in the first step (linear softmax), otherwise exact. The value at position s
    contributes as far as the first step's matrix maps it to y; given t0, all expectations are sums
    over positions.

    Returns
    -------
    float
        Entry of W^2 in a trigger's column at the trigger's own remapped token. The entry at another
        trigger's remapped token is 0.

    Raises
    ------
    ParameterError
        For sequences longer than 10^4 (the sum over positions would take seconds).
    """
    number("T", p.T, Allowed(high=10**4), int)
    size, plain, length = p.N, p.N - p.K, p.T
    positions = np.arange(1, length + 1)
    harmonic = np.cumsum(1 / positions)
    # Weight of every position in the averaged remap block.
    weight = (harmonic[-1] - np.append(0.0, harmonic[:-1])) / length
    starts = np.arange(1, length - 1)
    # Mean input given the answer, for (the answer, another plain token, a trigger); token block and
    # remap block.
    token = (
        (length - 3) / (plain * length) + 1 / length,
        (length - 3) / (plain * length),
        2 / (p.K * length),
    )
    answer, trigger = weight[starts].mean(), (weight[starts - 1] + weight[-1]).mean()
    random = weight.sum() - answer - trigger
    remap = (random / plain + answer, random / plain, trigger / p.K)

    def parts(block: tuple[float, float, float]) -> np.ndarray:
        """Mean of (mean given y - (n/N) overall mean) at the answer, at a random plain token and at
        a trigger.
        """
        # A random plain token is the answer with probability 1/n.
        overall = (block[0] + (plain - 1) * block[1]) / plain
        share = plain / size
        return np.array([block[0] - share * overall, (1 - share) * overall, (1 - share) * block[2]])

    slope = 0.0
    for t0 in starts:
        kind = np.full(length, 1)
        kind[t0 - 1] = kind[-1] = 2
        kind[t0] = 0
        right = (parts(token)[kind] + np.cumsum(parts(remap)[kind]) / positions) / plain
        attended = (np.where(positions >= t0, 1.0, 0.0) + (positions == length)) / positions
        slope += ((right - right.mean()) * attended).mean() / len(starts) / p.K
    return slope
