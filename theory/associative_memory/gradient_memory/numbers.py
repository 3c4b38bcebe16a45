"""The margin as a number."""

from typing import Annotated

import numpy as np

from theory import Allowed, scope, sweep
from theory.associative_memory.gradient_memory.parameters import MEMORY, Parameters
from theory.special import log_linear

Times = Annotated[np.ndarray | float, Allowed(low=0)]


@scope.guard(MEMORY)
@sweep.over_fields
def margin(p: Parameters, t: Times) -> np.ndarray:
    """Margin of `margin_flow` at times ``t = eta * steps``, without overflow."""
    return log_linear((1 + p.K * np.asarray(t, float) / p.N) / (p.K - 1), p.K - 1)
