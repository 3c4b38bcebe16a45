"""Progress display: bars on stderr of a terminal or below a notebook cell, otherwise
one line a minute on stderr.

A command opens a `bar`. Functions that it calls report by `each` and `stage`, or open
inner bars, which are shown if the command's bar is. Outside a command nothing is
printed.
"""

from __future__ import annotations

import contextlib
import html
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from tqdm import tqdm

LINE_SECONDS = 60.0  # seconds between two lines without a terminal
POLL_SECONDS = 0.25  # seconds between two updates
PLAIN = "{desc} [{elapsed}]{postfix}"  # without an amount of work
T = TypeVar("T")
_running: list[Bar] = []  # open bars, outermost first
_lock = threading.RLock()


class Bar:
    """Progress of one task.

    Attributes
    ----------
    what : str
        Name of the task.
    total : int or None
        Amount of work; None if unknown.
    done : int
        Amount done.
    at : str
        Current item.
    """

    def __init__(
        self, what: str, total: int | None, unit: str, count: Callable[[], int] | None
    ) -> None:
        self.what, self.total, self.unit, self.done, self.at = what, total, unit, 0, ""
        self._count, self._line, self._begun = count, None, time.monotonic()
        if sys.stderr.isatty():
            look: dict[str, Any] = {"smoothing": 0.02, "dynamic_ncols": True}
            look |= {
                "position": len(_running),
                "leave": total is not None and not _running,
            }
            form = None if total else PLAIN
            self._line = tqdm(
                desc=what, total=total, unit=unit, bar_format=form, **look
            )

    def __str__(self) -> str:
        """One line: task, progress, current item."""
        share = (
            f" {self.done / self.total:.0%} of {self.total} {self.unit}s"
            if self.total
            else ""
        )
        return f"{self.what}:{share}{' ' if self.at else ''}{self.at}".rstrip(":")

    def _repr_html_(self) -> str:
        """HTML bar with the terminal's text, for a notebook."""
        form, drawn = PLAIN, ""
        if self.total:
            form = (
                "{desc}: {percentage:.0f}% of {total_fmt}{unit}"
                " [{elapsed}<{remaining}]{postfix}"
            )
            drawn = f'<progress value="{self.done}" max="{self.total}"></progress> '
        look: dict[str, Any] = {
            "unit": f" {self.unit}s",
            "postfix": self.at,
            "bar_format": form,
        }
        elapsed = time.monotonic() - self._begun
        words = tqdm.format_meter(
            self.done, self.total, elapsed, prefix=self.what, **look
        )
        return f"<div>{drawn}{html.escape(words)}</div>"

    def draw(self) -> None:
        """Read the counter; on a terminal, show it."""
        if self._count is not None:
            self.done = self._count()
        if self._line is not None:
            self._line.set_postfix_str(self.at, refresh=False)
            self._line.update(self.done - self._line.n)
            self._line.refresh()

    def close(self) -> None:
        """Update for the last time."""
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
    """Context manager that shows the progress of a task.

    Parameters
    ----------
    what : str
        Name of the task.
    total : int, optional
        Amount of work, in ``unit``; without it, the elapsed time is shown.
    show : bool
        Whether to show the bar. An inner bar is shown if the outermost one is.
    count : callable, optional
        ``count()`` returns the amount done; without it, the caller sets ``done``.
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
    """Redraw all bars from a thread, so that they advance during long computations."""
    over, cell = threading.Event(), _cell()

    def draw() -> None:
        for each_bar in _running:
            each_bar.draw()
        if cell is not None:
            shown = "".join(each_bar._repr_html_() for each_bar in _running)
            cell.update(
                {"text/html": shown, "text/plain": "; ".join(map(str, _running))},
                raw=True,
            )

    def tick() -> None:
        started = line = time.monotonic()
        while not over.wait(POLL_SECONDS):
            with _lock:
                draw()
                now = time.monotonic()
                silent = cell is not None or sys.stderr.isatty()
                if not silent and now - line >= LINE_SECONDS:
                    line = now
                    minutes, seconds = divmod(round(now - started), 60)
                    where = "; ".join(map(str, _running))
                    print(
                        f"[{minutes}:{seconds:02d}] {where}",
                        file=sys.stderr,
                        flush=True,
                    )

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        over.set()
        ticker.join()
        with _lock:
            draw()


def _cell() -> Any:
    """Output below the running notebook cell, which `draw` replaces; None outside a
    notebook.

    Plain HTML instead of widgets: it needs no extension and is kept in the saved
    notebook.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display({"text/plain": ""}, raw=True, display_id=True)


def each(
    items: Iterable[T], what: str, name: Callable[[T], object] = str
) -> Iterator[T]:
    """Iterate over items and show the current one, if a command shows progress."""
    if not _running:
        yield from items
        return
    listed: Sequence[T] = list(items)
    if len(listed) == 1:
        stage(str(name(listed[0])))
        yield from listed
        return
    with bar(what, len(listed), "item") as shown:
        assert shown is not None  # inside another bar
        for k, item in enumerate(listed):
            shown.done, shown.at = k, str(name(item))
            yield item
        shown.done = len(listed)


def stage(text: str) -> None:
    """Show the current stage, if a command shows progress."""
    if _running:
        _running[-1].at = text


def say(line: str) -> None:
    """Print a line on stdout immediately, above the bars."""
    with _lock, tqdm.external_write_mode(file=sys.stdout):
        print(line, flush=True)
