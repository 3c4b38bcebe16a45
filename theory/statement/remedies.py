"""What would make a refused statement derivable: one or two changes at a time, each tried."""

from __future__ import annotations

import dataclasses
import itertools
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from theory.parameters import ParameterError
from theory.statement.derived import derive
from theory.statement.stated import Statement, statement
from theory.statement.tree import Node, walk

SMALL = 3  # a size that is given as a number
MOST = 2  # changes that are named
SECONDS = 20.0  # of CPU time for all tries together; one that runs is not stopped
PATIENCE = 0.04  # for one try, in units of the most branches


def refused(stated: Statement, error: ParameterError) -> ParameterError:
    """The error, with the lines of the statement that it names, and changes that were tried and
    work.
    """
    said = str(error)
    named: tuple[Any, ...] = (*stated.weights, *stated.functions, *stated.gausses)
    lines = sorted({x.line for x in named if re.search(rf"\b({x.kind}|of) {x.name}\b", said)})
    where = f"line {', '.join(map(str, lines))}: " * bool(lines)
    work = "; or ".join(itertools.islice(_working(stated), MOST))
    if work:
        return ParameterError(f"{where}{said.partition('; ')[0]}; tried, and it works: {work}")
    return ParameterError(f"{where}{said}; no change of a size, table or start helped")


def _working(stated: Statement) -> Iterator[str]:
    """Changes under which the statement can be derived and has a flow, in words."""
    end, works = time.process_time() + SECONDS, False
    single = [*_changes(stated)]
    for many in (1, 2):
        for chosen in itertools.combinations(single, many):
            by = {old: new for _, old, new in chosen}
            fits = len(by) == many and time.process_time() < end
            if fits and _derivable(stated, by):
                works = True
                yield " and ".join(words for words, _, _ in chosen)
        if works:
            return


def _derivable(stated: Statement, by: Mapping[Any, Any]) -> bool:
    try:
        return bool(derive(changed(stated, by), patience=PATIENCE).flow.state)
    except (ParameterError, ArithmeticError):
        return False


def _changes(stated: Statement) -> Iterator[tuple[str, Any, Any]]:
    """Single changes, those first that change least: in words, and what stands for what."""
    for n in (s for s in stated.symbols if s.is_integer):
        number = sp.Integer(max(2, min(SMALL, stated.values.get(n.name, SMALL))))
        yield f"the number {number} in place of the size {n}", n, number
    for f in (f for f in stated.functions if not f.injective):
        args = tuple(k for k, s in enumerate(f.sorts) if s is not f.to.of)
        fit = tuple(k for k in args if not (f.sorts[k].size - f.to.size).is_positive)
        call = f'{f.kind}("{f.name}", ..., injective='
        if not f.kept and fit == args:
            yield f'{call}"leading order")', f, replace(f, injective=args, leading=True)
        for places in dict.fromkeys((fit, *((k,) for k in fit))) if fit else ():
            which = places == args or f"({', '.join(f.sorts[k].name for k in places)},)"
            yield f"{call}{which})", f, replace(f, injective=places)
    for w, start in itertools.product(stated.weights, map(sp.Integer, (0, 1))):
        if w.start != start:
            yield f'weight("{w.name}", ..., start={start})', w, replace(w, start=start)
    masked = any(n.kind == "total" and n.terms for n in walk(stated.loss))
    for s in (s for s in stated.sorts if s.ordered and not masked):
        yield f'sort("{s.name}", ...), not ordered', s, replace(s, ordered=False)
    for w in stated.weights:
        yield f"the number {w.mean} in place of weight {w.name}", w, w.mean


def changed(stated: Statement, by: Mapping[Any, Any]) -> Statement:
    """A statement with other sizes, functions, sorts or weights in place of some.

    Parameters
    ----------
    stated : Statement
    by : mapping
        What stands in place of what; a number in place of a weight is that of all its entries.

    Raises
    ------
    ParameterError
        If what is changed does not fit the values that the statement starts from.
    """
    copies: dict[Any, Any] = {}
    trees = {k: _changed(tree, by, copies) for k, tree in stated.trees.items()}
    loss = trees.pop("loss")
    gone = {x.name for x in by if isinstance(x, sp.Symbol)}
    again = statement(
        loss,
        name=stated.name,
        title=stated.title,
        observables=trees,
        closure=stated.closure,
        values={k: v for k, v in stated.values.items() if k not in gone},
    )
    again.fit(again.values)
    return again


def _changed(x: Any, by: Mapping[Any, Any], copies: dict[Any, Any]) -> Any:
    if isinstance(x, tuple):
        return tuple(_changed(y, by, copies) for y in x)
    if isinstance(x, sp.Expr):
        return x.xreplace({k: v for k, v in by.items() if isinstance(k, sp.Symbol)})
    if not dataclasses.is_dataclass(x) or isinstance(x, type):
        return x
    if x not in copies:
        if isinstance(x, Node) and x.kind == "entry" and isinstance(by.get(x.of), sp.Expr):
            copies[x] = Node("number", of=by[x.of])
        else:
            new = by.get(x, x)
            parts = {
                f.name: _changed(getattr(new, f.name), by, copies) for f in dataclasses.fields(new)
            }
            copies[x] = replace(new, **parts)
    return copies[x]
