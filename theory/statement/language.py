"""The words of a statement: they make its tree, and refuse what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy as sp

from theory import notation
from theory.parameters import ParameterError
from theory.statement.tree import (
    Function,
    Gauss,
    Index,
    Node,
    Same,
    Sort,
    Spectrum,
    Term,
    Total,
    Transform,
    Weight,
    fits,
    node,
)


def sizes(names: str) -> Any:
    """Symbols of sizes, positive whole numbers: ``S, R = sizes("S R")``; one name gives one."""
    made = tuple(notation.symbol(n, integer=True, positive=True) for n in names.split())
    return made[0] if len(made) == 1 else made


def number(name: str, means: str = "") -> sp.Symbol:
    """A real number that is not trained."""
    return notation.symbol(name, means=means, real=True)


def spectrum(name: str) -> Spectrum:
    """Eigenvalues of a covariance; see `Spectrum`."""
    return Spectrum(name)


def sort(
    name: str, size: Any, *, of: Sort | None = None, ordered: bool = False, vector: bool = False
) -> Sort:
    """Make an index set.

    Parameters
    ----------
    name : str
        What its elements are called.
    size : int or Expr
        How many there are (per element of ``of``, if given).
    of : Sort, optional
        There is a set of its own for every element of this sort; elements of different ones cannot
        be compared.
    ordered : bool
        Positions, from 1 to ``size``: only these can be masked, and no weight depends on them.
    vector : bool
        Directions of a vector space whose rotations are symmetries.

    Raises
    ------
    ParameterError
        If the size is no positive whole number, nor an expression in sizes.
    """
    made = sp.sympify(size, strict=True)
    if not made.is_integer or made.is_nonpositive:
        raise ParameterError(f"sort {name}: size = {size}: must be a positive whole number")
    if ordered + vector + (of is not None) > 1:
        raise ParameterError(f"sort {name}: is one of ordered, vector, of another sort")
    return Sort(name, made, of, ordered, vector)


def teacher(
    name: str, args: Sequence[Sort], to: Sort, *, injective: bool | Sequence[Sort] = False
) -> Function:
    """Make a known function of indices, the same for all inputs; balanced: all values as often.

    Parameters
    ----------
    name : str
        What messages call it.
    args : sequence of Sort
        Sorts of its arguments.
    to : Sort
        Sort of its values.
    injective : bool or sequence of Sort
        The arguments in which it is one-to-one while the others are held: all (True), or those of
        these sorts. ``injective=(state,)`` makes a permutation for every other argument.

    Raises
    ------
    ParameterError
        If it is declared one-to-one into a smaller sort, or an argument is no sort.
    """
    return _function(name, args, to, True, injective)


def sample(
    name: str, args: Sequence[Sort], to: Sort, *, injective: bool | str | Sequence[Sort] = False
) -> Function:
    """Make a function of indices that is drawn anew for every input: a token at a place.

    Parameters are those of `teacher`. Values are independent and uniform; with ``injective`` they
    are distinct; with ``injective="leading order"`` they are independent, but so many to choose
    from that they are taken to be distinct.
    """
    leading = injective == "leading order"
    if isinstance(injective, str) and not leading:
        raise ParameterError(
            f"sample {name}: injective = {injective!r}: must be True, False, sorts or 'leading order'"
        )
    return _function(name, args, to, False, True if leading else injective, leading)


def _function(
    name: str, args: Sequence[Sort], to: Sort, kept: bool, injective: Any, leading: bool = False
) -> Function:
    what = f"{'teacher' if kept else 'sample'} {name}"
    sorts = (args,) if isinstance(args, Sort) else tuple(args)
    for s in (*sorts, to):
        if not isinstance(s, Sort) or s.vector:
            raise ParameterError(f"{what}: {s!r}: must be a sort that is no vector")
    if not sorts:
        raise ParameterError(f"{what}: needs at least one argument")
    if to.of is not None and to.of not in sorts:
        raise ParameterError(f"{what}: values are {to} of a {to.of}, which must be an argument")
    chosen = sorts if injective is True else tuple(injective or ())
    if set(chosen) - set(sorts):
        raise ParameterError(f"{what}: injective in {chosen}: must be among its arguments {sorts}")
    one_to_one = tuple(k for k, s in enumerate(sorts) if s in chosen and s is not to.of)
    for k in one_to_one:
        if (sorts[k].size - to.size).is_positive:
            raise ParameterError(
                f"{what}: {sorts[k].size} {sorts[k]} into {to.size} {to} cannot be one-to-one"
            )
    return Function(name, sorts, to, kept, one_to_one, leading)


def weight(name: str, *sorts: Sort, start: Any = 0) -> Weight:
    """Make a trained array with an axis per sort; without sorts it is one number, ``w[()]``.

    Raises
    ------
    ParameterError
        If an axis is no sort, or an ordered one: entries at absolute positions have no symmetry.
    """
    for s in sorts:
        if not isinstance(s, Sort):
            raise ParameterError(f"weight {name}: {s!r}: must be a sort")
        if s.ordered:
            raise ParameterError(
                f"weight {name}: {s} is ordered: entries at absolute positions have no symmetry"
            )
    return Weight(name, sorts, sp.sympify(start, strict=True))


def gauss(name: str, *sorts: Sort, var: Any = 1) -> Gauss:
    """Make Gaussian data whose last sort is a vector; ``var`` is a number or a `spectrum`."""
    if not sorts or not sorts[-1].vector or any(s.vector for s in sorts[:-1]):
        raise ParameterError(f"gauss {name}: its last sort, and no other, must be a vector")
    return Gauss(name, sorts, var if isinstance(var, Spectrum) else sp.sympify(var, strict=True))


def draw(sort: Sort, *, distinct: Any = (), of: Term | None = None) -> Index:
    """An element drawn uniformly for every input, none of those in ``distinct``."""
    others = distinct if isinstance(distinct, tuple | list) else (distinct,)
    for other in others:
        if not isinstance(other, Term) or other.sort is not sort:
            raise ParameterError(f"draw of {sort}: distinct from {other!r}: must be a {sort}")
    if sort.vector:
        raise ParameterError(f"draw of {sort}: directions of a vector cannot be drawn")
    return Index(sort, _parent(f"draw of {sort}", sort, of), tuple(others))


def fixed(sort: Sort, place: Any, *, of: Term | None = None) -> Index:
    """The element at a known place, counted from 1."""
    at = sp.sympify(place, strict=True)
    if not at.is_integer or at.is_nonpositive or (sort.size - at).is_negative:
        raise ParameterError(f"fixed {sort}: place = {place}: must lie in 1..{sort.size}")
    return Index(sort, _parent(f"fixed {sort}", sort, of), place=at)


def _parent(what: str, sort: Sort, of: Term | None) -> Term | None:
    if sort.of is None and of is not None:
        raise ParameterError(f"{what}: of = {of!r}: {sort} belongs to no other sort")
    if sort.of is not None and (not isinstance(of, Term) or of.sort is not sort.of):
        raise ParameterError(f"{what}: of = {of!r}: must be the {sort.of} that it belongs to")
    return of


def eq(i: Term, j: Term) -> Node:
    """One where two indices are equal, else zero."""
    fits("eq", (i.sort if isinstance(i, Term) else j.sort,) * 2, (i, j))
    return Same((i, j))


def exp(x: Any) -> Node:
    """Exponential."""
    return Transform("exp", node(x))


def log(x: Any) -> Node:
    """Natural logarithm."""
    return Transform("log", node(x))


def total(
    body: Callable[..., Any],
    *sorts: Sort,
    below: Term | None = None,
    upto: Term | None = None,
    of: Term | None = None,
) -> Node:
    """Sum of ``body(i, ...)`` over all elements of every sort.

    Parameters
    ----------
    body : callable
        Takes an index per sort.
    *sorts : Sort
        A sort that belongs to another one comes after it, unless ``of`` names the element.
    below, upto : Term
        Of an ordered sort, the first position that is left out, or the last one that is not.

    Raises
    ------
    ParameterError
        If a sort lacks the one it belongs to, or one that is not ordered is masked.
    """
    indices: list[Index] = []
    for s in sorts:
        if not isinstance(s, Sort):
            raise ParameterError(f"total over {s!r}: must be a sort")
        before = [i for i in indices if s.of is not None and i.sort is s.of]
        own = before[-1] if before else (None if s.of is None else of)
        indices.append(Index(s, _parent(f"total over {s}", s, own), bound=True))
    end = upto if below is None else below
    if not indices or (below is not None and upto is not None):
        raise ParameterError("total: needs a sort, and at most one of below and upto")
    if end is not None:
        if not all(s.ordered for s in sorts) or len(sorts) > 1:
            raise ParameterError(f"total over {sorts[0]}: only one ordered sort can be masked")
        fits("total: end", sorts, (end,))
    made = node(body(*indices))
    for i in reversed(indices):
        made = Total(i, made, end, below is None)
    return made


def cross_entropy(
    logit: Callable[..., Any], *, over: Any, target: Any, of: Term | None = None
) -> Node:
    """Minus the logarithm of the softmax of ``logit`` at ``target``, over all of ``over``.

    ``over`` is a sort or a tuple of sorts, ``target`` a term or as many terms.
    """
    sorts = over if isinstance(over, tuple) else (over,)
    targets = target if isinstance(target, tuple) else (target,)
    fits("cross_entropy: target", sorts, targets)
    return log(total(lambda *i: exp(logit(*i)), *sorts, of=of)) - node(logit(*targets))
