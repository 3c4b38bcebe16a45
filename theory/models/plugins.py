"""Models of other installed packages: found by their entry points; what cannot be used
is reported and left out.
"""

import contextlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from theory.call.refusal import ParameterError
from theory.models.model import Model, leave_out, together

GROUP = (  # entry point group of packages that provide a model
    "solvable_transformers.models"
)


@contextlib.contextmanager
def skip_on_error(model: Model) -> Iterator[None]:
    """Context manager for one of many models: if a foreign model fails, it is reported
    and the others continue.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if not model.package:
            raise
        leave_out(f"model {model.name}", error)


def elsewhere(own: Iterable[Model]) -> Iterator[Model]:
    """Models provided by installed packages, one or several per entry point. Unusable
    ones are reported and skipped, such as those that take the name of one of our
    ``own``.
    """
    taken: set[str] = set()
    for m in own:
        taken |= {m.name, m.paper}
    for entry in sorted(_entries(), key=lambda entry: (entry.name, entry.value)):
        try:
            with contextlib.redirect_stdout(sys.stderr):
                offered = entry.load()
                several = (
                    [offered]
                    if isinstance(offered, Model) or _stated(offered)
                    else offered
                )
                models = [_model(m, entry) for m in several]
                _usable(models, taken)
        except (Exception, SystemExit) as error:  # a foreign package may raise anything
            leave_out(f"model {entry.name} ({entry.value})", error)
            continue
        taken |= {m.name for m in models} | {m.paper for m in models}
        yield from together(models)


def _stated(offered: Any) -> bool:
    """Whether the object is a statement; none can exist before `theory.statement` is
    imported.
    """
    language = sys.modules.get("theory.statement.words.stated")
    return language is not None and isinstance(offered, language.Statement)


def _model(offered: Any, entry: importlib.metadata.EntryPoint) -> Any:
    """A model, or a statement wrapped as one, under the name of its entry point."""
    if not _stated(offered):
        return offered
    from theory.models import stated  # loads the engine

    return replace(stated.model(offered, entry.name), package=entry.module)


def _entries() -> Iterable[importlib.metadata.EntryPoint]:
    """Entry points of all packages whose metadata can be read."""
    try:
        return importlib.metadata.entry_points(group=GROUP)
    except Exception:  # one unreadable list would otherwise hide all
        entries: list[importlib.metadata.EntryPoint] = []
        for package in importlib.metadata.distributions():
            try:
                entries += package.entry_points.select(group=GROUP)
            except Exception as error:
                leave_out(f"entry points of {package.metadata['Name']}", error)
        return entries


def _usable(models: list[Model], taken: set[str]) -> None:
    """Raise an error unless the commands can use a model of another package.

    Raises
    ------
    ParameterError
        Naming the problem.
    """
    if not models or not all(isinstance(m, Model) and m.package for m in models):
        raise ParameterError("not a Model with a package, or several")
    names = [m.name for m in models]
    for m in models:
        if not all(isinstance(x, str) for x in (m.name, m.title, m.paper, m.package)):
            raise ParameterError(f"Model({m.name!r}, ...): every field must be a word")
        if not re.fullmatch(r"[a-z_]\w*(\.[a-z_]\w*)?", m.name):
            raise ParameterError(f"name {m.name!r}: must be one word, or FAMILY.SYSTEM")
        if m.family and m.family not in names:
            raise ParameterError(f"{m.name}: offers no family {m.family}")
        if m.name in taken or m.paper in taken or names.count(m.name) > 1:
            word = m.paper if m.paper in taken else m.name
            raise ParameterError(f"{m.name}: the name {word} is taken")
        # For a system this would import its whole family, which is slow.
        if not m.family and importlib.util.find_spec(m.path("theory")) is None:
            raise ParameterError(f"{m.name}: has no {m.path('theory')}")
