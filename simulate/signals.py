"""Defer signals until the current training step, or the current reading or writing of a file, is
complete.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class DeferSignals:
    """Defer SIGINT and SIGTERM to the end of the current step, so that a checkpoint can be written.
    A second SIGINT takes effect immediately unless ``endless``.

    Parameters
    ----------
    endless : bool
        Also defer a second SIGINT; for short steps that must not be interrupted.

    Attributes
    ----------
    torn : bool
        A step was interrupted: the weights do not correspond to the step number.
    """

    def __init__(self, endless: bool = False) -> None:
        self.endless, self.torn, self.stepping = endless, False, False
        self.pending: int | None = None
        self.before: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def __enter__(self) -> DeferSignals:
        """Install handlers in place of the current ones; only the main thread receives signals."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    self.before[number] = handler
                    signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous handlers, unless other handlers were installed in between."""
        for number, handler in self.before.items():
            if signal.getsignal(number) == self._hear:
                signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        waits = self.endless or self.pending is None or number == signal.SIGTERM
        if self.stepping and waits:
            self.pending = number
        else:
            self.before[number](number, frame)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Context manager for one step that must not be interrupted."""
        self.stepping = self.torn = True
        try:
            yield
            self.torn = False
        finally:
            self.stepping = False
            if self.pending is not None:
                number, self.pending = self.pending, None
                self.before[number](number, None)


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Context manager that defers signals during netCDF calls. An exception raised inside the
    library could leave its locks taken, and the next call would wait forever.
    """
    with DeferSignals(endless=True) as patience, patience.step():
        yield
