"""Progress, the one place: bars on a terminal's stderr or below a notebook's cell, one line a
minute on stderr anywhere else.

A command opens a `bar`; what it calls says where it is by `each` and `stage`, and opens bars of its
own, which are shown if the command's is. Without a command nothing is printed.
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
        self._count, self._line, self._begun = count, None, time.monotonic()
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

    def _repr_html_(self) -> str:
        """A bar, and the words that a terminal's has, for a notebook."""
        form, drawn = "{desc} [{elapsed}]{postfix}", ""
        if self.total:
            form = "{desc}: {percentage:.0f}% of {total_fmt}{unit} [{elapsed}<{remaining}]{postfix}"
            drawn = f'<progress value="{self.done}" max="{self.total}"></progress> '
        words = tqdm.format_meter(
            self.done,
            self.total,
            time.monotonic() - self._begun,
            prefix=self.what,
            unit=f" {self.unit}s",
            postfix=self.at,
            bar_format=form,
        )
        return f"<div>{drawn}{html.escape(words)}</div>"

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
    over, cell = threading.Event(), _cell()

    def draw() -> None:
        for each_bar in _running:
            each_bar.draw()
        if cell is not None:
            shown = "".join(each_bar._repr_html_() for each_bar in _running)
            cell.update({"text/html": shown, "text/plain": "; ".join(map(str, _running))}, raw=True)

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
                    print(f"[{minutes}:{seconds:02d}] {where}", file=sys.stderr, flush=True)

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
    """Output below the notebook cell that runs, which `draw` replaces; None outside of a notebook.

    Plain HTML, not widgets: it needs no extension, and stays in the saved notebook and its page.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display({"text/plain": ""}, raw=True, display_id=True)


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
