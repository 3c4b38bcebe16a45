"""Derivations kept between runs, by the digest of statement, engine and SymPy.

They are JSON in the user's cache folder: expressions as lists of a few known heads, so that
nothing that is read is executed.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sympy as sp

from theory import compiled, notation, output, sources
from theory.statement.classes import Class
from theory.statement.derived import Derived, derive
from theory.statement.roles import Roles
from theory.statement.stated import Statement
from theory.statement.symmetry import Conserved

HEADS = {
    f.__name__: f for f in (sp.Add, sp.Mul, sp.Pow, sp.exp, sp.log, sp.Sum, sp.Tuple, sp.Indexed)
}


@functools.cache
def engine() -> str:
    """Digest of what derives."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return sources.digest(files) + sp.__version__


def derived(stated: Statement) -> Derived:
    """What follows from a statement: read, if it was derived before; derived and kept, if not."""
    text = stated.text
    name = hashlib.sha256(f"{engine()}\n{text}".encode()).hexdigest()[:32]
    try:
        path = compiled.folder() / f"statement_{name}.json"
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["text"] == text:
            return _read(stated, found)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, IndexError):
        pass  # not there, no home folder, or damaged: derived anew
    made = derive(stated)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with output.atomic(path) as temporary:
            temporary.write_text(json.dumps(_written(made)), encoding="utf-8")
    except (OSError, RuntimeError, NameError):
        pass  # no place to write
    return made


def _written(made: Derived) -> dict[str, Any]:
    fresh = Roles(made.statement, inverse=made.roles.inverse)
    open_ = bool(made.directions)
    moving = {} if open_ or not made.quotient.order else made.moving
    return {
        "text": made.statement.text,
        "inverse": made.roles.inverse,
        "atoms": {
            w.name: [fresh.classes[w].names.index(a) for a in of.names]
            for w, of in made.roles.classes.items()
        },
        "patterns": {
            w.name: [[list(p), _down(x)] for p, x in of.symbols.items()]
            for w, of in made.roles.classes.items()
        },
        "classes": [
            [_down(c.symbol), c.weight.name, _down(c.size), c.means, _down(c.many)]
            for c in made.classes
        ],
        "loss": _down(made.loss),
        "observables": {k: _down(v) for k, v in made.observables.items()},
        "status": made.status,
        "assumptions": made.assumptions,
        "shared": [[_down(x), _down(y), _down(v)] for (x, y), v in made.shared.items()],
        "conserved": None
        if open_
        else [
            [
                q.kind,
                [[_down(x), _down(a)] for x, a in q.coefficients.items()],
                _down(q.expression),
                q.proved,
            ]
            for q in made.conserved
        ],
        "moving": [[_down(x), _down(rate)] for x, rate in moving.items()],
        "invariants": [[_down(x), _down(y)] for x, y in (made.invariants if moving else [])],
        "growth": [_down(x) for x in (made.growth if moving else [])],
    }


def _read(stated: Statement, found: Mapping[str, Any]) -> Derived:
    roles = Roles(stated, inverse=found["inverse"])
    weights = {w.name: w for w in stated.weights}
    for w, of in roles.classes.items():
        of.atoms = [of.atoms[k] for k in found["atoms"][w.name]]
        of.symbols = {tuple(p): _up(x) for p, x in found["patterns"][w.name]}
    classes = [
        Class(_up(x), weights[w], _up(size), means, _up(many))
        for x, w, size, means, many in found["classes"]
    ]
    for c in classes:
        if isinstance(c.symbol, sp.Symbol):
            notation.symbol(c.symbol.name, means=f"{c.weight}: {c.means}", real=True)
    made = Derived(
        stated,
        roles,
        classes,
        _up(found["loss"]),
        {k: _up(v) for k, v in found["observables"].items()},
        found["status"],
        tuple(found["assumptions"]),
        {},
        {(_up(x), _up(y)): _up(v) for x, y, v in found["shared"]},
    )
    if found["conserved"] is not None:
        vars(made)["conserved"] = [
            Conserved(kind, {_up(x): _up(a) for x, a in part}, _up(kept), proved)
            for kind, part, kept, proved in found["conserved"]
        ]
        vars(made)["moving"] = {_up(x): _up(rate) for x, rate in found["moving"]}
        vars(made)["invariants"] = [(_up(x), _up(y)) for x, y in found["invariants"]]
        vars(made)["growth"] = [_up(x) for x in found["growth"]]
    return made


def _down(x: Any) -> Any:
    """An expression as lists."""
    if isinstance(x, sp.Rational):
        return [x.p, x.q]
    if isinstance(x, sp.Symbol):
        return [
            "Symbol",
            x.name,
            "size" if x.is_integer else "positive" if x.is_positive else "real",
        ]
    if isinstance(x, sp.IndexedBase):
        return ["IndexedBase", x.name]
    if type(x).__name__ not in HEADS:
        raise TypeError(f"{x}: cannot be kept")
    return [type(x).__name__, *map(_down, x.args)]


def _up(x: Any) -> Any:
    """An expression from lists."""
    head, *rest = x
    if isinstance(head, int):
        return sp.Rational(head, *rest)
    if head == "Symbol":
        name, kind = rest
        kinds = {"size": {"integer": True, "positive": True}, "positive": {"positive": True}}
        return sp.Symbol(name, **kinds.get(kind, {"real": True}))
    if head == "IndexedBase":
        return notation.array(*rest)
    return HEADS[head](*map(_up, rest))
