"""Input and output of commands: atomic files, tables, JSON, reading text; the user's
cache folder, and digests of source files without comments and docstrings (of single
definitions: `verify.checks.digests`).
"""

import ast
import contextlib
import errno
import functools
import hashlib
import itertools
import json
import math
import os
import shutil
import tempfile
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from theory.call.refusal import ParameterError, error_summary, shown

WIDTH = 100  # characters per line without a terminal
NARROWEST = 10  # smallest width of a text column, in characters


def path(name: Any) -> Path:
    """Where a file or folder is."""
    if not isinstance(name, str | Path) or "\0" in str(name):
        raise ParameterError(
            f"path = {shown(name)}: must be the name of a file or folder"
        )
    return Path(name)


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Write to a temporary neighbour of ``path`` that takes its name only when it is
    complete.

    A link stays, and its target is replaced. Devices and pipes are written directly; a
    pipe that nobody reads is an error.
    """
    if str(path.absolute()).startswith(("/dev/", "/proc/")) or (
        path.exists() and not path.is_file()
    ):
        with contextlib.ExitStack() as held:
            if path.is_fifo():  # the reader sees no end before this closes
                end = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                held.callback(os.close, end)
            yield path
        return
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix
    )
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def writable(text: str, file: bool = True) -> str:
    """Check, before any work, that a result can be written to a path (an argparse
    type); ``-`` and no path are stdout and a name to be chosen.

    Raises
    ------
    OSError
        Naming the obstacle.
    """
    path = Path(os.path.realpath(text))
    if text in ("", "-") or (
        path.exists() and not path.is_file() and not path.is_dir()
    ):
        return text
    folder = path.parent if path.is_file() else path
    while not folder.exists():
        folder = folder.parent
    try:
        if file and path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=folder) as test:
            test.write(b"1")
    except OSError as error:
        error.filename = str(folder)
        raise
    return text


def write_text(path: Path | None, text: str, *, stream: Any = None) -> None:
    """Write text atomically to a file and print its path; without a path, write to
    stdout.
    """
    if path is None:
        print(text.removesuffix("\n"))
        return
    with atomic(path) as temporary:
        temporary.write_text(
            text if text.endswith("\n") else text + "\n", encoding="utf-8"
        )
    print(path, file=stream)


def read_text(flag: str, path: Path, most: int = 2**28) -> str:
    """Text of a regular file of at most ``most`` bytes. Devices and pipes are rejected,
    as they may be endless.

    Raises
    ------
    ParameterError
        If it is not a regular file of UTF-8 text of at most that size.
    """
    if path.exists() and not path.is_file():
        raise ParameterError(f"{flag} {path}: must be a regular file")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ParameterError(f"{flag} {path}: must have at most {most} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ParameterError(f"{flag} {path}: must be a text file in UTF-8") from None


@contextlib.contextmanager
def intact(path: Path) -> Iterator[None]:
    """Context manager for reading a file whose content may be anything.

    Raises
    ------
    ParameterError
        In one line, for whatever goes wrong meanwhile.
    """
    try:
        yield
    except (ParameterError, OSError, MemoryError):
        raise
    except (
        Exception
    ) as error:  # a missing key, a list for a number, nested too deeply, ...
        raise ParameterError(
            f"{path}: damaged ({error_summary(error)}); restore it, as by git checkout"
        ) from None


def to_json(value: Any) -> str:
    """JSON text; NumPy numbers become Python numbers,
    and NaN and infinity become null.
    """

    def plain(v: Any) -> Any:
        if hasattr(v, "tolist"):
            v = v.tolist()
        if isinstance(v, Mapping):
            return {str(k): plain(x) for k, x in v.items()}
        if isinstance(v, (list, tuple)):
            return [plain(x) for x in v]
        if isinstance(v, float) and not math.isfinite(v):
            return None
        return v

    return json.dumps(plain(value), indent=2)


def width() -> int:
    """Characters per line: the terminal's; without one, COLUMNS, or 100."""
    return max(shutil.get_terminal_size((WIDTH, 24)).columns, 2 * NARROWEST)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, wide: bool = True
) -> str:
    """Plain text table with aligned columns; unless ``wide``, it fits the terminal.

    Text columns are wrapped. Columns after the first two that still do not fit are
    dropped and named below the table.
    """
    cells = [[*map(str, row)] for row in [header, *rows]]
    columns = list(range(len(header)))
    natural, least = [], []
    for i in columns:
        column = [row[i] for row in cells]
        natural.append(max(map(len, column)))
        words = itertools.chain.from_iterable(map(str.split, column))
        longest_word = max(map(len, words), default=0)
        least.append(min(natural[i], max(NARROWEST, longest_word)))
    room = 10**6 if wide else width()
    while len(columns) > 2 and sum(least[i] + 2 for i in columns) - 2 > room:
        columns.pop()
    widths = {i: natural[i] for i in columns}
    while sum(widths.values()) + 2 * (len(columns) - 1) > room:
        widest = max(columns, key=lambda i: (widths[i] > least[i], widths[i]))
        if widths[widest] <= least[widest]:
            break
        widths[widest] -= 1
    lines = ["  ".join("-" * widths[i] for i in columns)]
    for k, row in enumerate(cells):
        parts = [wrapped(row[i], widths[i]) for i in columns]
        block = []
        for line in itertools.zip_longest(*parts, fillvalue=""):
            padded = [c.ljust(widths[i]) for c, i in zip(line, columns, strict=True)]
            block.append("  ".join(padded).rstrip())
        lines = [*lines, *block] if k else [*block, *lines]
    if len(columns) < len(header):
        lines.append(f"not shown: {', '.join(header[len(columns) :])} (--wide)")
    return "\n".join(lines)


def wrapped(text: str, room: int) -> list[str]:
    """Wrap text to lines, keeping its indentation."""
    if len(text) <= room:
        return [text]
    indent = " " * (len(text) - len(text.lstrip()))
    return textwrap.wrap(
        text,
        room,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (ast.ClassDef, *FUNCTIONS)


def digest(files: Iterable[Path]) -> str:
    """Digest of Python files, in the given order: sixteen hexadecimal digits."""
    return hashed(_plain(file.read_text(encoding="utf-8")) for file in files)


def hashed(texts: Iterable[str]) -> str:
    """Digest of texts, in the given order."""
    sha = hashlib.sha256()
    for text in texts:
        sha.update(text.encode())
    return sha.hexdigest()[:16]


@functools.cache
def _plain(text: str) -> str:
    return ast.unparse(undocumented(text))


def undocumented(text: str) -> ast.Module:
    """Code of a file without docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Module, *DEFINITIONS))
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def cache_folder() -> Path:
    """``$SOLVABLE_TRANSFORMERS_CACHE``, or ``solvable-transformers`` in the user's
    cache folder; made if it is missing. What is in it may be run: a folder that others
    own or can write to is not used, which a warning says.

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


def own(place: Path) -> bool:
    """Whether a file or folder is the user's own, and nobody else's to write to."""
    state = place.stat()
    return os.name == "nt" or (
        state.st_uid == os.geteuid() and not state.st_mode & 0o022
    )


def _private(place: Path) -> bool:
    """Whether a folder, made if it is missing, is the user's own; if not, a warning is
    given.
    """
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if own(place):
        return True
    advice = "make it your own and chmod 700 it, or choose another"
    warnings.warn(
        f"{place}: no cache, as others own it or can write to it; {advice}",
        stacklevel=3,
    )
    return False
