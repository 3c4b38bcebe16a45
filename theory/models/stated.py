"""A statement as a model: of a file or a package, available to every command."""

from __future__ import annotations

import dataclasses
import functools
import runpy
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from theory.call.refusal import ParameterError
from theory.models.model import COMMANDS, Model, of_all
from theory.statement.model import theory_of
from theory.statement.words.stated import UNNAMED, Statement, unread
from theory.statement.words.tree import require


@dataclass(frozen=True)
class StatedModel(Model):
    """A model that follows from a statement."""

    statement: Any = None

    @property
    def systems(self) -> list[Model]:
        """None: it is one system."""
        return []

    def _paths(self, wing: str) -> list[str]:
        """The subpackage for all statements."""
        return [f"{wing}.statement"]

    @property
    def checks(self) -> tuple[str, ...]:
        """The ``verify`` commands that statements answer to."""
        return tuple(c for c in COMMANDS if self.has("verify", c))

    def wing(self, wing: str, module: str | None = None) -> Any:
        """Contents of a wing for this statement: for ``theory``, everything that is
        derived; elsewhere a module, or the result of its function ``of(statement)``.

        Raises
        ------
        ParameterError
            If statements have no such module.
        """
        if wing == "theory" and module in (None, "onset"):
            return theory_of(self.statement)
        return of_all(self.statement, wing, module)


def model(stated: Statement, name: str = "") -> StatedModel:
    """A statement as a `Model`, which an entry point may offer."""
    return StatedModel(name or stated.name, stated.title, stated.name, statement=stated)


@functools.cache
def of_file(name: str) -> StatedModel:
    """The model that a file states: ``FILE.py``, or ``FILE.py:NAME`` if it states
    several.

    The file is run, as any script.

    Raises
    ------
    ParameterError
        In one line with file and line, if it cannot be read, states nothing, or states
        what no statement can be.
    """
    path, _, chosen = name.partition(".py")
    path, chosen = f"{path}.py", chosen.removeprefix(":")
    require(Path(path).is_file(), f"model: no file {path}")
    given = run_file(path)
    stated = {k: v for k, v in given.items() if isinstance(v, Statement)}
    require(
        stated,
        f"{path}: states nothing: no statement(...) is bound to a name; of a torch"
        f" module: python -m simulate.discover {path}",
    )
    unread(list(stated.values()), given)
    several = ", ".join(f"{path}:{k}" for k in stated)
    key = chosen or next(iter(stated))
    require(chosen or len(stated) == 1, f"{path}: states several models: {several}")
    require(
        key in stated, f"{path}:{chosen}: there is no such statement, but {several}"
    )
    statement = stated[key]  # without a name of its own it has that of its variable
    return model(
        dataclasses.replace(statement, name=key)
        if statement.name == UNNAMED
        else statement
    )


def run_file(path: str) -> dict[str, Any]:
    """Names that a file binds; an error in it is one line."""
    folder = str(Path(path).resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a stranger's file may do anything
        lines = [
            f.lineno
            for f in traceback.extract_tb(error.__traceback__)
            if f.filename == path
        ]
        line = (
            getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
        )
        number = line or (lines[-1] if lines else 1)
        said = traceback.format_exception_only(error)[-1]
        said = str(error) if isinstance(error, ParameterError) else said
        raise ParameterError(
            f"{path}, line {number}: {said.partition(chr(10))[0]}"
        ) from error
    finally:
        sys.path.remove(folder)
