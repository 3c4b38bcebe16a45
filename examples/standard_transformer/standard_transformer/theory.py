"""Parameters of standard transformers, and what their learning is compared with: the
flow (15) of the solvable student, and the best guess from the state alone.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from theory import ParameterError, Preset, parameter
from theory import state_tracking as solvable
from theory.dynamics.catalogue import catalogue
from theory.state_tracking.model import task
from theory.state_tracking.quadrature import emergence_time


def usual(name: str, default: Any) -> Any:
    """A field of the solvable student with another default."""
    metadata = solvable.Parameters.__dataclass_fields__[name].metadata
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Parameters(solvable.Parameters):
    """Sizes and training of a standard transformer. ``d_h`` is the dimension of keys,
    queries and values of one head. Theories of the solvable student refuse these for
    their embedding.

    Raises
    ------
    ParameterError
        For an unknown name, a value out of range, or one that this architecture does
        not use.
    """

    PRESETS = {
        "one_block": Preset("One block with two heads."),
        "two_blocks": Preset("Two blocks with one head each.", blocks=2, heads=1),
    }
    N: int = usual("N", 8)
    L: int = usual("L", 6)
    d_g: int = usual("d_g", 8)
    d_h: int = usual("d_h", 32)
    d_model: int = usual("d_model", 64)
    eta: float = usual("eta", 1e-3)
    batch_size: int | None = usual("batch_size", 256)
    rope: str = usual("rope", "plain")
    fix_embedding: bool = usual("fix_embedding", False)
    epochs: int = usual("epochs", 400)
    eval_every: int = usual("eval_every", 10)
    unit: str = usual("unit", "step")
    optimizer: str = usual("optimizer", "adam")
    blocks: int = parameter(1, "blocks: attention, then an MLP", low=1)
    heads: int = parameter(2, "softmax heads of a block; they see states too", low=1)
    d_ff: int = parameter(256, "hidden width of an MLP", low=1)
    mlp: str = parameter(
        "gelu", "MLP: GELU, or gated by a GELU", choices=("gelu", "glu")
    )
    norm: bool = parameter(True, "LayerNorm before attention, MLP and output")
    positions: str = parameter(
        "learned",
        "positions: learned embeddings, or rotary keys",
        choices=("learned", "rope"),
    )

    def __post_init__(self) -> None:
        """Check the solvable student's fields, then those that have one value here."""
        super().__post_init__()
        self._fixed("fix_embedding", "standard transformers")
        if self.positions == "learned":
            self._fixed("rope", "positions = 'learned'")
            self._fixed("rope_theta", "positions = 'learned'")

    def _fixed(self, name: str, why: str) -> None:
        value, only = getattr(self, name), self.__dataclass_fields__[name].default
        if value != only:
            raise ParameterError(f"{name} = {value!r}: must be {only!r} for {why}")


# Flow (15), which the solvable student of the same sizes follows.
flows, sections, equations = catalogue({"The solvable student": [solvable.flow]})


def flow_steps(p: solvable.Parameters) -> float:
    """Steps of the solvable student of these sizes to A half way from 1/L to 1, by the
    flow.
    """
    sizes = solvable.Parameters(N=p.N, L=p.L, d_g=p.d_g, d_h=p.d_h)
    level = (1 + 1 / p.L) / 2
    return float(emergence_time(sizes.values(), level)) * p.N * p.d_g


def guess_from_state(permutations: np.ndarray) -> float:
    """Accuracy of the best guess of the next state from the current one. Actions and
    states are uniform, so that it is the state to which most actions lead.

    Parameters
    ----------
    permutations : ndarray, shape (d_g, N)
        Teachers.
    """
    actions, size = permutations.shape
    arrivals = [np.bincount(led, minlength=size).max() for led in permutations.T]
    return float(np.mean(arrivals) / actions)


def known_guess(p: solvable.Parameters, seed: int) -> float:
    """The same of the teachers of a seed."""
    stream = task.streams(seed, p.data_draw)["task"]
    return guess_from_state(task.draw_permutations(p, stream))
