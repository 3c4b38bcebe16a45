"""Old names answer with the new ones, for one version."""

from collections.abc import Callable, Mapping
from typing import Any

from theory.parameters import ParameterError


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a module: an old name raises a `ParameterError` that
    gives the new call.

    Parameters
    ----------
    module : str
        Name of the module.
    names : mapping of str to str
        New call, in words, by old name.
    """

    def __getattr__(name: str) -> Any:
        if name in names:
            # Not an AttributeError, whose message ``from MODULE import NAME`` would drop.
            raise ParameterError(f"{module}.{name}: is called {names[name]} now")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__
