"""What would make a refused statement derivable: one or two changes at a time, each tried."""

from __future__ import annotations

import dataclasses
import itertools
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from theory.parameters import ParameterError
from theory.statement.derived import derive
from theory.statement.stated import Statement, statement
from theory.statement.tree import Function, Index, Node, Value, walk

SMALL = 3  # a size that is given as a number
MOST = 2  # changes that are named
SECONDS = 20.0  # of CPU time for all tries together; one that runs is not stopped
PATIENCE, LONGER = 0.04, 0.3  # for one try, in units of the most branches
WORKS, STILL = "works", "nothing moves"  # what came of a try


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
    """Changes under which the statement can be derived and has a flow, in words; where there are
    none, those under which it can be derived and nothing moves.
    """
    end, single, ends = time.process_time() + SECONDS, [*_changes(stated)], {}
    for many, patience in ((1, PATIENCE), (2, PATIENCE), (1, LONGER)):
        for chosen in itertools.combinations(single, many):
            by = {old: new for _, old, new in chosen}
            if len(by) == many and time.process_time() < end:
                words = " and ".join(words for words, _, _ in chosen)
                ends[words] = _derived(stated, by, patience)
                if ends[words] == WORKS:
                    yield words
        if WORKS in ends.values():
            return
    taught = any(f.kept for f in stated.functions)
    if taught and _derived(stated, {"closure": "mean logits"}, PATIENCE) == WORKS:
        yield 'closure="mean logits", an approximation'
    yield from (f"{words}, but nothing moves" for words, end in ends.items() if end == STILL)


def _derived(stated: Statement, by: Mapping[Any, Any], patience: float) -> str:
    try:
        _ = derive(changed(stated, by), patience=patience).flow
    except (ParameterError, ArithmeticError) as error:
        return STILL if STILL in str(error) else ""
    return WORKS


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
            room = " with " + ", ".join(
                f"{n}={v}" for n, v in _room(f, places, stated.values).items()
            )
            new = replace(f, injective=places)
            yield f"{call}{which}){room * (len(room) > 6)}", f, new
    for w, start in itertools.product(stated.weights, map(sp.Integer, (0, 1))):
        if w.start != start:
            yield f'weight("{w.name}", ..., start={start})', w, replace(w, start=start)
    masked = any(n.kind == "total" and n.terms for n in walk(stated.loss))
    for s in (s for s in stated.sorts if s.ordered and not masked):
        yield f'sort("{s.name}", ...), not ordered', s, replace(s, ordered=False)
    values = {t for n in walk(stated.loss) for t in n.terms if isinstance(t, Value)}
    for t in sorted(values, key=repr):
        f = t.function
        if (
            f.kept
            and t.solved is None
            and not t.parent
            and [v.function for v in values].count(f) == 1
        ):
            yield f"draw({t.sort}) in place of {f.name}(...)", t, Index(t.sort, label=t.sort.name)
    for w in stated.weights:
        yield f"the number {w.mean} in place of weight {w.name}", w, w.mean


def _room(f: Function, places: Iterable[int], values: Mapping[str, Any]) -> dict[str, int]:
    """The size of a function's values, where a larger one is needed to be injective."""
    size, sizes = f.to.size, [f.sorts[k].size for k in places]
    numbers = [n.subs({s: values.get(s.name, s) for s in n.free_symbols}) for n in sizes]
    enough = max((int(n) for n in numbers if n.is_Integer), default=0)
    return {size.name: enough} if size.is_Symbol and values.get(size.name, enough) < enough else {}


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
    made = (x for x in by.values() if isinstance(x, Function))
    more = {n: v for f in made for n, v in _room(f, f.injective, stated.values).items()}
    again = statement(
        loss,
        name=stated.name,
        title=stated.title,
        observables=trees,
        closure=by.get("closure", stated.closure),
        values={k: v for k, v in {**stated.values, **more}.items() if k not in gone},
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
