"""Cache of machine code for derived expressions. Numba caches compiled functions per file, so
generated source is written to a file.
"""

import hashlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np

from theory.runtime import output


def folder() -> Path:
    """``$SOLVABLE_TRANSFORMERS_CACHE``, or ``solvable-transformers`` in the user's cache folder."""
    chosen = os.environ.get("SOLVABLE_TRANSFORMERS_CACHE")
    return Path(
        chosen
        or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "solvable-transformers")
    )


def module(source: str) -> ModuleType:
    """Import generated Python source from a file whose name contains the SHA-256 of the source and
    the versions of the compiler.

    An existing file of that name is used only if its content equals the source. The module defines
    ``KEPT``, the value for ``numba.njit(cache=KEPT)``. If the user's cache folder cannot be
    written, a temporary file is used and the code is compiled in every run.
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
