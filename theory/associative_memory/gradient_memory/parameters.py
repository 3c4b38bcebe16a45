"""Parameters of the gradient-as-memory system, and which learners its theory describes."""

from dataclasses import dataclass

from theory import BaseParameters, ParameterError, Preset, Scope, parameter, scope


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """Uniform keys ``z`` with one correct class each, orthonormal embeddings, zero initial weights.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    # As many classes as keys (slides); four classes.
    PRESETS = {
        "bijection": Preset("Every key has a class of its own."),
        "few_classes": Preset("All keys share four classes.", K=4),
    }
    N: int = parameter(32, "keys", low=2)
    K: int = parameter(32, "classes, at most N", low=2)
    eta: float = parameter(1.0, "learning rate", above=0)

    def __post_init__(self) -> None:
        """Check single fields, then that every class has a key."""
        super().__post_init__()
        if self.K > self.N:
            raise ParameterError(f"K = {self.K}: must be <= N = {self.N}")


MEMORY = Scope("the flow of the margin", "uniform keys and orthonormal embeddings, zero start")
applies = scope.applies({"flow": MEMORY})
