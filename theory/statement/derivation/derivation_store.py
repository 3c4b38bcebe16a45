"""What takes time in a derivation, kept between runs, by the digest of statement,
engine and SymPy.

Classes, loss and sizes are derived anew, which takes a moment, and are compared with
listed inputs. Rates in their shortest form, and which conserved quantities were proved,
are JSON in the user's cache folder, sealed by a digest of the content, the statement
and the engine. Expressions are lists of a few known heads, rebuilt from numbers and
names alone: no text reaches SymPy's parser. Rates that are read are compared in numbers
with the slopes of the loss. Whatever is wrong with a file, they are derived anew.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import sympy as sp

from theory.call.refusal import ParameterError
from theory.runtime import output
from theory.statement.derivation import check, remedies, symmetry
from theory.statement.derivation.derived import Derived, derive
from theory.statement.words.stated import Statement
from theory.statement.words.tree import require
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
HEADS: dict[str, Any] = {f.__name__: f for f in SYMPY}
ASSUMED = ("integer", "positive", "real")  # of symbols
MOST_DIGITS = 1000  # of a number's power
MOST_TERMS = 10_000  # of a sum between numbers
COMPARED = 3  # random points at which rates are compared


@functools.cache
def engine() -> str:
    """Digest of the source text of the engine, unparsed, which takes a millisecond."""
    text = b"".join(
        file.read_bytes() for file in sorted(Path(__file__).parents[1].rglob("*.py"))
    )
    return hashlib.sha256(text).hexdigest() + sp.__version__


@functools.cache
def derived(stated: Statement) -> Derived:
    """Everything derived from a statement; what takes time is read from the cache, or
    stored there.

    Raises
    ------
    ParameterError
        If it cannot be derived, with a change that can, if one was found.
    """
    try:
        made = replace(derive(stated), refusal=remedies.refused)
    except ParameterError as error:
        raise remedies.refused(stated, error) from None
    name = hashlib.sha256(f"{engine()}\n{stated.text}".encode()).hexdigest()[:32]
    try:
        path = output.cache_folder() / f"statement_{name}.json"
        stored = json.loads(output.read_text("cache", path))
        if stored.pop("seal") == _seal(stored) and stored["text"] == stated.text:
            return _read(made, stored)
    except Exception:
        pass  # not there, no home folder, or damaged in any way: derived anew
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
        "proved": [q.proved for q in vars(made).get("conserved", [])],
        "moving": [_down(rate) for rate in vars(made).get("moving", {}).values()],
    }


def _read(made: Derived, found: dict[str, Any]) -> Derived:
    """A derivation with the proofs and rates of a file.

    Raises
    ------
    ParameterError
        If rates are no expressions, or not those of the loss.
    """
    made = replace(made)
    if not (made.shared or made.directions):
        proved = found["proved"]
        require(all(isinstance(x, bool) for x in proved), "proved: no truth")
        vars(made)["conserved"] = symmetry.conserved(made, proved)
    if found["moving"]:
        rates = [_up(x) for x in found["moving"]]
        require(all(isinstance(x, sp.Expr) for x in rates), "rates: no expressions")
        _compare(made, rates)
        vars(made)["moving"] = dict(zip(made.quotient.order, rates, strict=True))
    made.equations()
    return made


def _compare(made: Derived, rates: list[sp.Expr]) -> None:
    """Compare rates with slopes of the loss at random numbers."""
    free = sorted(set().union(*(rate.free_symbols for rate in rates)), key=str)
    of = symmetry.compiled(rates, free)
    points = symmetry.Points(made)
    for _ in range(COMPARED):
        numbers, expected = symmetry.rates(made, points)
        values = np.array(of(*(numbers[s.name] for s in free)), float)
        scale = max(float(np.abs(expected).max()), symmetry.SMALL)
        close = np.abs(values - expected).max() <= check.AGREE * scale
        require(close, "rates: not those of the loss")


def _down(x: sp.Basic) -> list[Any]:
    """An expression as nested lists."""
    if isinstance(x, sp.IndexedBase):
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
    return [name, *map(_down, x.args)]


def _up(x: Any) -> Any:
    """The expression that `_down` made lists of.

    Raises
    ------
    ParameterError
        For anything else, and for what SymPy or a sum over numbers would never end
        with.
    """
    require(isinstance(x, list) and x, "no expression")
    head, *items = x
    if head in ("Symbol", "IndexedBase"):
        require(items[0].isidentifier(), "no name")
        named = head == "Symbol"
        return sp.Symbol(items[0], **items[1]) if named else notation.array(items[0])
    if head in NUMBERS:
        return NUMBERS[head]
    if head == "Rational":
        require(all(isinstance(part, int) for part in items), "no number")
        return sp.Rational(*items)
    parts = [_up(part) for part in items]
    if head == "Pow" and all(part.is_Rational for part in parts):
        base, exponent = parts
        digits = len(str(base)) * abs(exponent)
        require(digits <= MOST_DIGITS, "a power with too many digits")
    if head == "Sum":
        ends = [end for limit in parts[1:] for end in limit.args[1:]]
        large = any(end.is_number and abs(end) > MOST_TERMS for end in ends)
        require(
            not large and not any(end.has(sp.Pow, sp.exp) for end in ends),
            "a sum of too many terms",
        )
    return HEADS[head](*parts)
