"""Both errors as numbers."""

from linear_attention.proportional.errors import equations
from linear_attention.proportional.parameters import Parameters
from theory import Limit, Scope, scope, sweep

OFF_PEAK = Limit(  # nearer, the error is a difference of numbers that agree in all digits
    "tau",
    "at least 1e-9 away from 1 for a ridge below 1e-20",
    lambda p, runs: p.ridge >= 1e-20 or abs(p.tau - 1) >= 1e-9,
    reads=("ridge",),
)
ERRORS = Scope(
    "the error of a fit",
    "fits that do not interpolate just so",
    (OFF_PEAK,),
    ("d", "draws"),
    remedy="the error diverges there; error_peak says how",
)
applies = scope.applies({"errors": ERRORS})


@scope.guard(ERRORS)
@sweep.over_fields
def error_trained(p: Parameters) -> float:
    """Error on fresh sequences of the training tasks (IDG in the paper)."""
    return float(p.values()["error_trained"])


@scope.guard(ERRORS)
@sweep.over_fields
def error_new(p: Parameters) -> float:
    """Error on new tasks (ICL in the paper)."""
    return float(equations()["error_new"].evaluate(p.values()))


@sweep.over_fields
def error_unlimited(p: Parameters) -> float:
    """Error on new tasks without limit on training sequences, no ridge."""
    return float(equations()["new_unlimited"].evaluate(p.values()))
