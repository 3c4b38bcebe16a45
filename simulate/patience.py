"""Signals wait for the end of the step, or of the reading or writing, under way."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class Patience:
    """SIGINT and SIGTERM wait for the end of the step under way, so that a checkpoint can be
    written; a second SIGINT does not, unless it must.

    Parameters
    ----------
    endless : bool
        A second SIGINT waits, too: for steps that are short and must not be torn.

    Attributes
    ----------
    torn : bool
        A step was left in the middle: its weights and its number do not belong together.
    """

    def __init__(self, endless: bool = False) -> None:
        self.endless, self.torn, self.stepping = endless, False, False
        self.pending: int | None = None
        self.before: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def __enter__(self) -> Patience:
        """Take the place of the handlers there are; only the main thread hears of signals."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    self.before[number] = handler
                    signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        """Give the handlers their place back, unless one of them has given it to another."""
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
        """What must be done whole."""
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
def whole() -> Iterator[None]:
    """Work of a library that signals wait for: raised inside it, they may leave its locks taken,
    and the next to ask for them waits for ever.
    """
    with Patience(endless=True) as patience, patience.step():
        yield
