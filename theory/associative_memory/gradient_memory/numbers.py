"""The margin in numbers."""

from __future__ import annotations

import numpy as np

from theory.special import log_linear


def margin(N: int, K: int, t: np.ndarray | float) -> np.ndarray:
    """Margin of `margin_flow`, also where ``exp`` of its argument would overflow."""
    return log_linear((1 + K * np.asarray(t, float) / N) / (K - 1), K - 1)
