"""Derivations kept between runs, by the digest of statement, engine and SymPy.

They are JSON in the user's cache folder, sealed by a digest of the content, the
statement and the engine. Expressions are lists of a few known heads, rebuilt from
numbers and names alone: no text reaches SymPy's parser. Whatever is wrong with a file,
its statement is derived anew.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import sympy as sp

from theory.call.refusal import ParameterError
from theory.runtime import output
from theory.statement.derivation import remedies
from theory.statement.derivation.derived import Derived, derive
from theory.statement.derivation.roles import Roles
from theory.statement.derivation.symmetry import Conserved
from theory.statement.evaluation.world import Class, classes
from theory.statement.words.stated import Statement
from theory.statement.words.tree import Weight, require
from theory.symbols import notation

SYMPY = (
    sp.Add,
    sp.Mul,
    sp.Pow,
    sp.exp,
    sp.log,
    sp.Sum,
    sp.Tuple,
    sp.Indexed,
    sp.Rational,
)
NUMBERS = {type(x).__name__: x for x in (sp.E, sp.pi, sp.EulerGamma)}
HEADS: dict[str, Any] = {f.__name__: f for f in (*SYMPY, Class, Conserved)}
HEADS |= {"list": lambda *x: [*x], "tuple": lambda *x: x, "dict": lambda *x: dict(x)}
FIELDS = ("classes", "loss", "observables", "status", "assumptions", "sizes", "shared")
CACHED = ("conserved", "moving", "invariants", "growth")  # what takes time beyond these
ASSUMED = ("integer", "positive", "real")  # of symbols


@functools.cache
def engine() -> str:
    """Digest of the source text of the engine, unparsed, which takes a millisecond."""
    text = b"".join(
        file.read_bytes() for file in sorted(Path(__file__).parents[1].rglob("*.py"))
    )
    return hashlib.sha256(text).hexdigest() + sp.__version__


@functools.cache
def derived(stated: Statement) -> Derived:
    """Everything derived from a statement: read from the cache if there, otherwise
    derived and stored.

    Raises
    ------
    ParameterError
        If it cannot be derived, with a change that can, if one was found.
    """
    name = hashlib.sha256(f"{engine()}\n{stated.text}".encode()).hexdigest()[:32]
    try:
        path = output.cache_folder() / f"statement_{name}.json"
        stored = json.loads(output.read_text("cache", path))
        if stored.pop("seal") == _seal(stored) and stored["text"] == stated.text:
            found = _read(stated, stored)
            found.equations()  # an error if anything is of another kind
            return found
    except Exception:
        pass  # not there, no home folder, or damaged in any way: derived anew
    try:
        made = replace(derive(stated), refusal=remedies.refused)
    except ParameterError as error:
        raise remedies.refused(stated, error) from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with output.atomic(path) as temporary:
            content = _written(made)
            temporary.write_text(
                json.dumps({"seal": _seal(content), **content}), encoding="utf-8"
            )
    except (OSError, RuntimeError, NameError, TypeError):
        # no place to write, or an expression of another kind: derived again next time
        pass
    return made


def _seal(content: dict[str, Any]) -> str:
    """Digest of a file's content and of the engine that wrote it."""
    return hashlib.sha256(f"{engine()}\n{json.dumps(content)}".encode()).hexdigest()


def _written(made: Derived) -> dict[str, Any]:
    made.equations()
    return {
        "text": made.statement.text,
        "inverse": made.roles.inverse,
        "fields": [_down(getattr(made, k)) for k in FIELDS],
        "cached": [[k, _down(vars(made)[k])] for k in CACHED if k in vars(made)],
    }


def _read(stated: Statement, found: dict[str, Any]) -> Derived:
    up = functools.partial(_up, stated)
    roles = Roles(stated, inverse=found["inverse"])
    made = replace(
        Derived(stated, roles, *map(up, found["fields"])), refusal=remedies.refused
    )
    vars(made).update({k: up(value) for k, value in found["cached"]})
    if not made.shared:
        classes(stated, roles)  # quick, beside the loss: which entries they have
    for c in made.classes if made.shared else ():
        notation.symbol(c.symbol.name, means=c.means, real=True)
    return made


def _down(x: Any) -> Any:
    """An expression, or a container of expressions, as nested lists."""
    if x is None or isinstance(x, str | bool | int):
        return x
    if isinstance(x, Weight | sp.IndexedBase):
        return [type(x).__name__, x.name]
    if isinstance(x, sp.Rational):
        return ["Rational", x.p, x.q]
    if isinstance(x, sp.Symbol):
        return ["Symbol", x.name, {k: True for k in ASSUMED if getattr(x, f"is_{k}")}]
    name = type(x).__name__
    if name in NUMBERS:
        return [name]
    if name not in HEADS:
        raise TypeError(f"{x}: cannot be kept")
    parts: Any = vars(x).values() if isinstance(x, Class | Conserved) else x
    if isinstance(x, dict | sp.Basic):
        parts = x.items() if isinstance(x, dict) else x.args
    return [name, *map(_down, parts)]


def _up(stated: Statement, x: Any) -> Any:
    """What `_down` made lists of; an error for anything else that SymPy would
    interpret.
    """
    if not isinstance(x, list):
        return x
    head, *items = x
    if head == "Weight":
        return {w.name: w for w in stated.weights}[items[0]]
    if head in ("Symbol", "IndexedBase"):
        require(items[0].isidentifier(), "no name")
        return (
            sp.Symbol(items[0], **items[1])
            if head == "Symbol"
            else notation.array(items[0])
        )
    if head in NUMBERS:
        return NUMBERS[head]
    parts = [_up(stated, part) for part in items]
    make = HEADS[head]
    kind = int if make is sp.Rational else sp.Basic if make in SYMPY else object
    require(all(isinstance(part, kind) for part in parts), f"{head}: of something else")
    return make(*parts)
