"""Words whose last state alone is asked for, against students."""

from verify import measured
from verify.report import Report, Request
from verify.state_tracking import order

TRAINS = True  # what comes with the code, if asked


def report(request: Request) -> Report:
    """Words whose last state alone is asked for."""
    rows = [*order.sums()]
    with measured.students("anew" if request.renew else "shipped"):
        trained, missing = measured.known(order.GROUPS)
    notes = ["", f"no row, as no students come with the code (--train): {'; '.join(missing)}"]
    return Report([*rows, *trained], notes if missing else [])
