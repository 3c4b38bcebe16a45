"""Functions whose parentheses are easily forgotten: ``flow.solve`` says what to type instead."""

import functools
import types
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

from theory.allowed import ParameterError

F = TypeVar("F", bound=Callable[..., Any])


class NotCalled(ParameterError, AttributeError):
    """A result was asked of a function that has not been called."""


class Called(functools.partial):
    """A function that has none of its result's attributes and items, and says so."""

    def _refuse(self, use: str) -> NoReturn:
        name = self.func.__name__
        raise NotCalled(f"{name}{use}: {name} is a function; call it first: {name}(){use}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._refuse(f".{name}")

    def __getitem__(self, key: Any) -> Any:
        return self._refuse(f"[{key!r}]")

    def __iter__(self) -> Any:
        return self._refuse("")


def called(function: F) -> F:
    """Decorator: let a function of no required arguments say where it must be called."""
    return cast(F, functools.update_wrapper(Called(function), function))


def cache(function: F) -> F:
    """Decorator: `functools.cache`, and `called`."""
    return called(cast(F, functools.update_wrapper(functools.cache(function), function)))


class CalledModule(types.ModuleType):
    """A package that is called as its function of the same name."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the function returns."""
        return vars(self)[self.__name__.rpartition(".")[2]](*arguments, **named)
