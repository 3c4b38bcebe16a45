"""Machine code of derived expressions, kept between runs: Numba caches by file, so generated source
becomes one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np

from theory import output


def folder() -> Path:
    """``$SOLVABLE_TRANSFORMERS_CACHE``, or ``solvable-transformers`` in the user's cache folder."""
    chosen = os.environ.get("SOLVABLE_TRANSFORMERS_CACHE")
    return Path(
        chosen
        or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "solvable-transformers")
    )


def module(source: str) -> ModuleType:
    """Import generated Python source from a file named by its SHA-256 and the versions that compile
    it.

    What a file of that name holds is compared with the source before it is trusted. ``KEPT`` is
    defined in the module: whether ``numba.njit(cache=KEPT)`` can keep its machine code. Where the
    user's cache folder cannot be written, the file lies in a temporary one, and is compiled every
    time.
    """
    import numba

    versions = (
        f"# Python {sys.version.split()[0]}, numba {numba.__version__}, numpy {np.__version__}\n"
    )
    text = versions + source
    name = "generated_" + hashlib.sha256(text.encode()).hexdigest()
    try:
        return _imported(name, text, folder(), kept=True)
    except (OSError, RuntimeError):  # no place to write, or no home folder
        with tempfile.TemporaryDirectory() as place:
            return _imported(name, text, Path(place), kept=False)


def _imported(name: str, text: str, place: Path, kept: bool) -> ModuleType:
    path = place / f"{name}.py"
    if not path.is_file() or path.read_text() != text:
        with output.atomic(path) as temporary:
            temporary.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path}: cannot be imported")
    made = importlib.util.module_from_spec(spec)
    made.__dict__["KEPT"] = kept and os.access(place, os.W_OK)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made
