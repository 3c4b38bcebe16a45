"""Parameters of the three gradient steps that build an induction head, and which learners their
theory describes.
"""

from dataclasses import dataclass
from typing import Any

from theory import BaseParameters, Limit, ParameterError, Preset, Scope, parameter, scope


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """Task (a trigger, its answer directly after it, and the trigger again at the end) and step
    sizes.

    Raises
    ------
    ParameterError
        For an unknown name, a value out of range, or too few tokens that are not triggers.
    """

    # A first step of 1 leaves the softmax unsaturated, too, though no longer linear; at 30 it
    # saturates and later steps fail.
    PRESETS = {
        "unsaturated": Preset("A first step so small that the theory holds."),
        "saturated": Preset("A first step so large that probabilities saturate.", first_step=30.0),
    }
    N: int = parameter(30, "tokens, triggers included", low=4)
    K: int = parameter(3, "triggers", low=1)
    T: int = parameter(32, "sequence length", low=5)
    samples: int = parameter(50000, "sequences per gradient", low=100)
    first_step: float = parameter(0.1, "learning rate of the first step, in units of N T", above=0)
    second_gain: float = parameter(
        20.0, "mean weight of trigger associations after the second step", above=0
    )
    third_gain: float = parameter(
        50.0, "mean weight of previous positions after the third step", above=0
    )

    def __post_init__(self) -> None:
        """Check single fields, then that there are at least two possible answers."""
        super().__post_init__()
        if self.N - self.K < 2:
            raise ParameterError(f"K = {self.K}: must be <= N - 2 = {self.N - 2}")

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name."""
        return {"N": self.N, "K": self.K, "T": self.T, "n_plain": self.N - self.K}


# Students' second gradient over its formula, per unit of the first step: +4% at 0.1, +9% at 0.3,
# +16% at 1, 1% each (four data sets of 10^4 sequences).
SMALL = 0.1
LINEAR = Limit(
    "first_step",
    f"at most {SMALL:g}, where the softmax is linear",
    lambda p, runs: p.first_step <= SMALL,
)
STEPS = Scope(
    "the population gradients",
    "one step each, the first of them small",
    (LINEAR,),
    ("samples", "second_gain", "third_gain"),
)
applies = scope.applies({"steps": STEPS})
