"""Request (arguments of a ``verify`` command) and Report (its results)."""

import argparse
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any

from theory import Equation, Model, ParameterError
from theory.call import scope
from theory.models import command_line, registry
from theory.runtime import cli, output, progress
from verify.checks import check, check_table
from verify.checks.check import Check, Sides

Table = Mapping[str, Equation]


@dataclass(frozen=True)
class Request:
    """Arguments passed to a check module by a command line, a figure or a test.

    Attributes
    ----------
    model : Model
        Model to be checked.
    preset, assignments : str or None, tuple of str
        Values of ``--preset`` and ``--set``.
    seeds : str or None
        Value of ``--seeds``.
    until : float or None
        Run length in the model's time unit, from ``--until`` or ``--alpha``.
    length_flag : str
        Which of these it is from.
    runs : Path or None
        Ensemble to use instead of training one.
    device : str or None
        Device of the training.
    progress : bool
        Whether to show progress.
    renew : bool
        Train the shipped ensembles again first.
    full : bool
        Whether to run also what takes more than a minute. Command lines ask for it by
        ``--full``.
    """

    model: Model
    preset: str | None = None
    assignments: tuple[str, ...] = ()
    seeds: str | None = None
    until: float | None = None
    runs: Path | None = None
    device: str | None = None
    progress: bool = False
    renew: bool = False
    full: bool = True
    length_flag: str = "--until"

    @property
    def training(self) -> dict[str, Any]:
        """Options common to every ``train``."""
        return {"device": self.device, "progress": self.progress}

    @property
    def given(self) -> list[str]:
        """Given flags that specify a training."""
        named = {
            "--set": self.assignments,
            "--preset": self.preset,
            "--seeds": self.seeds,
            self.length_flag: self.until,
            "--device": self.device,
        }
        return [flag for flag, value in named.items() if value]

    def parameters(self, base: Any = None) -> Any:
        """Requested parameters (``base`` if no preset is given)."""
        kind = self.model.wing("theory").Parameters
        return command_line.preset(kind, self.preset, base).parse(
            list(self.assignments)
        )

    def of_its_own(self) -> None:
        """Reject flags that choose students, for a command whose settings are fixed.

        Raises
        ------
        ParameterError
            Naming the flag.
        """
        chosen = [flag for flag in self.given if flag != "--device"]
        chosen += ["--runs"] if self.runs is not None else []
        if chosen:
            raise ParameterError(
                f"{chosen[0]}: not for {self.model.name}, whose settings and seeds are"
                " this command's own"
            )

    def left_out(self, what: str) -> list[str]:
        """Line that names what is run only with ``--full``; empty with that flag."""
        return [] if self.full else ["", f"not run without --full: {what}"]

    def seed_list(self, default: str, least: int = 2) -> list[int]:
        """Requested seeds.

        Raises
        ------
        ParameterError
            If there are too few for a comparison.
        """
        numbers = cli.seeds(self.seeds, default)
        if len(numbers) < least:
            raise ParameterError(
                f"--seeds {self.seeds}: a comparison needs at least {least} seeds"
            )
        return numbers


@dataclass(frozen=True)
class Report:
    """Results of a command.

    Attributes
    ----------
    checks : sequence of Check
        Checks with their verdicts.
    notes : sequence of str
        Lines of text.
    tables : mapping of str to (header, rows)
        Tables by title, printed between the result and the checks.
    numbers : mapping
        Dictionary for JSON.
    draw : callable, optional
        Function that makes the figure.
    """

    checks: Sequence[Check]
    notes: Sequence[str] = ()
    tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[str]]]] = field(
        default_factory=dict
    )
    numbers: Mapping[str, Any] = field(default_factory=dict)
    draw: Callable[[], Any] | None = None

    def text(self, *, wide: bool = False) -> str:
        """Text: the result in a few lines, then tables, checks and notes; fitted to the
        terminal unless ``wide``.
        """
        tables = [
            f"{title}\n{output.table(header, rows, wide=wide)}\n"
            for title, (header, rows) in self.tables.items()
        ]
        rows = check_table.rows(self.checks, wide=wide)
        return "\n".join(
            [*check_table.result(self.checks), "", *tables, *rows, *self.notes]
        )

    def __str__(self) -> str:
        """As a terminal shows it."""
        return self.text()

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            **self.numbers,
            "checks": [c.as_dict() for c in self.checks],
            "notes": list(self.notes),
            "failed": check.failed(self.checks),
        }

    def printed(self, args: argparse.Namespace) -> int:
        """Print it as a command was asked to; gives the exit code."""
        machine = {"model": args.model.name, **self.as_dict()}
        print(output.to_json(machine) if args.json else self.text(wide=args.wide))
        return self.exit_code

    @property
    def exit_code(self) -> int:
        """1 if a check failed, otherwise 0."""
        return int(check.failed(self.checks))


def merged(reports: Sequence[Report]) -> Report:
    """Merge several reports; the first figure is kept."""
    checks: list[Check] = []
    notes: list[str] = []
    tables: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    for report in reports:
        checks += report.checks
        notes += report.notes
        tables |= report.tables
        numbers |= report.numbers
    draw = next((report.draw for report in reports if report.draw), None)
    return Report(checks, notes, tables, numbers, draw)


def collect(request: Request, command: str) -> Report:
    """Merged reports of all modules of a model that implement a ``verify`` command.

    Raises
    ------
    ParameterError
        If the model does not implement the command.
    """
    registry.require_command(request.model, command)
    reports = []
    systems = request.model.offering(command)
    for model in progress.each(systems, "systems", lambda m: m.name):
        module = model.wing("verify", command)
        if request.renew and not getattr(module, "TRAINS", False):
            raise ParameterError(
                f"--train: not for {model.name}, which comes without trained students"
            )
        # Rows say how far off the theory is: no warning.
        with warnings.catch_warnings(action="ignore", category=scope.FarOff):
            reports.append(model.command(command)(replace(request, model=model)))
    beyond = [f"beyond its scope: {line}" for line in scope.broken()]
    return merged([*reports, Report([], beyond)])


def gathered(
    groups: Iterable[Callable[..., Iterable[Check]]], *arguments: Any
) -> list[Check]:
    """Run several groups of checks one after the other; the progress display shows the
    current group.

    Parameters
    ----------
    groups : iterable of callable
        Functions that return checks.
    *arguments
        Arguments of each function.
    """

    def title(group: Callable[..., Iterable[Check]]) -> str:
        return group.__name__.replace("_", " ")

    checks: list[Check] = []
    for group in progress.each(groups, "checks", title):
        checks += group(*arguments)
    return checks


def reporting(
    *groups: Callable[..., Iterable[Check]],
    equations: Callable[[], Table] | None = None,
) -> Callable[[Request], Report]:
    """Make the function ``report`` of a module whose settings are fixed: all rows of
    its groups.

    Parameters
    ----------
    *groups : callable
        Functions that return checks, of the table of Equations if one is given.
    equations : callable, optional
        The model's Equations by name.
    """

    def report(request: Request) -> Report:
        """All checks of this system."""
        from simulate.training.pool import one_thread

        request.of_its_own()
        with one_thread():
            return Report(gathered(groups, *([equations()] if equations else [])))

    return report


def with_device(request: Request, checks: list[Check]) -> Report:
    """Checks of a model's derivations and, if a device is given or a GPU exists, of its
    students' gradients on that device.
    """
    from simulate.training import device

    where = device.find(request.device)
    if request.device or where.type != "cpu":
        from verify.checks import students_on_device  # imports every student

        family = request.model.name.partition(".")[0]
        checks = [*checks, *students_on_device.checks(family, where)]
    return Report(checks)


def sided(
    tolerance: float, reason: str
) -> Callable[[Callable[[Sides], Iterable[Check] | None]], Callable[..., list[Check]]]:
    """Decorator: a group of checks from a function that adds to `Sides`, and may return
    or yield rows that come after those.
    """

    def decorate(
        add: Callable[[Sides], Iterable[Check] | None],
    ) -> Callable[..., list[Check]]:
        @wraps(add)
        def group(table: Table) -> list[Check]:
            sides = Sides(table, tolerance, reason)
            further = list(add(sides) or ())  # a generator adds only when it is run
            return [*sides.checks(), *further]

        return group

    return decorate


Groups = Sequence[Callable[[Table], list[Check]]]


def groups_of(groups: Groups | Mapping[str, Groups], name: str) -> Groups:
    """The groups of one model, where they are listed by system of a family."""
    return groups[name.rpartition(".")[2]] if isinstance(groups, Mapping) else groups


def derivations(
    groups: Groups | Mapping[str, Groups], equations: Callable[[], dict[str, Equation]]
) -> tuple[Callable[..., list[Check]], Callable[[Request], Report]]:
    """Make the functions ``checks`` and ``report`` of a model's ``gradients`` module.

    Parameters
    ----------
    groups : sequence of callable, or mapping of str to these
        Groups of checks, each a function of the table of Equations; or these by system
        of a family. A fault in any equation that ``tests/golden/covers.json`` lists for
        a group is detected (`tests/verify/test_faults.py`).
    equations : callable
        The model's Equations by name.
    """

    def checks(table: Table | None = None, system: str = "") -> list[Check]:
        """All checks, for the derived equations or a given table."""
        from simulate.training.pool import one_thread

        eq = table or equations()
        rows: list[Check] = []
        with one_thread():
            for group in groups_of(groups, system):
                rows += group(eq)
        return rows

    def report(request: Request) -> Report:
        """Report of all checks, including the students' gradients on another device."""
        return with_device(request, checks(system=request.model.name))

    return checks, report
