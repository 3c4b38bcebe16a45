"""Train students: plan and jobs, stacks of seeds in one tensor, processes, optimisers,
and the interface that students of other packages implement.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """``training.System``, imported when needed."""
    if name == "System":
        from simulate.training.plan import System

        return System
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
