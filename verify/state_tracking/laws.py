"""Laws of training by other optimisers than plain descent, against students."""

from __future__ import annotations

from verify.report import Report, Request
from verify.state_tracking import adam, clocks, decay, optimisers


def report(request: Request) -> Report:
    """Momentum, Adam, decay, and every optimiser for single seeds."""
    training = request.training
    groups = (
        clocks.on_flow,
        lambda: clocks.on_students(**training),
        lambda: adam.at_settings(**training),
        lambda: adam.exponents(**training),
        lambda: decay.checks(**training),
        lambda: optimisers.checks(**training),
    )
    return Report([check for group in groups for check in group()])
