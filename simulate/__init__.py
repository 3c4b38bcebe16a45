"""Students: the networks that the papers train, in PyTorch; results are labelled
datasets.
"""

import importlib
import os
import sys
from typing import Any

import theory

if os.path.dirname(theory.__path__[0]) != os.path.dirname(__path__[0]):
    message = (
        f"{theory.__path__[0]} hides the toolkit's package theory; rename it or start"
        " elsewhere"
    )
    if sys.argv[:1] != ["-m"]:
        raise ImportError(message)
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)

__version__ = theory.__version__
__all__ = ["__version__"]


def __getattr__(name: str) -> Any:
    """``simulate.discover(module)``, ``simulate.ensemble(module)`` and the stored
    ``simulate.runs``, imported when needed.
    """
    if name in ("discover", "ensemble"):
        return importlib.import_module(f"{__name__}.{name}")
    if name == "runs":
        return importlib.import_module("simulate.store.runs")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
