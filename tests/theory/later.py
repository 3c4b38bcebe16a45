"""Equations derived when a test first reads one, not at collection, which happens in
every worker.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any


class Later(Mapping):
    """A mapping that is made when it is first read."""

    def __init__(self, make: Callable[[], Mapping]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> Mapping:
        return self._make()

    def __getitem__(self, key: Any) -> Any:
        return self._made[key]

    def __iter__(self) -> Iterator:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)
