"""Parameters of superposed memories, many associations in one matrix with random embeddings; and
which of them the recall formulas describe.
"""

from dataclasses import dataclass
from typing import Any

from theory import BaseParameters, Limit, ParameterError, Preset, Scope, parameter, scope


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """Keys ``x`` in 1..N, outputs ``f(x) = x mod M``, unit vectors uniform on the sphere.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    # One output per key; eight outputs.
    PRESETS = {
        "injective": Preset("Every key has an output of its own."),
        "few_classes": Preset("All keys share eight outputs.", M=8),
    }
    d: int = parameter(64, "embedding dimension", low=4)
    N: int = parameter(256, "stored keys", low=2)
    M: int | None = parameter(None, "outputs; none is one per key", low=2)
    draws: int = parameter(100, "independent sets of embeddings", low=2)

    def __post_init__(self) -> None:
        """Check single fields, then that every output has a key."""
        super().__post_init__()
        if self.M is not None and self.M > self.N:
            raise ParameterError(f"M = {self.M}: must be <= N = {self.N}")

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return self.N if self.M is None else self.M

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name."""
        return {"d": self.d, "N": self.N, "M": self.outputs}


INJECTIVE = Limit(
    "M", "none or N (one output per key)", lambda p, runs: p.outputs == p.N, reads=("N",)
)
RECALL = Scope("recall accuracy", "memories with one output per key", (INJECTIVE,), ("draws",))
applies = scope.applies({"recall": RECALL})
