"""Progress on stderr, the one place: a bar on a terminal, one line a minute anywhere else.

A command opens a `bar`; what it calls says where it is by `each` and `stage`, and opens bars of its
own, which are shown if the command's is. Without a command nothing is printed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tqdm import tqdm

LINE_SECONDS = 60.0  # between two lines where there is no terminal
POLL_SECONDS = 0.25  # between two looks at the counters
T = TypeVar("T")
_running: list[Bar] = []  # outermost first
_lock = threading.RLock()


class Bar:
    """How far one piece of work is.

    Attributes
    ----------
    what : str
        The work.
    total : int or None
        How much there is to do; None where nobody knows.
    done : int
        How much is done.
    at : str
        What is at hand.
    """

    def __init__(
        self, what: str, total: int | None, unit: str, count: Callable[[], int] | None
    ) -> None:
        self.what, self.total, self.unit, self.done, self.at = what, total, unit, 0, ""
        self._count, self._line = count, None
        if sys.stderr.isatty():
            self._line = tqdm(
                total=total,
                desc=what,
                unit=unit,
                smoothing=0.02,
                dynamic_ncols=True,
                leave=total is not None and not _running,
                position=len(_running),
                bar_format=None if total else "{desc} [{elapsed}]{postfix}",
            )

    def __str__(self) -> str:
        """One line: the work, how far it is, what is at hand."""
        share = f" {self.done / self.total:.0%} of {self.total} {self.unit}s" if self.total else ""
        return f"{self.what}:{share}{' ' if self.at else ''}{self.at}".rstrip(":")

    def draw(self) -> None:
        """Look at the counter; on a terminal, show it."""
        if self._count is not None:
            self.done = self._count()
        if self._line is not None:
            self._line.set_postfix_str(self.at, refresh=False)
            self._line.update(self.done - self._line.n)
            self._line.refresh()

    def close(self) -> None:
        """Look for the last time."""
        self.draw()
        if self._line is not None:
            self._line.close()


@contextlib.contextmanager
def bar(
    what: str,
    total: int | None = None,
    unit: str = "step",
    *,
    show: bool = True,
    count: Callable[[], int] | None = None,
) -> Iterator[Bar | None]:
    """Show how far a piece of work is, as long as it lasts.

    Parameters
    ----------
    what : str
        The work.
    total : int, optional
        How much there is to do, in ``unit``; without it, the time that passed is shown.
    show : bool
        Whether to show it. Within another bar, that one decides.
    count : callable, optional
        ``count()`` says how much is done; without it, who has the bar sets ``done``.
    """
    if not (_running or show):
        yield None
        return
    with _lock:
        made = Bar(what, total, unit, count)
        _running.append(made)
    try:
        with _ticking() if len(_running) == 1 else contextlib.nullcontext():
            yield made
    finally:
        with _lock:
            _running.remove(made)
            made.close()


@contextlib.contextmanager
def _ticking() -> Iterator[None]:
    """Draw all bars from a thread, so that they move while the work does not look up."""
    over = threading.Event()

    def tick() -> None:
        started = line = time.monotonic()
        while not over.wait(POLL_SECONDS):
            with _lock:
                for each_bar in _running:
                    each_bar.draw()
                now = time.monotonic()
                if not sys.stderr.isatty() and now - line >= LINE_SECONDS:
                    line = now
                    minutes, seconds = divmod(round(now - started), 60)
                    where = "; ".join(map(str, _running))
                    print(f"[{minutes}:{seconds:02d}] {where}", file=sys.stderr, flush=True)

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        over.set()
        ticker.join()


def each(items: Iterable[T], what: str, name: Callable[[T], object] = str) -> Iterator[T]:
    """Pass items through, showing which is at hand, where a command shows progress."""
    if not _running:
        yield from items
        return
    listed: Sequence[T] = list(items)
    if len(listed) == 1:
        stage(str(name(listed[0])))
        yield from listed
        return
    with bar(what, len(listed), "item") as shown:
        assert shown is not None  # there is one around it
        for k, item in enumerate(listed):
            shown.done, shown.at = k, str(name(item))
            yield item
        shown.done = len(listed)


def stage(text: str) -> None:
    """Say what is at hand, where a command shows progress."""
    if _running:
        _running[-1].at = text


def say(line: str) -> None:
    """Print a line on stdout at once, above the bars."""
    with _lock, tqdm.external_write_mode(file=sys.stdout):
        print(line, flush=True)
