"""Compiled code: modules of generated source, and functions compiled by Numba whose
machine code is kept between runs in the user's cache folder.

Numba's files are pickles. Each ends in a digest of its name and content; a file that is
not as it was written, or that others own or can write to, is not read, and its function
is compiled again.
"""

import contextlib
import hashlib
import importlib.machinery
import inspect
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
from numba.core import caching

from theory.runtime import output


def module(source: str) -> ModuleType:
    """Import generated Python source from a file whose name contains the SHA-256 of the
    source and the versions of the compiler.

    An existing file of that name is used only if its content equals the source. The
    module defines ``KEPT``, the value for ``numba.njit(cache=KEPT)``. If the user's
    cache folder cannot be written, a temporary file is used and the code is compiled in
    every run.
    """
    versions = (
        f"# Python {sys.version.split()[0]}, numba {numba.__version__}, numpy"
        f" {np.__version__}\n"
    )
    text = versions + source
    name = "generated_" + hashlib.sha256(text.encode()).hexdigest()
    try:
        return _imported(name, text, output.cache_folder(), kept=True)
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


DIGEST = hashlib.sha256().digest_size


class _Files(caching.IndexDataCacheFile):
    """Index and data of one function."""

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        yield (content := io.BytesIO())
        with super()._open_for_write(filepath) as file:
            os.chmod(file.name, 0o600)
            file.write(content.getvalue() + _digest(Path(filepath), content.getvalue()))

    def _load_index(self) -> dict[Any, str]:
        return super()._load_index() if _intact(Path(self._index_path)) else {}

    def _load_data(self, name: str) -> Any:
        if not _intact(Path(self._data_path(name))):
            raise OSError(name)  # as if it were missing
        return super()._load_data(name)


class _Cache(caching.FunctionCache):
    """Numba's cache of a function, in a folder of the user's own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        usual = self._impl.locator
        inside = usual.get_suitable_cache_subpath(inspect.getfile(function))
        place = output.cache_folder() / "machine_code" / inside
        for folder in (place.parent, place):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o700)
        self._cache_path = str(place)
        stamp = usual.get_source_stamp()
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)

    def save_overload(self, *compiled_code: Any) -> None:
        """Keep machine code, unless the disk is full."""
        with contextlib.suppress(OSError):
            super().save_overload(*compiled_code)


def _digest(path: Path, content: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + content).digest()


def _intact(path: Path) -> bool:
    content = path.read_bytes() if path.is_file() and output.own(path) else b""
    return content[-DIGEST:] == _digest(path, content[:-DIGEST])


def njit(*signature: str, cache: bool = False, **how: Any) -> Callable[..., Any]:
    """Decorator `numba.njit`; with ``cache``, machine code is kept in
    `output.cache_folder`.
    """

    def compiling(function: Callable[..., Any]) -> Any:
        made = numba.njit(**how)(function)
        if cache:
            with contextlib.suppress(OSError, RuntimeError):  # no place to write
                made._cache = _Cache(function)
        for one in signature:
            made.compile(one)
            made.disable_compile()
        return made

    return compiling
