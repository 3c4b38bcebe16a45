"""Laws of training by rewards and by other optimisers than plain descent, against students."""

import functools
from collections.abc import Callable
from typing import Any

from verify import measured
from verify.check import Check
from verify.report import Report, Request
from verify.state_tracking import batches, decay, domains, optimisers, order, starts

TRAINS = True  # what comes with the code, if asked


def groups(request: Request) -> dict[str, Callable[[], list[Check]]]:
    """Rows that take longer, by students that come with the code, by title."""
    parts: Any = (
        *(optimisers.CLOCK_GROUPS, optimisers.ADAM_GROUPS, decay.GROUPS, decay.GROUPS_OF_PHASES),
        *(decay.EDGE_GROUPS, optimisers.GROUPS, domains.GROUPS),
        *(order.GROUPS, starts.GROUPS),
    )
    trained = {
        title: functools.partial(make, **request.training)
        for part in parts
        for title, make in part.items()
    }
    return {**trained, "order of batches": batches.checks}


def report(request: Request) -> Report:
    """Clocks of rewards; momentum, Adam, decay, batches, and every optimiser for single seeds;
    words whose last state alone is asked for.
    """
    rows = [
        *optimisers.on_flow(),
        *order.sums(),
    ]
    if not request.full and not request.renew:
        what = "students under momentum, Adam, decay and batches (ten minutes)"
        return Report(rows, request.left_out(what))
    with measured.students("anew" if request.renew else "shipped"):
        trained, missing = measured.known(groups(request))
    notes = ["", f"no row, as no students come with the code (--train): {'; '.join(missing)}"]
    return Report([*rows, *trained], notes if missing else [])
