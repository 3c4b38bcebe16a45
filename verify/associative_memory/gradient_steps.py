"""Three gradient steps: population gradients against formulas, probes, accuracy, and
failure by saturation.
"""

from collections.abc import Iterator

import numpy as np

from simulate.associative_memory.gradient_steps import Parameters, run
from theory.associative_memory.gradient_steps import equations, second_gradient
from verify.checks.check import Check, at_least, at_most, listed, sampled
from verify.checks.report import reporting

# Three gradient steps

P = Parameters(samples=20000, first_step=1.0)
BATCHES = 14  # independent gradients, for standard errors


@listed
def gradient_checks() -> Iterator[Check]:
    """Entries of the first two gradients, averaged over equivalent entries, against
    formula; one value per data set.
    """
    # The first step is linear up to 1%.
    small = P.replace(first_step=0.01, samples=10000)
    steps = [run(small, seed=100 * b) for b in range(BATCHES)]
    K, N, v = P.K, P.N, P.values()
    other = ~np.eye(N - K, dtype=bool)
    token = [o.gradients["W_O"][K:, K:N] for o in steps]
    remap = [o.gradients["W_O"][K:, N + K :] for o in steps]
    scale = small.first_step * N * P.T
    keys = [-o.gradients["W_2"][N : N + K, :K] / scale for o in steps]
    table = equations()
    yield sampled(
        "first gradient, token block, z -> z",
        "first_gradient",
        table["first_gradient"].number(v | {"delta_kz": 1}),
        [np.diag(q).mean() for q in token],
    )
    yield sampled(
        "first gradient, token block, others",
        "first_gradient",
        table["first_gradient"].number(v | {"delta_kz": 0}),
        [q[other].mean() for q in token],
    )
    yield sampled(
        "lead of z -> z, token block",
        "first_gain",
        table["first_gain"].number(v),
        [q[other].mean() - np.diag(q).mean() for q in token],
    )
    yield sampled(
        "lead of z -> z, remap block",
        "first_gain_remap",
        table["first_gain_remap"].number(v),
        [q[other].mean() - np.diag(q).mean() for q in remap],
    )
    yield sampled(
        "second gradient, trigger to its remapped self",
        "second_gradient",
        second_gradient(small),
        [np.diag(q).mean() for q in keys],
    )


@listed
def step_checks() -> Iterator[Check]:
    """All checks of this system."""
    yield from gradient_checks()
    out = run(P)
    large = run(P.replace(first_step=30.0))
    for name, probe in out.probes.items():
        yield at_least(
            f"probe of {name} right after its step",
            "slides",
            1.0,
            probe,
            "every association is the strongest",
        )
    yield at_least(
        "accuracy after three steps",
        "slides",
        0.999,
        out.accuracy[-1],
        "5000 test sequences",
    )
    yield at_least(
        "attention on the answer after three steps",
        "slides",
        0.99,
        out.attention[-1],
        "5000 test sequences",
    )
    yield at_most(
        "accuracy after two steps only",
        "slides",
        0.5,
        out.accuracy[2],
        "the third step is needed",
    )
    yield at_most(
        "accuracy after a first step 30 times larger",
        "first_gain",
        0.5,
        large.accuracy[-1],
        "softmax outside its linear range spoils the later gradients",
    )


laws = reporting(step_checks)
