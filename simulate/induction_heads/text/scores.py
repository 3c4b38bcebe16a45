"""Scores of heads: previous token, prefix matching, copying."""

import numpy as np
import torch
from torch import Tensor


def previous(attention: Tensor) -> Tensor:
    """Mean attention on the character before, by head; attention of shape (n, heads, T, T)."""
    return attention.diagonal(-1, 2, 3).mean((0, 2))


def prefix(attention: Tensor, half: int, known: int = 0) -> Tensor:
    """Prefix-matching score (Olsson et al. 2022, arXiv:2209.11895), by head.

    On a segment of ``half`` characters shown twice: mean attention of a character, the second time,
    on the one that followed it the first time. The first ``known`` of the second showing are left
    out.
    """
    back = half - 1  # from the second showing of a character to the first one of its successor
    return attention.diagonal(-back, 2, 3)[..., 1 + known :].mean((0, 2))


def copying(circuit: Tensor) -> np.ndarray:
    """Copying score (Elhage et al. 2021): sum of the eigenvalues of a head's map from attended
    token to logits, over the sum of their absolute values. 1: the attended token becomes more
    likely; -1: less likely. Weights that overflowed have none.
    """
    entries = circuit.detach().cpu().double().numpy()
    if not np.isfinite(entries).all():
        return np.full(entries.shape[:-2], np.nan)
    values = np.linalg.eigvals(entries)
    return values.sum(-1).real / np.maximum(np.abs(values).sum(-1), np.finfo(float).tiny)


def losses(logits: Tensor, tokens: Tensor) -> Tensor:
    """Cross-entropy of every character but the first, shape (n, T - 1)."""
    value = torch.nn.functional.cross_entropy(
        logits[:, : tokens.shape[1] - 1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
    )
    return value.view(len(tokens), -1)
