"""Laws of training by other optimisers than plain descent, against students."""

from __future__ import annotations

from verify.report import Report, Request
from verify.state_tracking import optimisers


def report(request: Request) -> Report:
    """Every optimiser, single seeds against the fixed-disorder theory."""
    return Report(optimisers.checks(**request.training))
