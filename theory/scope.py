"""Scope: which students a theory describes. One guard, asked by every number, curve, prediction and
comparison.

A theory states its limits as data (`Scope`). A function decorated by `guard` refuses
parameters, runs or a realisation outside of them in one line; with ``beyond=True`` it answers all
the same, warns, and the result says which assumption is broken.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import inspect
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xarray as xr

from theory import sweep
from theory.parameters import BaseParameters, ParameterError, shown


class BeyondScope(UserWarning):
    """A theory was asked to answer for students that it does not describe."""


# Broken assumptions found so far where the caller insists on an answer; None where nobody does.
_insisted: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar(
    "insisted", default=None
)


@dataclass(frozen=True)
class Limit:
    """One field of the parameters and what a theory allows there.

    Attributes
    ----------
    field : str
        Name of the field.
    words : str
        What is allowed, for people.
    holds : callable
        ``holds(p, runs)``: whether the theory describes them in this respect; ``runs`` may be None.
    value : callable
        ``value(p, runs)``: what stands there instead, for people.
    reads : tuple of str
        Further fields that `holds` looks at.
    """

    field: str
    words: str
    holds: Callable[[Any, xr.Dataset | None], bool]
    value: Callable[[Any, xr.Dataset | None], Any]
    reads: tuple[str, ...] = ()


def only(field: str, *values: Any, words: str = "") -> Limit:
    """A field that must have one of some values."""
    said = words or " or ".join("none" if v is None else str(v) for v in values)
    return Limit(
        field,
        said,
        lambda p, runs: getattr(p, field) in values,
        lambda p, runs: repr(getattr(p, field)),
    )


FULL_BATCH = Limit(
    "batch_size",
    "none or n_train (full batch)",
    lambda p, runs: p.batch_size in (None, p.n_train),
    lambda p, runs: p.batch_size,
    ("n_train",),
)


@dataclass(frozen=True)
class Scope:
    """Which students a theory describes.

    Attributes
    ----------
    theory : str
        What it is, for people: "the flow (15)".
    describes : str
        Of which training: "full-batch gradient descent".
    limits : tuple of Limit
        What must hold.
    free : tuple of str
        Fields of a run that neither enter the theory nor matter to it, within its accuracy.
    enters : tuple of str
        Fields that enter the theory otherwise than through ``p.values()``.
    remedy : str
        What works instead, for people; empty where there is nothing general.
    """

    theory: str
    describes: str
    limits: tuple[Limit, ...] = ()
    free: tuple[str, ...] = ()
    enters: tuple[str, ...] = ()
    remedy: str = ""

    @property
    def reads(self) -> set[str]:
        """Fields that limits look at."""
        return {name for limit in self.limits for name in (limit.field, *limit.reads)}

    def applies(self, p: Any, runs: xr.Dataset | None = None, given: Any = None) -> list[str]:
        """What the theory does not describe of these students, a line each; empty where it applies.

        Parameters
        ----------
        p : Parameters
            Of the students.
        runs : Dataset, optional
            The students themselves.
        given : object, optional
            A realisation (teachers, training sets, initial weights) with ``belongs(p, runs)``.

        Raises
        ------
        ParameterError
            If parameters, runs and realisation are not of the same students.
        """
        fields = _fields(p) if isinstance(p, BaseParameters) else set()
        if not fields or self.reads - fields:
            raise ParameterError(f"p = {shown(p)}: must be the Parameters of this model")
        if not isinstance(runs, xr.Dataset | None):
            raise ParameterError(f"runs = {shown(runs)}: must be a Dataset of students")
        if given is not None:
            if not hasattr(given, "belongs"):
                raise ParameterError(f"given = {shown(given)}: must be a realisation of students")
            given.belongs(p, runs)
        end = f"; {self.remedy}" if self.remedy else ""
        return [
            f"{limit.field} = {limit.value(p, runs)}: must be {limit.words} for {self.theory}, "
            f"which describes {self.describes}{end}"
            for limit in self.limits
            if not limit.holds(p, runs)
        ]

    def require(self, p: Any, runs: xr.Dataset | None = None, given: Any = None) -> None:
        """Refuse students that the theory does not describe, unless the caller insists.

        Raises
        ------
        ParameterError
            In one line that names the field.
        """
        refuse(self.applies(p, runs, given))


def refuse(lines: Sequence[str]) -> None:
    """Refuse what a theory does not describe, or warn of it where the caller insists.

    Parameters
    ----------
    lines : sequence of str
        As `Scope.applies` gives them.

    Raises
    ------
    ParameterError
        With the first.
    """
    known = _insisted.get()
    if lines and known is None:
        raise ParameterError(lines[0])
    for line in lines:
        if line not in known:  # type: ignore[operator]
            known.append(line)  # type: ignore[union-attr]
            warnings.warn(f"beyond its scope: {line}", BeyondScope, stacklevel=5)


def guard(scope: Scope | Mapping[str, Scope]) -> Callable[[Callable], Callable]:
    """Ask a scope before a function answers for its first argument, and for ``runs`` and ``given``
    where it has them.

    The function gains a keyword ``beyond``, and the attribute ``scopes``. It may take arrays of
    fields by keyword; mappings of numbers are not asked, as they name no training.

    Parameters
    ----------
    scope : Scope, or mapping of str to Scope
        Of the theory; by the function's argument ``level`` where it has several.
    """
    scopes = {"": scope} if isinstance(scope, Scope) else dict(scope)

    def decorate(function: Callable) -> Callable:
        signature = inspect.signature(function)
        usual = signature.parameters["level"].default if "level" in signature.parameters else ""

        def ask(p: BaseParameters, arguments: tuple, named: Mapping[str, Any]) -> None:
            asked: dict[str, Any] = {}
            with contextlib.suppress(TypeError):  # which the function will raise itself
                asked = dict(signature.bind_partial(p, *arguments, **named).arguments)
            level = asked.get("level", usual) if len(scopes) > 1 else ""
            own = scopes.get(level) if isinstance(level, str) else None
            if own is not None:  # an unknown level: the function refuses it
                swept = {k: v for k, v in named.items() if k in own.reads and k in _fields(p)}
                for q in sweep.Grid(p, swept).points if swept else (p,):
                    own.require(q, asked.get("runs"), asked.get("given"))

        @functools.wraps(function)
        def call(p: Any, *arguments: Any, beyond: bool = False, **named: Any) -> Any:
            if not isinstance(beyond, bool):
                raise ParameterError(f"beyond = {shown(beyond)}: must be true or false")
            with insisting(beyond):
                if isinstance(p, BaseParameters):
                    ask(p, arguments, named)
                return marked(function(p, *arguments, **named))

        parameters = [*signature.parameters.values()]
        at = len(parameters) - (parameters[-1].kind is inspect.Parameter.VAR_KEYWORD)
        keyword = inspect.Parameter("beyond", inspect.Parameter.KEYWORD_ONLY, default=False)
        call.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*parameters[:at], keyword, *parameters[at:]]
        )
        call.scopes = scopes  # type: ignore[attr-defined]
        return call

    return decorate


def _fields(p: BaseParameters) -> set[str]:
    return {f.name for f in dataclasses.fields(p)}


@contextlib.contextmanager
def insisting(beyond: bool = True) -> Iterator[None]:
    """Within this block theories answer beyond their scope, too, with a warning (where asked for).

    A block inside another one belongs to it.
    """
    if not beyond or _insisted.get() is not None:
        yield
        return
    token = _insisted.set([])
    try:
        yield
    finally:
        _insisted.reset(token)


def insist() -> None:
    """From here on theories answer beyond their scope, with a warning: what ``--beyond`` means."""
    _insisted.set([])


def broken() -> list[str]:
    """Assumptions that answers of this block, or command, do without."""
    return list(_insisted.get() or [])


def marked(result: Any) -> Any:
    """A result that says which assumptions are broken: datasets by attributes, an onset by notes;
    numbers and arrays have no place for it.
    """
    lines = broken()
    if not lines:
        return result
    if isinstance(result, xr.Dataset):
        return result.assign_attrs(status="beyond its scope", assumptions="; ".join(lines))
    notes = getattr(result, "notes", None)
    if isinstance(notes, list) and dataclasses.is_dataclass(result):
        said = [f"beyond its scope: {line}" for line in lines]
        return dataclasses.replace(result, notes=[*notes, *said])  # type: ignore[type-var]
    return result


def applies(scopes: Mapping[str, Scope]) -> Callable[..., list[str]]:
    """Make the function ``applies`` of a model from the scopes of its theories, the headline
    first.
    """

    def applies(
        p: Any, runs: xr.Dataset | None = None, given: Any = None, level: str | None = None
    ) -> list[str]:
        """What a theory of this model does not describe of these students, a line each.

        Parameters
        ----------
        p : Parameters
            Of the students.
        runs : Dataset, optional
            The students themselves.
        given : object, optional
            A realisation, as `predict` takes it.
        level : str, optional
            Which theory; the first by default.

        Returns
        -------
        list of str
            Empty where the theory applies.

        Raises
        ------
        ParameterError
            For an unknown level, or if parameters, runs and realisation do not belong together.
        """
        if level is not None and (not isinstance(level, str) or level not in scopes):
            raise ParameterError(f"level = {level!r}: must be one of {', '.join(scopes)}")
        return scopes[level or next(iter(scopes))].applies(p, runs, given)

    return applies


def configuration(runs: xr.Dataset | None) -> dict[str, Any]:
    """What identifies the runs of a dataset, as their store has it; empty where nothing does."""
    found = {} if runs is None else json.loads(runs.attrs.get("configuration", "{}"))
    return found if isinstance(found, dict) else {}
