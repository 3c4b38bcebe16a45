"""Scope: which students a theory describes. One guard checks it for every number,
curve, prediction and comparison.

A theory states its limits of validity as data (`Scope`). A function decorated by
`guard` raises a one-line error for parameters, runs or a realisation outside these
limits. With ``beyond=True`` it computes the result all the same, warns, and records the
broken assumption in the result.
"""

import contextlib
import contextvars
import dataclasses
import functools
import inspect
import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import xarray as xr

from theory.call import sweep
from theory.call.arguments import kind_of, misfit, place
from theory.call.parameters import BaseParameters, Stepped
from theory.call.refusal import ParameterError, shown


class BeyondScope(UserWarning):
    """Warning: a theory was applied to students that it does not describe."""


class FarOff(BeyondScope):
    """Warning: a curve is far from the students that it was made for."""


# Steps of descent until something emerges, below which it is no flow: the Euler map of
# the flow of state tracking reaches A = 1/2 by 0.8 to 1.4 steps late, whatever the
# rate.
FEWEST = 50
# Broken assumptions found so far if the caller passed ``beyond=True``; otherwise None.
_insisted: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar(
    "insisted", default=None
)


@dataclass(frozen=True)
class Limit:
    """One field of the parameters, and the values that a theory allows.

    Attributes
    ----------
    field : str
        Name of the field.
    words : str
        Allowed values, in words.
    holds : callable
        ``holds(p, runs)``: whether the limit is satisfied; ``runs`` may be None.
    value : callable
        ``value(p, runs)``: the actual value, in words; that of the field by default.
    reads : tuple of str
        Further fields that `holds` depends on.
    pointwise : bool
        Whether every point of a sweep is checked; else the functions swept check all at
        once.
    values : tuple
        Some allowed values, which a refusal may propose; else the choices of the field
        are tried.
    """

    field: str
    words: str
    holds: Callable[[Any, xr.Dataset | None], bool]
    value: Callable[[Any, xr.Dataset | None], Any] | None = None
    reads: tuple[str, ...] = ()
    pointwise: bool = True
    values: tuple[Any, ...] = ()

    def broken(self, p: Any, runs: xr.Dataset | None) -> str:
        """The actual value, and the allowed ones."""
        value = self.value(p, runs) if self.value else shown(getattr(p, self.field))
        return f"{self.field} = {value}: must be {self.words}"


def only(field: str, *values: Any, words: str = "") -> Limit:
    """Limit: a field must have one of the given values."""
    said = words or " or ".join("none" if v is None else str(v) for v in values)
    return Limit(
        field, said, lambda p, runs: getattr(p, field) in values, values=values
    )


FULL_BATCH = Limit(
    "batch_size",
    "none or n_train (full batch)",
    lambda p, runs: p.batch_size in (None, p.n_train),
    reads=("n_train",),
)


@dataclass(frozen=True)
class Scope:
    """Which students a theory describes.

    Attributes
    ----------
    theory : str
        Name of the theory, e.g. "the flow (15)".
    describes : str
        Which training it describes, e.g. "full-batch gradient descent".
    limits : tuple of Limit
        Conditions on parameters and runs.
    free : tuple of str
        Fields that do not enter the theory and do not affect the students beyond its
        accuracy.
    enters : tuple of str
        Fields that enter the theory other than through ``p.values()``.
    remedy : str
        What to use instead, in words; may be empty.
    kind : callable, optional
        Gives the only Parameters that it is for; otherwise any that have the fields
        are.
    module : str
        Where it is stated, from which follows whose Parameters a message asks for.
    """

    theory: str
    describes: str
    limits: tuple[Limit, ...] = ()
    free: tuple[str, ...] = ()
    enters: tuple[str, ...] = ()
    remedy: str = ""
    kind: Callable[[], type[BaseParameters]] | None = None
    module: str = ""

    def __post_init__(self) -> None:
        """Remember the module that states it (its caller, beyond the generated
        ``__init__``).
        """
        if not self.module:
            object.__setattr__(
                self, "module", sys._getframe(2).f_globals.get("__name__", "")
            )

    @property
    def parameters(self) -> type[BaseParameters] | None:
        """Parameters that it is for; None if that is not known."""
        return self.kind() if self.kind else kind_of(self.module)

    @property
    def reads(self) -> set[str]:
        """Fields that the limits depend on."""
        fields = {limit.field for limit in self.limits}
        return fields.union(*(limit.reads for limit in self.limits))

    @property
    def swept(self) -> set[str]:
        """Those of which every point of a sweep is checked."""
        return replace(self, limits=tuple(x for x in self.limits if x.pointwise)).reads

    def applies(
        self, p: Any, runs: xr.Dataset | None = None, given: Any = None
    ) -> list[str]:
        """Broken assumptions for these students, one line each; empty if the theory
        applies.

        Parameters
        ----------
        p : Parameters
            Parameters of the students.
        runs : Dataset, optional
            The students themselves.
        given : object, optional
            A realisation (teachers, training sets, initial weights) with ``belongs(p,
            runs)``.

        Raises
        ------
        ParameterError
            If parameters, runs and realisation belong to different students.
        """
        fields = p._fields() if isinstance(p, BaseParameters) else []
        lacks = {*self.reads, *self.enters}.difference(fields)
        if not fields or lacks or (self.kind and not isinstance(p, self.parameters)):  # type: ignore[arg-type]
            raise misfit("p", p, self.parameters)
        if not isinstance(runs, xr.Dataset | None):
            raise ParameterError(f"runs = {shown(runs)}: must be a Dataset of students")
        if given is not None:
            if not hasattr(given, "belongs"):
                raise ParameterError(
                    f"given = {shown(given)}: must be a realisation of students"
                )
            given.belongs(p, runs)
        end = f"; {self.remedy}" if self.remedy else ""
        return [
            f"{limit.broken(p, runs)} for {self.theory}, which describes"
            f" {self.describes}{end}"
            for limit in self.limits
            if not limit.holds(p, runs)
        ]

    def require(
        self, p: Any, runs: xr.Dataset | None = None, given: Any = None
    ) -> None:
        """Raise an error for students that the theory does not describe, unless the
        caller passed ``beyond=True``.

        Raises
        ------
        ParameterError
            Naming the field.
        """
        lines = self.applies(p, runs, given)
        refuse(lines, self.proposal(p) if lines and runs is None else "")

    def proposal(self, p: BaseParameters) -> str:
        """Call that makes parameters within the limits: fields changed to values that
        the limits name or that presets have, or a preset. Empty if there is none.
        """
        for changes in self._within(p, {}):
            said = ", ".join(
                f"{name}={value!r}"
                for name, value in changes.items()
                if value != getattr(p, name)
            )
            return f"; try p.replace({said})"
        for name in p.PRESETS:
            if all(limit.holds(p._preset(name), None) for limit in self.limits):
                return f"; try {place(type(p))}.{type(p).__name__}.{name}()"
        return ""

    def _within(
        self, p: BaseParameters, changes: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Changes that satisfy all limits, each field once, to a value of its limit or
        a preset.
        """
        broken = [limit for limit in self.limits if not limit.holds(p, None)]
        fields = [limit.field for limit in broken]
        if not broken:
            yield changes
        elif not changes.keys() & {*fields}:
            presets = [p._preset(name) for name in p.PRESETS]
            candidates = []
            for limit in broken:
                choices = limit.values or p._allowed(limit.field).choices
                in_presets = (getattr(q, limit.field) for q in presets)
                candidates.append(choices or [*in_presets])
            for values in itertools.product(*candidates):
                more = dict(zip(fields, values, strict=True))
                with contextlib.suppress(ParameterError):
                    yield from self._within(p.replace(**more), changes | more)


def refuse(lines: Sequence[str], proposal: str = "") -> None:
    """Raise an error with the first of broken assumptions (lines of `Scope.applies`)
    and what to type instead, or warn of each if the caller passed ``beyond=True``.
    """
    known = _insisted.get()
    if lines and known is None:
        raise ParameterError(lines[0] + proposal)
    for line in lines:
        if line not in known:  # type: ignore[operator]
            known.append(line)  # type: ignore[union-attr]
            warnings.warn(f"beyond its scope: {line}", BeyondScope, stacklevel=5)


def guard(scope: Scope | Mapping[str, Scope]) -> Callable[[Callable], Callable]:
    """Decorator: check a scope before a function runs, for its first argument and for
    ``runs`` and ``given`` if it has them.

    The function gains a keyword ``beyond`` and an attribute ``scopes``. Arrays of
    fields passed by keyword are checked at every point, mappings of numbers, which
    specify no training, are not.

    Parameters
    ----------
    scope : Scope, or mapping of str to Scope
        Scope of the theory, or several by the value of the function's argument
        ``level``.
    """
    scopes = {"": scope} if isinstance(scope, Scope) else dict(scope)

    def decorate(function: Callable) -> Callable:
        signature = inspect.signature(function)
        first = next(iter(signature.parameters))
        usual = (
            signature.parameters["level"].default
            if "level" in signature.parameters
            else ""
        )

        def ask(p: BaseParameters, arguments: tuple, named: Mapping[str, Any]) -> None:
            asked: dict[str, Any] = {}
            with contextlib.suppress(TypeError):  # the function itself raises it
                own = {k: v for k, v in named.items() if k in signature.parameters}
                asked = dict(signature.bind_partial(p, *arguments, **own).arguments)
            level = asked.get("level", usual) if len(scopes) > 1 else ""
            theory_scope = scopes.get(level) if isinstance(level, str) else None
            if theory_scope is not None:  # the function rejects an unknown level
                checked = theory_scope.swept.intersection(p._fields())
                swept = {k: v for k, v in named.items() if k in checked}
                for q in sweep.spanned(p, swept).points if swept else (p,):
                    theory_scope.require(q, asked.get("runs"), asked.get("given"))

        @functools.wraps(function)
        def call(
            p: Any = None, *arguments: Any, beyond: bool = False, **named: Any
        ) -> Any:
            if p is None:
                raise misfit(
                    first, named or None, next(iter(scopes.values())).parameters
                )
            with allow_beyond(beyond):
                if isinstance(p, BaseParameters):
                    ask(p, arguments, named)
                elif isinstance(p, type | xr.Dataset) or not callable(
                    getattr(p, "values", None)
                ):
                    if any(
                        isinstance(a, BaseParameters)
                        for a in (*arguments, *named.values())
                    ):
                        call = f"{function.__name__}({first}, ...)"
                        raise ParameterError(
                            f"{call}: Parameters come first, before {shown(p)}"
                        )
                    raise misfit(first, p, next(iter(scopes.values())).parameters)
                result = marked(function(p, *arguments, **named))
                return p.timed(result) if isinstance(p, Stepped) else result

        parameters = [*signature.parameters.values()]
        place = len(parameters) - (parameters[-1].kind is inspect.Parameter.VAR_KEYWORD)
        keyword = inspect.Parameter(
            "beyond", inspect.Parameter.KEYWORD_ONLY, default=False
        )
        call.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*parameters[:place], keyword, *parameters[place:]]
        )
        call.scopes = scopes  # type: ignore[attr-defined]
        return call

    return decorate


def pointwise(scope: Scope) -> Callable[[Callable], Callable]:
    """Decorator: `guard`, for a function of one point that takes arrays of fields
    (`sweep.over_fields`).
    """
    return lambda function: guard(scope)(sweep.over_fields(function))


@contextlib.contextmanager
def allow_beyond(beyond: bool = True) -> Iterator[None]:
    """Context manager: inside the block, theories are applied beyond their scope with a
    warning (if ``beyond``).

    An inner block shares the record of the outer one.

    Raises
    ------
    ParameterError
        If ``beyond`` is not true or false.
    """
    if not isinstance(beyond, bool):
        raise ParameterError(f"beyond = {shown(beyond)}: must be true or false")
    if not beyond or _insisted.get() is not None:
        yield
        return
    token = _insisted.set([])
    try:
        yield
    finally:
        _insisted.reset(token)


def insist() -> None:
    """From now on apply theories beyond their scope, with a warning: the effect of
    ``--beyond``.
    """
    _insisted.set([])


def broken() -> list[str]:
    """Assumptions broken so far within this block or command."""
    return list(_insisted.get() or [])


def marked(result: Any) -> Any:
    """Record broken assumptions in a result: in the attributes of a dataset, in the
    notes of an Onset. Numbers and arrays are returned unchanged.
    """
    lines = broken()
    if not lines:
        return result
    if isinstance(result, xr.Dataset):
        return result.assign_attrs(
            status="beyond its scope", assumptions="; ".join(lines)
        )
    notes = getattr(result, "notes", None)
    if isinstance(notes, list) and dataclasses.is_dataclass(result):
        said = [f"beyond its scope: {line}" for line in lines]
        return dataclasses.replace(result, notes=[*notes, *said])  # type: ignore[type-var]
    return result


def applies(scopes: Mapping[str, Scope]) -> Callable[..., list[str]]:
    """Make a model's function ``applies`` from the scopes of its theories, headline
    first.
    """

    def applies(
        p: Any,
        runs: xr.Dataset | None = None,
        given: Any = None,
        level: str | None = None,
    ) -> list[str]:
        """Assumptions of a theory of this model that these students break, one line
        each.

        Parameters
        ----------
        p : Parameters
            Parameters of the students.
        runs : Dataset, optional
            The students themselves.
        given : object, optional
            Realisation, as for `predict`.
        level : str, optional
            Which theory; the first by default.

        Returns
        -------
        list of str
            Empty if the theory applies.

        Raises
        ------
        ParameterError
            For an unknown level, or if parameters, runs and realisation belong to
            different students.
        """
        if level is not None and (not isinstance(level, str) or level not in scopes):
            raise ParameterError(
                f"level = {level!r}: must be one of {', '.join(scopes)}"
            )
        return scopes[level or next(iter(scopes))].applies(p, runs, given)

    return applies


def configuration(runs: xr.Dataset | None) -> dict[str, Any]:
    """Stored configuration that identifies the runs of a dataset; empty if there is
    none.
    """
    stored = {} if runs is None else json.loads(runs.attrs.get("configuration", "{}"))
    return stored if isinstance(stored, dict) else {}
