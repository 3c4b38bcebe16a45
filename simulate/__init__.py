"""Students: the networks that the papers train, in PyTorch; results are labelled datasets."""

import os
import sys

import theory

if os.path.dirname(theory.__path__[0]) != os.path.dirname(__path__[0]):
    message = (
        f"{theory.__path__[0]} hides the toolkit's package theory; rename it or start elsewhere"
    )
    if sys.argv[:1] != ["-m"]:
        raise ImportError(message)
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)

__version__ = theory.__version__
__all__ = ["__version__"]
