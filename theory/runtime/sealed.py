"""Files that end in a digest of their content, and are written whole or not at all."""

import hashlib
from pathlib import Path

from theory.call.refusal import ParameterError
from theory.runtime import memory, output

KIND = "solvable-transformers run"  # attribute of all runs
MARK = b"sha256:"
TRAILER = len(MARK) + 32


def seal(path: Path, content: bytes) -> None:
    """Write bytes followed by their digest, atomically. HDF5 readers ignore what
    follows the data.
    """
    with output.atomic(path) as temporary:
        temporary.write_bytes(content + MARK + hashlib.sha256(content).digest())


def _sizable(path: Path) -> None:
    """Raise an error if a path is not a regular file or does not fit into memory twice
    (as bytes and as arrays).

    Raises
    ------
    ParameterError
        Naming the file.
    """
    if not path.is_file():
        raise ParameterError(
            f"{path}: {'is not a regular file' if path.exists() else 'no such file'}"
        )
    size = path.stat().st_size
    if memory.exceeds(2 * size):
        raise ParameterError(
            f"{path}: reading it takes twice its {memory.amount(size)}, there are "
            f"{memory.amount(memory.available())}"
        )


def unseal(path: Path) -> bytes:
    """Read bytes written by `seal` and check the digest.

    Raises
    ------
    ParameterError
        If the file is missing, too large, has no digest, or differs in any bit from
        what was written.
    """
    _sizable(path)
    sealed = path.read_bytes()
    content = sealed[:-TRAILER]
    mark = sealed[-TRAILER:-32]
    digest = sealed[-32:]
    if mark != MARK:
        raise ParameterError(f"{path}: not a result of this toolkit, or cut short")
    if hashlib.sha256(content).digest() != digest:
        raise ParameterError(f"{path}: damaged (its checksum does not match)")
    return content
