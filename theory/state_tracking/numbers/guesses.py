"""What can be guessed without knowing which action comes next: from the current state alone, or
from it and the unordered actions of the sequence.
"""

import numpy as np


def from_state(permutations: np.ndarray) -> float:
    """Accuracy of the best guess of the next state from the current one: actions and states are
    uniform, so that it is the state to which most actions lead.

    Parameters
    ----------
    permutations : ndarray, shape (d_g, N)
        Teachers.
    """
    states = np.arange(permutations.shape[1])
    hits = (permutations[:, None, :] == states[:, None]).sum(0)  # arrivals: next state, state
    return float(hits.max(0).mean() / len(permutations))


def from_actions(permutations: np.ndarray, actions: np.ndarray, states: np.ndarray) -> float:
    """Accuracy of the best guess from the current state and all actions of a sequence, each equally
    likely to be the next.

    Parameters
    ----------
    permutations : ndarray, shape (d_g, N)
        Teachers.
    actions, states : ndarray, shapes (n, L) and (n, T)
        Sequences, and current states.
    """
    images = permutations[actions[:, None, :], states[:, :, None]]  # sequence, step, place
    hits = (images[..., None] == np.arange(permutations.shape[1])).sum(2)
    return float(hits.max(-1).mean() / actions.shape[1])
