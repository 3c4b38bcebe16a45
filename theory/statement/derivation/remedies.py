"""What would make a refused statement derivable: one or two changes at a time, each
tried.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from theory.call.refusal import ParameterError
from theory.statement.derivation.derived import Derived, derive
from theory.statement.words.stated import Statement, statement
from theory.statement.words.tree import Index, Node, Value, reached, subterms, walk

SMALL = 3  # a size that is given as a number
MOST = 2  # changes that are named
NOTHING = "; no change of a size, table, start or kind of data helped"
SECONDS = 20.0  # of CPU time for all tries together; one that runs is not stopped
PATIENCE, LONGER = 0.04, 0.3  # for one try, in units of the most branches
Change = tuple[str, dict[Any, Any]]  # in words, and what stands for what


@functools.cache
def derived(stated: Statement) -> Derived:
    """Everything derived from a statement.

    Raises
    ------
    ParameterError
        If it cannot be derived, with a change that can, if one was found.
    """
    try:
        return replace(derive(stated), refusal=refused)
    except ParameterError as error:
        raise refused(stated, error) from None


def refused(stated: Statement, error: ParameterError) -> ParameterError:
    """The error, with the lines of the statement that it names, and changes that were
    tried and work.
    """
    message = str(error)
    objects: tuple[Any, ...] = (*stated.weights, *stated.functions, *stated.gausses)
    named = [
        x
        for x in objects
        if re.search(rf"\b({x.kind}s?|of) \(?(\w+, )*{x.name}\b", message)
    ]
    lines = sorted({x.line for x in named or stated.weights})
    where = f"line {', '.join(map(str, lines))}"
    if work := "; or ".join(_working(stated)):
        message = f"{message.partition('; ')[0]}; tried, and it works: {work}"
    return ParameterError(f"{where}: {message}{NOTHING * (not work)}")


@functools.cache
def _working(stated: Statement) -> list[str]:
    """Changes under which the statement can be derived
    and something moves, in words.
    """
    end, single = time.process_time() + SECONDS, [*_changes(stated)]
    closure = ('closure="mean logits", an approximation', {"closure": "mean logits"})
    closures = [closure] * any(f.kept for f in stated.functions)

    def works(chosen: tuple[Change, ...], patience: float) -> bool:
        by: dict[Any, Any] = {}
        for _, pairs in chosen:
            by |= pairs
        overlap = len(by) < sum(len(pairs) for _, pairs in chosen)
        if overlap or time.process_time() > end:
            return False
        try:
            made = derive(changed(stated, by), patience=patience)
            return bool((made.at() if made.directions else made).quotient.order)
        except (ParameterError, ArithmeticError):
            return False

    for changes, many, patience in (
        (single, 1, PATIENCE),
        (single, 2, PATIENCE),
        (single, 1, LONGER),
        (closures, 1, PATIENCE),
    ):
        working: list[str] = []
        for chosen in itertools.combinations(changes, many):
            if works(chosen, patience):
                working.append(" and ".join(words for words, _ in chosen))
            if len(working) == MOST:
                break
        if working:
            return working
    return []


def _changes(stated: Statement) -> Iterator[Change]:
    """Single changes, those first that change least."""
    known = {
        s: stated.values[s.name] for s in stated.symbols if s.name in stated.values
    }
    for n in (s for s in stated.symbols if s.is_integer):
        number = sp.Integer(max(2, min(SMALL, known.get(n, SMALL))))
        yield f"the number {number} in place of the size {n}", {n: number}
    for f in (f for f in stated.functions if not f.injective):
        args = tuple(k for k, s in enumerate(f.sorts) if s is not f.to.of)
        fit = tuple(k for k in args if not (f.sorts[k].size - f.to.size).is_positive)
        call = f'{f.kind}("{f.name}", ..., injective='
        if not f.kept and fit == args:
            yield (
                f'{call}"leading order")',
                {f: replace(f, injective=args, leading=True)},
            )
        single = [(k,) for k in fit if f.sorts.count(f.sorts[k]) == 1]
        for places in dict.fromkeys((fit, *single)) if fit else ():
            which = places == args or f"({', '.join(f.sorts[k].name for k in places)},)"
            sizes = [f.sorts[k].size.subs(known) for k in places]
            enough = max((int(n) for n in sizes if n.is_Integer), default=0)
            short = known.get(f.to.size, enough) < enough
            room = {f.to.size.name: enough} if short else {}
            more = "".join(f" with {n}={v}" for n, v in room.items())
            yield f"{call}{which}){more}", {f: replace(f, injective=places), **room}
    for w, start in itertools.product(stated.weights, map(sp.Integer, (0, 1))):
        if w.start != start:
            yield (
                f'weight("{w.name}", ..., start={start})',
                {w: replace(w, start=start)},
            )
    masked = any(n.kind == "total" and n.terms for n in walk(stated.loss))
    for s in (s for s in stated.sorts if s.ordered and not masked):
        yield f'sort("{s.name}", ...), not ordered', {s: replace(s, ordered=False)}
    read = [*reached(tuple(stated.trees.values()))]
    once = not any(f.parts for f in stated.functions)  # none applied to its own values
    for f in (f for f in stated.functions if f.kept and once and f.parent is None):
        calls = [t for t in read if isinstance(t, Value) and t.function is f]
        inner = subterms(*calls)
        if not any(isinstance(i, Index) and i.bound for i in inner):
            drawn = {t: Index(f.to, label=f.to.name) for t in calls}
            yield f"draw({f.to}) in place of {f.name}(...)", drawn
        for k, s in enumerate(f.sorts[1:] and f.sorts):
            if len(f.injective) in (0, len(f.sorts)):
                g = replace(f, sorts=(s,), injective=f.injective[:1])
                alone = {t: Value(g, (t.arguments[k],)) for t in calls}
                yield f"teacher {f.name} of its argument {k + 1} alone", alone
    entries = [n for n in read if isinstance(n, Node) and n.kind == "entry"]
    axes = {g.sorts for g in stated.gausses}
    for s in (s for s in stated.sorts if axes == {(s,)}):
        hot = {g: Index(s) for g in stated.gausses}
        ones = {
            n: Node("same", (), (*n.terms, hot[n.of])) for n in entries if n.of in hot
        }
        names = " and ".join(f"eq(i, draw({s})) in place of {g}[i]" for g in hot)
        yield f"{names}, {s} no vector", {s: replace(s, vector=False), **ones}
    for w in stated.weights:
        gone = {n: Node("number", of=w.mean) for n in entries if n.of is w}
        yield f"the number {w.mean} in place of weight {w.name}", gone


def changed(stated: Statement, by: Mapping[Any, Any]) -> Statement:
    """A statement with other sizes, functions, sorts or weights in place of some.

    Parameters
    ----------
    stated : Statement
    by : mapping
        What stands in place of what; by name, other values, or a closure.

    Raises
    ------
    ParameterError
        If what is changed does not fit the values that the statement starts from.
    """
    copies: dict[Any, Any] = {}
    trees = {k: _changed(tree, by, copies) for k, tree in stated.trees.items()}
    loss = trees.pop("loss")
    values = {**stated.values, **{k: v for k, v in by.items() if isinstance(k, str)}}
    again = statement(
        loss,
        name=stated.name,
        observables=trees,
        closure=values.pop("closure", stated.closure),
        values=values,
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
        new = by.get(x, x)
        parts = {
            f.name: _changed(getattr(new, f.name), by, copies)
            for f in dataclasses.fields(new)
        }
        copies[x] = replace(new, **parts)
    return copies[x]
