"""Parameters of the gradient-as-memory system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from theory.parameters import BaseParameters, ParameterError, parameter


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """Uniform keys ``z`` with one correct class each, orthonormal embeddings, zero initial weights.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    N: int = parameter(32, "keys", low=2)
    K: int = parameter(32, "classes, at most N", low=2)
    eta: float = parameter(1.0, "learning rate", above=0)

    def __post_init__(self) -> None:
        """Check single fields, then that every class has a key."""
        super().__post_init__()
        if self.K > self.N:
            raise ParameterError(f"K = {self.K}: must be <= N = {self.N}")

    @classmethod
    def bijection(cls) -> Self:
        """As many classes as keys (slides)."""
        return cls()

    @classmethod
    def few_classes(cls) -> Self:
        """Four classes."""
        return cls(K=4)

    @classmethod
    def presets(cls) -> dict[str, Callable[[], Self]]:
        """Named settings."""
        return {"bijection": cls.bijection, "few_classes": cls.few_classes}

    def values(self) -> dict[str, Any]:
        """Numbers by symbol name."""
        return {"N": self.N, "K": self.K, "eta": self.eta}
