"""The user's cache folder, and modules of generated source in it: Numba caches compiled functions
(`theory.machine_code`) per file.
"""

import hashlib
import importlib.machinery
import os
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from theory.runtime import output


def folder() -> Path:
    """``$SOLVABLE_TRANSFORMERS_CACHE``, or ``solvable-transformers`` in the user's cache folder;
    made if it is missing. What is in it may be run: a folder that others own or can write to is
    not used, which a warning says.

    Raises
    ------
    OSError
        If there is no folder of the user's own.
    """
    chosen = os.environ.get("SOLVABLE_TRANSFORMERS_CACHE")
    if chosen and _private(Path(chosen)):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    if not _private(usual := Path(home, "solvable-transformers")):
        raise PermissionError(f"{usual}: not one's own")
    return usual


def _private(place: Path) -> bool:
    """Whether a folder, made if it is missing, is the user's own; if not, a warning is given."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = place.stat()
    if os.name == "nt" or (state.st_uid == os.geteuid() and not state.st_mode & 0o022):
        return True
    advice = "make it your own and chmod 700 it, or choose another"
    warnings.warn(f"{place}: no cache, as others own it or can write to it; {advice}", stacklevel=3)
    return False


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
    if not path.is_file() or path.read_bytes() != text.encode():
        with output.atomic(path) as temporary:
            temporary.write_bytes(text.encode())
    loader = _FromSource(name, str(path))
    made = ModuleType(name)
    made.__dict__["KEPT"] = kept and os.access(place, os.W_OK)
    sys.modules[name] = made
    loader.exec_module(made)
    return made


class _FromSource(importlib.machinery.SourceFileLoader):
    """Loader that neither reads nor writes byte code beside the source."""

    def path_stats(self, path: str) -> Any:
        """Without them there is no byte code."""
        raise OSError(path)
