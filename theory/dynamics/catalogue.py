"""A model's ``flows()``, ``sections()`` and ``equations()``, made from a table of
contents; where the parentheses are forgotten, ``flow.solve`` says what to type instead.
"""

import functools
import itertools
import types
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn, TypeVar, cast

from theory.call.refusal import ParameterError
from theory.dynamics.flow import Flow
from theory.equations.equation import Equation, Equations

Source = ModuleType | Callable[[], Flow | Mapping[str, Equation]] | Equation
Sections = Callable[[], dict[str, list[Equation]]]


def catalogue(
    contents: Mapping[str, Sequence[Source]], *flows_: Callable[[], Flow]
) -> tuple[Callable[[], dict[str, Flow]], Sections, Callable[[], dict[str, Equation]]]:
    """Make the functions ``flows``, ``sections`` and ``equations`` of a model.

    Parameters
    ----------
    contents : mapping of str to sequence
        Per section of a write-up: modules with ``equations()``, functions that return a
        `Flow` or equations by name, or single equations. Nothing is derived until one
        of the returned functions is called.
    *flows_ : callable
        Functions that return the model's flows.
    """

    @called
    def flows() -> dict[str, Flow]:
        """The model's ODE systems by name."""
        derived = [make() for make in flows_]
        return {f.name: f for f in derived}

    @called
    def sections() -> dict[str, list[Equation]]:
        """All equations, grouped as a write-up would."""
        grouped = {}
        for name, sources in contents.items():
            grouped[name] = [*itertools.chain(*map(_of, sources))]
        return grouped

    return flows, sections, _by_name(sections)


def family(
    systems: Sequence[ModuleType],
) -> tuple[Sections, Callable[[], dict[str, Equation]]]:
    """Make the functions ``sections`` and ``equations`` of a family from those of its
    systems.
    """

    @called
    def sections() -> dict[str, list[Equation]]:
        """Equations of all systems, grouped as a write-up would."""
        grouped: dict[str, list[Equation]] = {}
        for system in systems:
            grouped |= system.sections()
        return grouped

    return sections, _by_name(sections)


def _by_name(sections: Sections) -> Callable[[], Equations]:
    @called
    def equations() -> Equations:
        """All equations by name; one or several by their number in the paper."""
        grouped = itertools.chain(*sections().values())
        return Equations({e.name: e for e in grouped})

    return equations


def _of(source: Source) -> list[Equation]:
    if isinstance(source, Equation):
        return [source]
    origin = source if isinstance(source, ModuleType) else source()
    equations = origin if isinstance(origin, Mapping) else origin.equations()
    return list(equations.values())


F = TypeVar("F", bound=Callable[..., Any])


class NotCalled(ParameterError, AttributeError):
    """A result was asked of a function that has not been called."""


class Called(functools.partial):
    """A function that has none of its result's attributes and items, and says so."""

    def _refuse(self, use: str) -> NoReturn:
        name = self.func.__name__
        raise NotCalled(
            f"{name}{use}: {name} is a function; call it first: {name}(){use}"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._refuse(f".{name}")

    def __getitem__(self, key: Any) -> Any:
        return self._refuse(f"[{key!r}]")

    def __iter__(self) -> Any:
        return self._refuse("")


def called(function: F) -> F:
    """Decorator: let a function of no required arguments
    say where it must be called.
    """
    return cast(F, functools.update_wrapper(Called(function), function))


def cache(function: F) -> F:
    """Decorator: `functools.cache`, and `called`."""
    return called(
        cast(F, functools.update_wrapper(functools.cache(function), function))
    )


class CalledModule(types.ModuleType):
    """A package that is called as its function of the same name."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the function returns."""
        return vars(self)[self.__name__.rpartition(".")[2]](*arguments, **named)
