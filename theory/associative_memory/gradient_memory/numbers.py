"""Numerical margin."""

from typing import Annotated

import numpy as np

from theory import Allowed, by_dimension, checked
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
