"""Laws of training by rewards and by other optimisers than plain descent, against students."""

from collections.abc import Callable

from verify.check import Check
from verify.report import Report, Request
from verify.state_tracking import (
    adam,
    batches,
    clocks,
    decay,
    edge,
    optimisers,
    phases,
    reward_clocks,
    reward_seeds,
)


def report(request: Request) -> Report:
    """Clocks of rewards; momentum, Adam, decay, batches, and every optimiser for single seeds."""
    training = request.training
    groups: tuple[Callable[[], list[Check]], ...] = (
        lambda: reward_clocks.checks(request),
        *(() if request.given else (reward_seeds.checks,)),
        clocks.on_flow,
    )
    trained: tuple[Callable[[], list[Check]], ...] = (
        lambda: clocks.on_students(**training),
        lambda: adam.at_settings(**training),
        lambda: adam.exponents(**training),
        lambda: decay.checks(**training),
        lambda: phases.checks(**training),
        lambda: edge.checks(**training),
        batches.checks,
        lambda: optimisers.checks(**training),
    )
    asked = (*groups, *trained) if request.full else groups
    left_out = request.left_out("students under momentum, Adam, decay and batches (an hour)")
    return Report([check for group in asked for check in group()], left_out)
