"""A statement as a model: the statement of a file or a package, available to every
command.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp
import xarray as xr

from theory.call import scope, sweep
from theory.call.parameters import BaseParameters, Preset, Stepped, parameter
from theory.call.refusal import ParameterError, nearest
from theory.dynamics import prediction
from theory.dynamics.catalogue import called, catalogue
from theory.dynamics.flow import Flow
from theory.dynamics.onset import of_onset, until
from theory.equations.equation import Equation, Equations
from theory.statement.words.stated import WHOLE, Statement, scope_of
from theory.statement.words.tree import Random, Spectrum, require

TRAINING: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "eta": (0.1, "learning rate", {"above": 0}),
    "steps": (1000, "length of a run", {"low": 1}),
    "eval_every": (10, "steps between measurements", {"low": 1}),
    "batch_size": (0, "inputs per step, drawn anew; 0 for all inputs", {"low": 0}),
}


@functools.cache
def theory_of(stated: Statement) -> types.SimpleNamespace:
    """The names of a model's ``theory`` package, and its ``onset``."""
    from theory.statement import onset
    from theory.statement.derivation import remedies
    from theory.statement.randomness import minibatches, random_starts

    derived = functools.cache(functools.partial(remedies.derived, stated))
    kind = functools.partial(parameters, stated)
    random = any(isinstance(w.start, Random) for w in stated.weights)
    whole = (WHOLE,) * random
    # As it stands in configurations of students.
    digest = hashlib.sha256(stated.text.encode()).hexdigest()[:16]

    def flows() -> dict[str, Flow]:
        """The flow, at the sizes that the statement gives where sums have to be written
        out.
        """
        sizes = {s.name for s in stated.symbols if s.is_integer}
        made = derived()
        if sizes <= stated.values.keys():
            made = made.written(stated.values)
        return {stated.name: made.flow}

    def flow() -> Flow:
        """The flow of `flows`."""
        return flows()[stated.name]

    @until("t")
    @scope.guard(scope_of(stated, filled=whole, kind=kind))
    @sweep.over_fields
    def own_onset(
        p: Any, until: float | None = None, fluctuations: bool = False
    ) -> Any:
        return onset.onset(derived(), p, until, fluctuations)

    @until("t")
    @scope.guard(scope_of(stated, filled=(prediction.LINEAR, *whole), kind=kind))
    @sweep.over_fields
    def predict(
        p: Any,
        runs: xr.Dataset | None = None,
        *,
        until: float | None = None,
        seeds: int | None = None,
        fluctuations: bool = False,
    ) -> xr.Dataset:
        """Predict a training run: descent on all inputs by the students' optimiser, the
        same for every seed. Under Adam students may leave it where gradients vanish by
        symmetry, as their rounding is divided by itself. Weights that start at random:
        a curve per seed, from its own class means, or per drawn start.

        Parameters
        ----------
        p : Parameters
            Parameters of the training run.
        runs : Dataset, optional
            Students over ``(seed, t)``; the curve is evaluated at their times.
        until : float, optional
            Length of the curve without runs, in ``t = eta * steps`` (also ``t=``); by
            default that of ``p.steps``.
        seeds : int, optional
            Without runs, of weights that start at random: how many starts are drawn.
        fluctuations : bool
            Add to every variable ``x`` what batches and random weights do: ``x_bias``
            and ``x_sd``; see `theory.statement.randomness.minibatches.curves`.

        Returns
        -------
        Dataset
            Order parameters, loss and observables of the flow over ``t``, and over
            ``seed`` or ``draw`` if weights start at random.

        Raises
        ------
        ParameterError
            If the runs lack their steps or are of other parameters or another
            statement, a size has no value, the descent diverges, or the flow is a
            closure, which no student follows.
        """
        trained = scope.configuration(runs).get("statement", digest)
        require(trained == digest, f"runs: are of another statement than {stated.name}")
        made = onset.at_sizes(stated, p)
        if fluctuations:
            return minibatches.curves(made, p, runs, until)
        if random_starts.laws(made):
            usual = random_starts.times(made, p, random_starts.PILOTS)
            onset.within(made, p, min(float(usual.t_50.median()), usual.attrs["run"]))
            return random_starts.followed(made, p, runs, until, seeds)
        require(
            seeds is None,
            f"seeds = {seeds}: no weight starts at random; {random_starts.HOW}",
        )
        return prediction.descent(made.flow, p, runs, until)

    @until("t")
    @scope.guard(scope_of(stated, filled=whole, kind=kind))
    @sweep.over_fields
    def drawn(p: Any, seeds: int, until: float | None = None) -> xr.Dataset:
        made = onset.at_sizes(stated, p)
        times = random_starts.times(made, p, seeds, until=until)
        onset.within(made, p, min(float(times.t_50.median()), times.attrs["run"]))
        return times

    alike = of_onset(own_onset)

    def emergence_times(
        p: Any = None, *, seeds: int | None = None, beyond: bool = False, **fields: Any
    ) -> xr.Dataset:
        """Times at which the loss falls, the times among the numbers of `onset`; of
        weights that start at random these are medians and quantiles.

        Parameters
        ----------
        p : Parameters
        seeds : int, optional
            How many random starts to draw: then ``t_10``, ``t_50`` and ``t_90`` are
            over ``draw``, infinite where a run (``until=``) ends before, with the
            observables once ``t_90`` has passed.
        beyond : bool
            Also answer for students that the theory does not describe, with a warning.
        **fields
            As of `theory.dynamics.onset.of_onset`; ``fluctuations=True`` without seeds.

        Raises
        ------
        ParameterError
            If the theory does not describe these students, nothing emerges, or a field
            is unknown.
        """
        if seeds is None:
            return alike(p, beyond=beyond, **fields)
        return drawn(p, seeds=seeds, beyond=beyond, **fields)

    emergence_times.scopes = alike.scopes  # type: ignore[attr-defined]
    return types.SimpleNamespace(
        statement=stated,
        Parameters=parameters(stated),
        derived=derived,
        equations=called(lambda: derived().equations()),
        sections=called(lambda: derived().sections()),
        flow=called(flow),
        flows=called(flows),
        predict=predict,
        onset=own_onset,
        emergence_times=emergence_times,
    )


PRINTED = 300  # operations of a rate that is printed in a package's sections


def factored(x: sp.Expr) -> sp.Expr:
    """Logarithm of a number, written as a product where it is one."""
    return sp.log(sp.factor(sp.expand_power_exp(sp.expand(x))))


def package_theory(
    stated: Statement,
    contents: Mapping[str, Sequence[Any]] = types.MappingProxyType({}),
    numbers: Mapping[str, tuple[Callable[[Any], float], str]] = types.MappingProxyType(
        {}
    ),
) -> tuple[Any, ...]:
    """The names of the ``theory`` package of a statement to which further equations and
    numbers are added.

    Parameters
    ----------
    stated : Statement
    contents : mapping of str to sequence
        Further sections of equations, as for `theory.dynamics.catalogue.catalogue`.
    numbers : mapping of str to (callable, str)
        Further numbers of the onset by name: a function of parameters, left out where
        its guard (`theory.call.scope.guard`) refuses them, and a label.

    Returns
    -------
    tuple
        ``Parameters``, ``derived``, ``flow``, ``flows``, ``sections``, ``equations``,
        ``onset``, ``emergence_times`` and ``predict``. Names of equations begin with
        the statement's, so that systems of a family differ.
    """
    base = theory_of(stated)

    def renamed(e: Equation) -> Equation:
        name = f"{stated.name}_{e.name}"
        if e.name == "loss" and not base.derived().directions:
            loss = base.derived().flow.observables["loss"]
            e = dataclasses.replace(e, rhs=loss.replace(sp.log, factored))
        return dataclasses.replace(e, name=name)

    @called
    def sections() -> dict[str, list[Equation]]:
        """All equations, grouped as a write-up would; the loss in the order parameters.
        Rates that would fill a page are left out: they are in the flow.
        """
        derived = {}
        for title, part in base.sections().items():
            derived[f"{stated.title}: {title.lower()}"] = [
                renamed(e)
                for e in part
                if e.name == "loss" or e.rhs.count_ops() <= PRINTED
            ]
        return derived | catalogue(contents)[1]()

    @until("t")
    @scope.guard(scope_of(stated, kind=functools.partial(parameters, stated)))
    @sweep.over_fields
    def onset(p: Any, until: float | None = None, fluctuations: bool = False) -> Any:
        """Growth rates and emergence times at parameters ``p``, with what the package
        adds.
        """
        from theory.statement.onset import LONGEST

        values: dict[str, float] = {}
        labels: dict[str, str] = {}
        notes: list[str] = []
        for name, (value_at, label) in numbers.items():
            scopes = getattr(value_at, "scopes", {}).values()
            broken = [*itertools.chain.from_iterable(x.applies(p) for x in scopes)]
            if broken:
                notes.append(f"no {name}: {broken[0]}")
            else:
                values[name], labels[name] = value_at(p), label
        times = {name: "t" for name in values if name[0] in "Tt"}
        result = base.onset(p, until, fluctuations=fluctuations)
        last = max((values[name] for name in times), default=0)
        if until is None and result.numbers["run"] < last < LONGEST:
            result = base.onset(p, 2 * last, fluctuations=fluctuations)
        return dataclasses.replace(
            result,
            numbers=result.numbers | values,
            labels=result.labels | labels,
            equations=lambda: [*itertools.chain.from_iterable(sections().values())],
            times=result.times | times,
            notes=result.notes + notes,
        )

    @called
    def equations() -> Equations:
        """All equations by name."""
        all_equations = itertools.chain.from_iterable(sections().values())
        return Equations({e.name: e for e in all_equations})

    shared = (base.Parameters, base.derived, base.flow, base.flows)
    return *shared, sections, equations, onset, of_onset(onset), base.predict


@functools.cache
def parameters(stated: Statement) -> type[BaseParameters]:
    """Parameters of a statement: its sizes and numbers, and how a student is trained.

    Those that ``values`` does not give have none until they are set.

    Raises
    ------
    ParameterError
        If ``values`` names what there is not.
    """
    values, fields = dict(stated.values), {}
    sort_of_size = {sort.size: sort for sort in reversed(stated.sorts)}
    for s in stated.symbols:
        kind: type = int if s.is_integer else float
        doc = "size" if s.is_integer else "number"
        low, high = stated.bounds.get(s.name, (None, None))
        if s.is_integer:
            low, high = 1, None
        if s in sort_of_size:
            doc = f"number of elements of sort {sort_of_size[s].name}"
        bounds: dict[str, Any] = {}
        if low is not None:
            bounds["low"] = low
        if high is not None:
            bounds["high"] = high
        default = values.pop(s.name, None)
        value = parameter(default, doc, **bounds)
        fields[s.name] = (kind | None if default is None else kind, value)
    for g in (g for g in stated.gausses if isinstance(g.var, Spectrum)):
        for k, value in enumerate(values.pop(g.var.name, ()), 1):
            eigenvalue = parameter(float(value), "eigenvalue", above=0)
            fields[f"{g.var.name}_{k}"] = (float, eigenvalue)
    for name in (n for n in TRAINING if n not in fields):
        default, doc, bounds = TRAINING[name]
        kind = type(default)
        value = kind(values.pop(name, default))
        fields[name] = (kind, parameter(value, doc, **bounds))
    for name in values:
        suggestion = f"{nearest(name, fields)}there are {', '.join(fields)}"
        raise ParameterError(f"statement {stated.name}: values: {name}: {suggestion}")

    def __post_init__(self: Any) -> None:
        """Check single fields, then that sizes fit the statement."""
        BaseParameters.__post_init__(self)
        stated.fit(self.as_dict())

    namespace: dict[str, Any] = {
        "PRESETS": {"stated": Preset("The values of the statement.")},
        "__post_init__": __post_init__,
        "__doc__": f"Sizes and numbers of {stated.name}, and how a student is trained.",
        "__module__": __name__,
    }
    return dataclasses.make_dataclass(
        "Parameters",
        [(name, *field) for name, field in fields.items()],
        bases=(Stepped,),
        frozen=True,
        namespace=namespace,
    )
