"""Parameters of one-pass descent of the positional-semantic layer."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from theory import Scope, only, scope
from theory.parameters import ParameterError, Preset, Stepped, parameter
from theory.positional_semantic.parameters import TARGETS

UNIT = 1 / (1 + math.exp(2))  # off-diagonal entry of the row-wise softmax of [[1, -1], [-1, 1]]
MATRICES = {**TARGETS, "signs": ((1 - UNIT, UNIT), (UNIT, 1 - UNIT))}


@dataclass(frozen=True)
class Parameters(Stepped):
    """Task, start and steps. Time is ``t = eta * steps / d``: one sentence per step.

    The weights ``Q`` start with a given norm and given cosines with the positions and the teacher.

    Raises
    ------
    ParameterError
        For an unknown name, a value out of range, or cosines of no vector.
    """

    omega: float = parameter(0.3, "positional fraction of the target (16)", low=0, high=1)
    sigma: float = parameter(0.5, "standard deviation of a token's entries", low=0.05, high=10)
    target: str = parameter("standard", "the matrix A of (16)", choices=tuple(MATRICES))
    norm: str = parameter(
        "free", "free, or held: restored after every step", choices=("free", "held")
    )
    scale: float = parameter(1.0, "initial norm of Q by sqrt(d)", low=1e-3, high=100)
    cos_p: float = parameter(0.3, "initial cosine of Q with the positions", low=-1, high=1)
    cos_teacher: float = parameter(0.3, "initial cosine of Q with the teacher", low=-1, high=1)
    decay: float = parameter(0.0, "weight decay by time", low=0, high=100)
    eta: float = parameter(40.0, "learning rate", low=1e-9, high=1e6)
    d: int = parameter(400, "embedding dimension of the students", low=4, high=1e9)
    batch: int | None = parameter(
        8,
        "fresh sentences per step, over which gradients are averaged; none: all (the population)",
        low=1,
    )
    steps: int = parameter(3000, "steps", low=1)
    eval_every: int = parameter(100, "steps between measurements", low=1)

    CLOCK = "eta * steps / d"
    PRESETS = {
        "default": Preset("The target of the paper; weights of any length."),
        "sphere": Preset(
            "A target of signs; the length of the weights is held.",
            **dict(target="signs", sigma=1.0, norm="held", omega=0.7, eta=8.0, steps=1500),
        ),
    }

    def __post_init__(self) -> None:
        """Check single fields, then that there is a vector with these cosines."""
        super().__post_init__()
        if math.hypot(self.cos_p, self.cos_teacher) > 1:
            raise ParameterError(
                f"cos_p = {self.cos_p:g}: its square and that of cos_teacher = "
                f"{self.cos_teacher:g} must add up to at most 1"
            )

    @property
    def A(self) -> np.ndarray:
        """Fixed matrix of the target, shape (2, 2)."""
        return np.array(MATRICES[self.target])

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name; ``step`` is the learning rate of a sentence."""
        A = self.A
        return {
            "omega": self.omega,
            "sigma": self.sigma,
            "A_12": float(A[0, 1]),
            "A_21": float(A[1, 0]),
            "scale": self.scale,
            "cos_p": self.cos_p,
            "cos_teacher": self.cos_teacher,
            "decay": self.decay,
            "step": self.eta / self.batch if self.batch else 0.0,
            "d": self.d,
        }

    @property
    def time_per_step(self) -> float:
        """Time of one step."""
        return self.eta / self.d


# Which students the online theory describes

RUN = ("steps", "eval_every")
STEP = ("eta",)  # enters with the number of sentences of a step
ANY = Scope(
    "the online theory", "one-pass descent of one tied layer of rank one", (), RUN, (*STEP, "norm")
)
FREE = Scope(
    "the flow of (q, m, theta)",
    "one-pass descent of free weights",
    (only("norm", "free"),),
    RUN,
    STEP,
)
HELD = Scope(
    "the flow at a given norm", "one-pass descent on a sphere", (only("norm", "held"),), RUN, STEP
)
SCOPES = {"online": ANY, "free": FREE, "held": HELD}
applies = scope.applies(SCOPES)
