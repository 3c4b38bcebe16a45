"""Parameters of the committee: one object for theory and students."""

from dataclasses import dataclass
from typing import Any

from theory import Limit, Scope, scope
from theory.parameters import ParameterError, Preset, Stepped, parameter


@dataclass(frozen=True)
class Parameters(Stepped):
    """K student units learn K orthonormal teacher units; time is ``alpha = examples / N``.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    TIME = "alpha"
    PRESETS = {
        "reference": Preset("Three hidden units, no noise."),
        "small_steps": Preset("A small learning rate.", eta=0.1),
        "noisy": Preset("Two hidden units, noisy labels.", K=2, eta=0.2, sigma=0.1),
    }
    K: int = parameter(3, "hidden units, of student and teacher", low=2, high=100)
    N: int = parameter(1000, "dimension of inputs", low=4)
    eta: float = parameter(0.5, "learning rate", above=0)
    sigma: float = parameter(0.0, "standard deviation of label noise", low=0)
    R_0: float = parameter(0.02, "overlap with the own teacher at the start", low=-1, high=1)
    S_0: float = parameter(0.0, "overlap with any other teacher at the start", low=-1, high=1)
    Q_0: float = parameter(0.25, "squared length of a unit at the start", above=0)
    C_0: float = parameter(0.0, "overlap of two units at the start", low=-1)
    steps: int = parameter(200_000, "examples", low=1)
    eval_every: int = parameter(500, "examples between measurements", low=1)

    def __post_init__(self) -> None:
        """Check single fields, then that vectors have these overlaps."""
        super().__post_init__()
        if self.N < 2 * self.K:
            raise ParameterError(f"N = {self.N}: must be at least 2 K = {2 * self.K}")
        squares = (self.R_0 - self.S_0) ** 2, (self.R_0 + (self.K - 1) * self.S_0) ** 2
        left = self.Q_0 - self.C_0 - squares[0], self.Q_0 + (self.K - 1) * self.C_0 - squares[1]
        if min(left) < 0:
            raise ParameterError(f"Q_0 = {self.Q_0}: too short for the other overlaps at the start")

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name."""
        return {n: getattr(self, n) for n in ("K", "eta", "sigma", "R_0", "S_0", "Q_0", "C_0")}

    @property
    def time_per_step(self) -> float:
        """Time of one example."""
        return 1 / self.N


# Which students the theory of the committee describes

LARGE = Limit(
    "N", "at least 50 (of order 1/N is left out)", lambda p, runs: p.N >= 50, lambda p, runs: p.N
)
COMMITTEE = Scope(
    "the flow of four overlaps",
    "one pass over fresh examples in many dimensions, from a start that is alike for all units",
    (LARGE,),
    ("steps", "eval_every"),
)
applies = scope.applies({"flow": COMMITTEE})
