"""Memory: how much is available, and a one-line error, before allocation, if an
estimate exceeds it.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from theory.call.refusal import ParameterError

NEGLIGIBLE_BYTES = 2**26  # estimates below 64 MiB are not checked
TRIED = 1024  # factor by which a parameter is lowered to find the most effective one
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def _number(path: str) -> float:
    """Number in a kernel file; infinite if there is none."""
    try:
        return float(Path(path).read_text())
    except (OSError, ValueError):  # cgroups without a limit contain "max"
        return float("inf")


def _fields(path: str) -> dict[str, float]:
    """Table of names and numbers in a kernel file."""
    try:
        lines = [
            line.replace(":", " ").split()
            for line in Path(path).read_text().splitlines()
        ]
        return {words[0]: float(words[1]) for words in lines if len(words) > 1}
    except (OSError, ValueError):
        return {}


def available() -> float:
    """Bytes that this process can still allocate: the smallest of free memory,
    control-group limit and address-space limit.
    """
    limits = [1024 * _fields("/proc/meminfo").get("MemAvailable", float("inf"))]
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        group = Path("/sys/fs/cgroup")
        stat = _fields(str(group / Path(used).with_name("memory.stat")))
        taken = _number(str(group / used)) - stat.get("inactive_file", 0)
        most = _number(str(group / limit))
        limits.append(
            most - taken if most < float("inf") and taken < float("inf") else most
        )
    with contextlib.suppress(ImportError):  # not available on every system
        import resource

        pages = _number_of_pages()
        for kind, now in (
            (resource.RLIMIT_AS, pages[0]),
            (resource.RLIMIT_DATA, pages[1]),
        ):
            soft, _ = resource.getrlimit(kind)
            if soft != resource.RLIM_INFINITY:
                limits.append(soft - now)
    if min(limits) == float("inf"):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return max(min(limits), 0.0)


def exceeds(size: float) -> bool:
    """Whether so many bytes are neither negligible nor available."""
    return size > NEGLIGIBLE_BYTES and size > available()


def _number_of_pages() -> tuple[int, int]:
    """Current address space and data size of this process, in bytes."""
    try:
        words = Path("/proc/self/statm").read_text().split()
        size = os.sysconf("SC_PAGE_SIZE")
        return int(words[0]) * size, int(words[5]) * size
    except (OSError, ValueError, IndexError):
        return 0, 0


def amount(size: float) -> str:
    """Number of bytes as readable text."""
    unit = 0
    while size >= 1024 and unit + 1 < len(UNITS):
        size, unit = size / 1024, unit + 1
    return f"{size:.4g} {UNITS[unit]}"


def require(
    needed: Callable[[Any], float],
    p: Any,
    what: str,
    *,
    times: int = 1,
    there: float | None = None,
) -> None:
    """Raise an error if the estimated memory exceeds what is available, before anything
    is allocated.

    Parameters
    ----------
    needed : callable
        Function of Parameters that estimates bytes from array shapes; monotone in every
        size.
    p : Parameters
        The requested parameters.
    what : str
        What needs the memory, for the message.
    times : int
        How many such objects exist at a time.
    there : float, optional
        Available bytes; `available` by default.

    Raises
    ------
    ParameterError
        Naming the parameter whose reduction saves most, the bytes needed and the bytes
        available.
    """
    size = times * needed(p)
    if size <= NEGLIGIBLE_BYTES:
        return
    there = available() if there is None else there
    if size <= there:
        return
    name, value, direction = _heaviest(needed, p)
    many = f" ({times} at a time)" if times > 1 else ""
    where, how = (
        (f"{name} = {value}: ", f"; take {name} {direction}") if name else ("", "")
    )
    raise ParameterError(
        f"{where}{what} needs about {amount(size)} of memory{many}, there are"
        f" {amount(there)}{how}"
    )


def _heaviest(needed: Callable[[Any], float], p: Any) -> tuple[str, Any, str]:
    """Parameter to change, its value and the direction of the change: the one that
    saves most among those above their default, otherwise among all.
    """
    now, found = needed(p), []
    for name, value in p.as_dict().items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        default: Any = p.__dataclass_fields__[name].default
        plain = isinstance(default, int | float)
        changes = [("smaller", _lowered(p, name, value), plain and value <= default)]
        if name == "eval_every":
            changes.append(("larger", value * TRIED, plain and value >= default))
        for direction, changed, usual in changes:
            with contextlib.suppress(ParameterError):  # excluded by another parameter
                if changed is not None:
                    size = needed(p.replace(**{name: changed}))
                    found.append((usual, size, (name, value, direction)))
    less = [x for x in found if x[1] < 0.9 * now]
    return min(less, key=lambda x: x[:2], default=(True, 0.0, ("", None, "smaller")))[2]


def _lowered(p: Any, name: str, value: Any) -> Any:
    """A value divided by `TRIED`, within its allowed range; None if it cannot be
    lowered.
    """
    allowed = p._allowed(name)
    low, step = allowed.low, allowed.multiple_of or 1
    if isinstance(value, float):
        return value / TRIED
    lower = max(value // TRIED // step * step, int(low) if low is not None else step)
    return lower if lower < value else None
