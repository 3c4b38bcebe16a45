"""Numerical margin."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from theory.arguments import checked
from theory.dimensions import by_dimension
from theory.parameters import Allowed
from theory.special import log_linear


@by_dimension()
@checked
def margin(
    N: Annotated[int, Allowed(low=2)],
    K: Annotated[int, Allowed(low=2)],
    t: Annotated[np.ndarray | float, Allowed(low=0)],
) -> np.ndarray:
    """Margin of `margin_flow`, evaluated without overflow."""
    return log_linear((1 + K * np.asarray(t, float) / N) / (K - 1), K - 1)
