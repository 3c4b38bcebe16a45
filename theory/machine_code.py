"""Functions compiled by Numba, whose machine code is kept between runs in the user's cache folder.

Numba's files are pickles. Each ends in a digest of its name and content; a file that is not as it
was written is not read, and its function is compiled again.
"""

import contextlib
import hashlib
import inspect
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core import caching

from theory import compiled

DIGEST = hashlib.sha256().digest_size


class _Files(caching.IndexDataCacheFile):
    """Index and data of one function."""

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        yield (content := io.BytesIO())
        with super()._open_for_write(filepath) as file:
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
        place = compiled.folder() / "machine_code" / inside
        place.mkdir(parents=True, exist_ok=True)
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
    content = path.read_bytes() if path.is_file() else b""
    return content[-DIGEST:] == _digest(path, content[:-DIGEST])


def njit(*signature: str, cache: bool = False, **how: Any) -> Callable[..., Any]:
    """Decorator `numba.njit`; with ``cache``, machine code is kept in `compiled.folder`."""

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
