"""Parameters of k-fold composition, and which students its theory describes."""

from dataclasses import dataclass
from typing import Any

from theory import BaseParameters, Preset, Scope, Stepped, parameter, scope


@dataclass(frozen=True)
class Parameters(Stepped):
    """k hidden permutations of N things, k permutations given in context; kernel learner of the
    hidden ones.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    # All hops at once; hop by hop.
    PRESETS = {
        "direct": Preset("All hops from the start."),
        "easy_to_hard": Preset("One hop first, then two, and so on.", curriculum=True),
    }
    N: int = parameter(5, "things that are permuted", low=2)
    k: int = parameter(3, "hops", low=1, high=16)
    m_0: float = parameter(
        0.1, "overlap of every kernel with its permutation at the start", low=1e-100, high=0.9
    )
    curriculum: bool = parameter(
        False, "train one hop, then two, ..., each until its product of overlaps is 0.9"
    )
    eta: float = parameter(0.5, "learning rate of the kernel learner", above=0)
    batch_size: int = parameter(256, "samples per step of the kernel learner", low=1)
    steps: int = parameter(4000, "length of a run", low=1)
    eval_every: int = parameter(10, "steps between measurements", low=1)

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name; all overlaps start alike."""
        return {
            "N": self.N,
            "k": self.k,
            "m_0": self.m_0,
            **{f"m_{j}_0": self.m_0 for j in range(1, self.k + 1)},
        }


@dataclass(frozen=True)
class Pointers(BaseParameters):
    """Extension: attention layers that learn 1, 2, 4, .. hops along a permutation given in context.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    N: int = parameter(11, "things that are permuted", low=3)
    layers: int = parameter(3, "attention layers; the deepest answers 2^layers hops", low=1, high=4)
    hops: str = parameter(
        "mixture",
        "train on 1, 2, 4, .. hops together, or on the deepest alone",
        choices=("mixture", "last"),
    )
    eta: float = parameter(0.01, "learning rate (Adam)", above=0)
    spread: float = parameter(
        0.05, "standard deviation of the initial scores and read-outs", above=0
    )
    batch_size: int = parameter(128, "permutations per step", low=1)
    steps: int = parameter(400, "length of a run", low=1)
    eval_every: int = parameter(10, "steps between measurements", low=1)


# Each function states whether it describes direct training, the curriculum or the mixture.
KERNEL_LEARNERS = Scope(
    "the flow of the overlaps",
    "kernel learners that start with equal overlaps",
    (),
    ("curriculum", "eta", "batch_size", "steps", "eval_every"),
)
applies = scope.applies({"flow": KERNEL_LEARNERS})
