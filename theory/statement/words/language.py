"""The words of a statement: they make its tree, and refuse what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy as sp

from theory.call.refusal import ParameterError
from theory.statement.words.tree import (
    Function,
    Gauss,
    Index,
    Node,
    Random,
    Sort,
    Spectrum,
    Term,
    Weight,
    fits,
    node,
    require,
)
from theory.symbols import notation
from theory.symbols.reading import sympified


def sizes(names: str) -> Any:
    """Symbols of sizes, positive whole numbers: ``S, R = sizes("S R")``; one name gives
    one.
    """
    made = tuple(notation.symbol(n, integer=True, positive=True) for n in names.split())
    return made[0] if len(made) == 1 else made


def number(name: str, means: str = "") -> sp.Symbol:
    """A real number that is not trained."""
    return notation.symbol(name, means=means, real=True)


def spectrum(name: str) -> Spectrum:
    """Eigenvalues of a covariance; see `Spectrum`."""
    return Spectrum(name)


def sort(
    name: str,
    size: Any,
    *,
    of: Sort | None = None,
    ordered: bool = False,
    vector: bool = False,
) -> Sort:
    """Make an index set.

    Parameters
    ----------
    name : str
        What its elements are called.
    size : int or Expr
        How many there are (per element of ``of``, if given).
    of : Sort, optional
        There is a set of its own for every element of this sort; elements of different
        ones cannot be compared.
    ordered : bool
        Positions, from 1 to ``size``: only these can be masked, and no weight depends
        on them.
    vector : bool
        Directions of a vector space whose rotations are symmetries.

    Raises
    ------
    ParameterError
        If the size is no positive whole number, nor an expression in sizes.
    """
    made = sympified(size)
    whole = made.is_integer and not made.is_nonpositive
    require(whole, f"sort {name}: size = {size}: must be a positive whole number")
    one = ordered + vector + (of is not None) < 2
    require(
        one,
        f"sort {name}: must be at most one of ordered=True, vector=True and of=SORT",
    )
    return Sort(name, made, of, ordered, vector)


def teacher(
    name: str,
    args: Sequence[Sort],
    to: Sort,
    *,
    injective: bool | Sequence[Sort] = False,
) -> Function:
    """Make a known function of indices, the same for all inputs; balanced: all values
    as often.

    Parameters
    ----------
    name : str
        What messages call it.
    args : sequence of Sort
        Sorts of its arguments.
    to : Sort
        Sort of its values.
    injective : bool or sequence of Sort
        The arguments in which it is one-to-one while the others are held: all (True),
        or those of these sorts. ``injective=(state,)`` makes a permutation for every
        other argument. With all of two arguments it is a Latin square: every row and
        every column takes a value at most once, and the square is that of addition
        modulo the size, with all labels permuted.

    Raises
    ------
    ParameterError
        If it is declared one-to-one into a smaller sort, or an argument is no sort.
    """
    return _function(name, args, to, True, injective)


def sample(
    name: str,
    args: Sequence[Sort],
    to: Sort,
    *,
    injective: bool | str | Sequence[Sort] = False,
) -> Function:
    """Make a function of indices that is drawn anew for every input: a token at a
    place.

    Parameters are those of `teacher`. Values are independent and uniform; with
    ``injective`` they are distinct; with ``injective="leading order"`` they are
    independent, but so many to choose from that they are taken to be distinct.
    """
    leading = injective == "leading order"
    known = leading or not isinstance(injective, str)
    message = (
        f"sample {name}: injective = {injective!r}: must be True, False, sorts or"
        " 'leading order'"
    )
    require(known, message)
    return _function(name, args, to, False, True if leading else injective, leading)


def _function(
    name: str,
    args: Sequence[Sort],
    to: Sort,
    kept: bool,
    injective: Any,
    leading: bool = False,
) -> Function:
    what = f"{'teacher' if kept else 'sample'} {name}"
    sorts = (args,) if isinstance(args, Sort) else tuple(args)
    one = "one element is draw(sort) or fixed(sort, place), one vector is gauss(...)"
    require(sorts, f"{what}: needs at least one argument; {one}")
    for s in (*sorts, to):
        plain = isinstance(s, Sort) and not s.vector
        require(plain, f"{what}: {s!r}: must be a sort that is no vector")
    inside = to.of is None or to.of in sorts
    require(inside, f"{what}: values are {to} of a {to.of}, which must be an argument")
    chosen = sorts if injective is True else tuple(injective or ())
    fits = set(chosen) <= set(sorts)
    require(fits, f"{what}: injective in {chosen}: must be among its arguments {sorts}")
    one_to_one = tuple(k for k, s in enumerate(sorts) if s in chosen and s is not to.of)
    for s in (sorts[k] for k in one_to_one):
        message = f"{what}: {s.size} {s} into {to.size} {to} cannot be one-to-one"
        require(not (s.size - to.size).is_positive, message)
    return Function(name, sorts, to, kept, one_to_one, leading)


def weight(name: str, *sorts: Sort, start: Any = 0) -> Weight:
    """Make a trained array with an axis per sort; without sorts it is one number,
    ``w[()]``.

    Parameters
    ----------
    name : str
    *sorts : Sort
    start : number or Random
        Value of all entries at the start, or `gaussian`, `uniform` or `orthogonal`.

    Raises
    ------
    ParameterError
        If an axis is no sort, or an ordered one: entries at absolute positions have no
        symmetry; or the start is neither.
    """
    for s in sorts:
        require(isinstance(s, Sort), f"weight {name}: {s!r}: must be a sort")
        message = (
            f"weight {name}: {s} is ordered: entries at absolute positions have no"
            " symmetry"
        )
        require(
            not s.ordered, f"{message}; without ordered=True places are exchangeable"
        )
    if isinstance(start, Random):
        matrix = start.kind != "orthogonal" or len(sorts) == 2
        require(
            matrix, f"weight {name}: start = {start}: only a matrix can be orthogonal"
        )
        return Weight(name, sorts, start)
    try:
        return Weight(name, sorts, sympified(start))
    except ParameterError:
        laws = "gaussian(sigma), uniform(width) or orthogonal(scale)"
        raise ParameterError(
            f"weight {name}: start = {start!r}: must be a number, {laws}"
        ) from None


def gaussian(sigma: Any) -> Random:
    """Start of a weight: entries independent, normal, of mean zero and standard
    deviation ``sigma``, a number or `number`.
    """
    return _random("gaussian", sigma)


def uniform(width: Any) -> Random:
    """Start of a weight: entries independent,
    uniform between ``-width`` and ``width``.
    """
    return _random("uniform", width)


def orthogonal(scale: Any = 1) -> Random:
    """Start of a weight: a matrix with orthogonal rows or columns of length ``scale``,
    all directions as likely.
    """
    return _random("orthogonal", scale)


def _random(kind: str, size: Any) -> Random:
    made = node(size).of
    message = f"start = {kind}({size}): must be a number that is not negative"
    require(isinstance(made, sp.Expr) and not made.is_negative, message)
    return Random(kind, made)


def gauss(name: str, *sorts: Sort, var: Any = 1) -> Gauss:
    """Make Gaussian data whose last sort is a vector; ``var`` is a number or a
    `spectrum`.
    """
    vectors = [isinstance(s, Sort) and s.vector for s in sorts]
    last = (
        sorts
        and vectors == [s is sorts[-1] for s in sorts]
        and all(map(_is_sort, sorts))
    )
    message = "its last sort, and no other, must be a vector: sort(..., vector=True)"
    require(last, f"gauss {name}: {message}")
    return Gauss(name, sorts, var if isinstance(var, Spectrum) else sympified(var))


def draw(sort: Sort, *, distinct: Any = (), of: Term | None = None) -> Index:
    """An element drawn uniformly for every input, none of those in ``distinct``."""
    require(_is_sort(sort), f"draw of {sort!r}: must be of a sort")
    others = tuple(distinct) if isinstance(distinct, tuple | list) else (distinct,)
    for other in others:
        message = f"draw of {sort}: distinct from {other!r}: must be a {sort}"
        require(isinstance(other, Term) and other.sort is sort, message)
    require(not sort.vector, f"draw of {sort}: directions of a vector cannot be drawn")
    return Index(sort, _parent(f"draw of {sort}", sort, of), others)


def fixed(sort: Sort, place: Any, *, of: Term | None = None) -> Index:
    """The element at a known place, counted from 1;
    no direction of a vector has one.
    """
    require(_is_sort(sort), f"fixed {sort!r}: must be of a sort: fixed(sort, place)")
    place_number = node(place).of
    inside = (
        place_number.is_integer
        and not place_number.is_nonpositive
        and not (sort.size - place_number).is_negative
    )
    require(not sort.vector, f"fixed {sort}: directions of a vector have no places")
    require(inside, f"fixed {sort}: place = {place}: must lie in 1..{sort.size}")
    return Index(sort, _parent(f"fixed {sort}", sort, of), place=place_number)


def _is_sort(s: Any) -> bool:
    return isinstance(s, Sort)


def _parent(what: str, sort: Sort, of: Term | None) -> Term | None:
    fit = of is None if sort.of is None else isinstance(of, Term) and of.sort is sort.of
    wanted = (
        "belongs to none"
        if sort.of is None
        else f"must be the {sort.of} that it belongs to"
    )
    require(fit, f"{what}: of = {of!r}: {wanted}")
    return of


def eq(i: Any, j: Any) -> Node:
    """One where two indices, or two numbers (as counts are), are equal, else zero."""
    if not isinstance(i, Term) and not isinstance(j, Term):
        return Node("equal", (node(i), node(j)))
    fits("eq", (i.sort if isinstance(i, Term) else j.sort,) * 2, (i, j))
    return Node("same", (), (i, j))


def exp(x: Any) -> Node:
    """Exponential."""
    return Node("exp", (node(x),))


def log(x: Any) -> Node:
    """Natural logarithm."""
    return Node("log", (node(x),))


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
        A sort that belongs to another one comes after it, unless ``of`` names the
        element.
    below, upto : Term
        Of an ordered sort, the first position that is left out, or the last one that is
        not.

    Raises
    ------
    ParameterError
        If a sort lacks the one it belongs to, or one that is not ordered is masked.
    """
    indices: list[Index] = []
    for s in sorts:
        require(isinstance(s, Sort), f"total over {s!r}: must be a sort")
        above = [i for i in indices if i.sort is s.of]
        parent = above[-1] if above else (None if s.of is None else of)
        indices.append(Index(s, _parent(f"total over {s}", s, parent), bound=True))
    end = upto if below is None else below
    require(
        sorts and None in (below, upto),
        "total: needs a sort, and one of below and upto",
    )
    if end is not None:
        masked = len(sorts) == 1 and sorts[0].ordered
        require(masked, f"total over {sorts[0]}: only one ordered sort can be masked")
        fits("total: end", sorts, (end,))
    made = node(body(*indices))
    for i in reversed(indices):
        made = Node("total", (made,), () if end is None else (end,), i)
    return made if upto is None else made + body(upto)


def cross_entropy(
    logit: Callable[..., Any], *, over: Any, target: Any, of: Term | None = None
) -> Node:
    """Minus the logarithm of the softmax of ``logit`` at ``target``, over all of
    ``over``.

    ``over`` is a sort or a tuple of sorts, ``target`` a term or as many terms.
    """
    sorts = over if isinstance(over, tuple) else (over,)
    targets = target if isinstance(target, tuple) else (target,)
    fits("cross_entropy: target", sorts, targets)
    return log(total(lambda *i: exp(logit(*i)), *sorts, of=of)) - node(logit(*targets))
