"""What commands write: whole files or none, tables, JSON; and the text they read."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from theory.parameters import ParameterError


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Write to a temporary neighbour of ``path`` that takes its name only when it is complete.

    What may not be replaced (a link, a device, a pipe) is written directly.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        yield path
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
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


def write_text(path: Path | None, text: str, *, stream: Any = None) -> None:
    """Write text whole to a file, whose path is printed, or to stdout when there is no path."""
    if path is None:
        print(text.removesuffix("\n"))
        return
    with atomic(path) as temporary:
        temporary.write_text(text if text.endswith("\n") else text + "\n")
    print(path, file=stream)


def read_text(flag: str, path: Path, most: int = 2**28) -> str:
    """Text of a regular file of at most ``most`` bytes; a device or a pipe may have no end.

    Raises
    ------
    ParameterError
        If it is none.
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


def to_json(value: Any) -> str:
    """JSON for machines: NumPy numbers become plain, what is not finite becomes null."""

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


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Plain text table with aligned columns."""
    widths = [max(len(str(r[i])) for r in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join(str(c).ljust(w) for c, w in zip(r, widths, strict=True)).rstrip()
        for r in [header, *rows]
    ]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(lines)
