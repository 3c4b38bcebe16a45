"""What follows from a flow without its solution: conserved quantities, found numerically and then
proved; growth rates about a point and their directions.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import sympy as sp
from sympy.polys.matrices import DomainMatrix
from sympy.polys.matrices.eigen import dom_eigenvects

from theory import notation, sweep
from theory.algebra import vanishes
from theory.equation import Equation
from theory.parameters import ParameterError, shown

if TYPE_CHECKING:
    from theory.flow import Flow


ZERO = 1e-9  # relative tolerance for rounding errors in a few hundred rates
MANY = 30  # with more order parameters, products of different ones are left out of the ansatz
POINTS = (0.1, 0.9)  # sampling range on which every term is real


def ansatz(state: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """Candidate terms of a conserved quantity, the least likely ones first."""
    logs = [sp.log(f(x)) for f in (lambda x: 1 - x**2, lambda x: 1 - x, lambda x: x) for x in state]
    pairs = [x * y for x, y in itertools.combinations_with_replacement(state, 2)]
    squares = [x**2 for x in state] if len(state) > MANY else pairs
    return [*logs, *(sp.exp(x) for x in state), *squares, *state]


def conserved(flow: Flow) -> list[Equation]:
    """Independent linear combinations of the terms of `ansatz` that are constant along a flow, for
    all parameter values.

    The null space of the terms' rates at random points selects the terms of each combination. Their
    coefficients then follow from the symbolic rates, and every result is proved by
    `theory.algebra.vanishes`.

    Returns
    -------
    list of Equation
        Each reads: initial value (a symbol if that is infinite) = conserved quantity. Only proved
        results are returned.
    """
    terms, rng = ansatz(flow.state), np.random.default_rng(0)
    invariants: list[Equation] = []
    gradients = np.empty((0, len(flow.state)))
    slopes, space = _null_space(flow, terms, rng)
    for vector in reversed(space):
        along = np.vstack([gradients, vector @ slopes])
        if np.linalg.matrix_rank(along, tol=1e-6 * np.abs(along).max()) == len(gradients):
            continue
        pairs = zip(terms, vector, strict=True)
        quantity = flow.invariant({term: c for term, c in pairs if abs(c) > 1e3 * ZERO})
        if quantity is None:
            continue
        gradients, name = along, f"conserved_{len(invariants) + 1}"
        start = quantity.subs(flow.initial)
        if not start.is_finite and start.has(sp.oo, -sp.oo, sp.zoo, sp.nan):
            start = sp.Symbol(f"C_{len(invariants) + 1}")
        invariants.append(
            Equation(name, start, quantity, flow.reference, flow.status, flow.assumptions)
        )
    return invariants


def _null_space(
    flow: Flow, terms: Sequence[sp.Expr], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the terms at one random point, and row-reduced coefficients of the combinations
    that are conserved at random parameters.
    """
    free, rhs = flow._compiled[:2]
    fixed = [
        rng.integers(3, 20) if x.is_integer else rng.uniform(0.5, 2) for x in (flow.time, *free)
    ]
    points = rng.uniform(*POINTS, (len(flow.state), 2 * len(terms) + 5))
    rates = [sp.Dummy() for _ in flow.state]
    slopes = [[sp.diff(f, x) for x in flow.state] for f in terms]
    moved = [sp.Add(*map(sp.Mul, row, rates)) for row in slopes]
    with np.errstate(all="ignore"):
        times = fixed[0] * rng.uniform(*POINTS, points.shape[1])
        gradients = rhs(times, *points, *fixed[1:])
        rate = np.array([np.broadcast_to(r, points.shape[1]) for r in gradients], float)
        rows = np.array(sp.lambdify([*flow.state, *rates], moved, "numpy")(*points, *rate)).T
    rows = rows / np.where(rate.any(0), np.abs(rate).max(0), 1)[:, None]
    rows = rows[np.isfinite(rows).all(1)]
    at_one = np.array(sp.lambdify(flow.state, slopes, "numpy")(*points[:, 0]), float)
    if len(rows) < len(terms):
        return at_one, np.empty((0, len(terms)))
    _, values, basis = np.linalg.svd(rows, full_matrices=False)
    space = sp.Matrix(basis[values <= ZERO * values[0]])
    reduced = space.rref(iszerofunc=lambda x: abs(x) < 1e3 * ZERO, pivots=False)
    return at_one, np.array(reduced, float)


def invariant(flow: Flow, terms: Any) -> sp.Expr | None:
    """The conserved combination of the given terms with symbolic coefficients, in place of their
    numerical ones; None if conservation cannot be proved.

    Abbreviations of the flow are kept unexpanded if the proof succeeds without expanding them.

    Raises
    ------
    ParameterError
        If terms are no mapping of expressions, or none.
    """
    if not isinstance(terms, Mapping) or not terms:
        raise ParameterError(f"terms = {shown(terms)}: must be a mapping, as {{x: 1, x**2: 1}}")
    known = {x.name: x for x in (flow.time, *flow.state, *flow.where)}
    terms = [flow._spell(notation.expression("terms", f, known)) for f in terms]
    for rates in (flow.rhs, flow.expanded):
        moving = {**rates, flow.time: sp.S.One}
        moved = [sp.Add(*(sp.diff(f, x) * rate for x, rate in moving.items())) for f in terms]
        unknown = [sp.Dummy() for _ in moved[1:]]
        total = moved[0] + sp.Add(*(c * rate for c, rate in zip(unknown, moved[1:], strict=True)))
        first = next((m for m in moved if m != 0), sp.S.One)
        top = sp.expand(
            sp.numer(sp.together(sp.Add(*(t / first for t in sp.Add.make_args(total)))))
        )
        by_point: defaultdict[sp.Expr, sp.Expr] = defaultdict(lambda: sp.S.Zero)
        for term in sp.Add.make_args(top):
            constant, moving = term.as_independent(
                flow.time, *flow.state, *flow.where, as_Add=False
            )
            by_point[moving] += constant
        solutions = sp.linsolve([*by_point.values()], unknown) if unknown else [()]
        for found in solutions if unknown or top == 0 else ():
            coefficients = [sp.factor(c.subs(dict.fromkeys(unknown, 0))) for c in found]
            weights = [sp.S.One, *coefficients]
            if vanishes(sp.Add(*(c * rate for c, rate in zip(weights, moved, strict=True)))):
                return sp.Add(*(c * f for c, f in zip(weights, terms, strict=True)))
    return None


STILL = 1e-9  # largest rate at a fixed point, relative to the Jacobian times the order parameters


class Mode(NamedTuple):
    """A direction in which the distance from a point grows as ``exp(rate * time)``."""

    rate: Any
    direction: dict[sp.Symbol, Any]


def linearised(
    flow: Flow, at: Mapping[Any, Any] | None = None, parameters: Any = None
) -> list[Mode]:
    """Growth rates and directions of a flow about a fixed point, or about its initial values.

    Parameters
    ----------
    flow : Flow
        The flow.
    at : mapping, optional
        Fixed point: a number or expression for every order parameter, or its name.
    parameters : Parameters or mapping, optional
        If given, the result is numerical, with the fastest growth first; otherwise it is symbolic.

    Returns
    -------
    list of Mode
        In the symbolic case, the modes of every decoupled block of the flow.

    Raises
    ------
    ParameterError
        If the point is not a fixed point, or if, without parameters, a characteristic polynomial
        has a degree above two.
    """
    given = notation.by_name(
        "at: {} is missing or unknown", flow.initial if at is None else at, flow.state
    )
    if missing := [x for x in flow.state if x not in given]:
        names = ", ".join(x.name for x in flow.state)
        raise ParameterError(f"at: {missing[0]} is missing or unknown; a point has {names}")
    known = {s.name: s for r in flow.expanded.values() for s in r.free_symbols}
    point = {x: notation.expression(f"at: {x}", v, known) for x, v in given.items()}
    if flow.driven and flow.time in flow.jacobian().subs(point, simultaneous=True).free_symbols:
        raise ParameterError(f"{flow.name}: the rates depend on {flow.time}, growth has no rate")
    if parameters is not None:
        return _numbers(flow, point, sweep.numbers(parameters), fixed=at is not None)
    if at is not None:
        for x, rate in flow.expanded.items():
            left = sp.together(rate.subs(point, simultaneous=True))
            if sp.expand(sp.numer(left)) != 0:
                raise ParameterError(f"at = {given}: no fixed point, the rate of {x} is {left}")
    matrix = flow.jacobian().subs(point, simultaneous=True).applyfunc(sp.cancel)
    if matrix.has(sp.nan, sp.zoo):
        raise ParameterError(f"at = {given}: rates have no derivative there")
    return [
        Mode(rate, {flow.state[k]: v for k, v in zip(block, vector, strict=True) if v != 0})
        for block in matrix.connected_components()
        for rate, vector in _eigenvectors(flow, matrix.extract(block, block))
    ]


def _eigenvectors(flow: Flow, block: sp.Matrix) -> Iterator[tuple[sp.Expr, list[sp.Expr]]]:
    """Symbolic eigenvectors. Quadratic characteristic equations are solved, higher degrees raise an
    error.
    """
    rational, algebraic = dom_eigenvects(DomainMatrix.from_Matrix(block).to_field())
    for field, value, _, vectors in rational:
        for vector in vectors.to_list():
            yield sp.factor(field.to_sympy(value)), [sp.factor(field.to_sympy(v)) for v in vector]
    for field, polynomial, _, vectors in algebraic:
        if polynomial.degree() > 2:
            raise ParameterError(
                f"{flow.name}: a growth rate solves an equation of degree {polynomial.degree()}; "
                "give parameters for numbers"
            )
        (unknown,), (a, b, c) = polynomial.gens, polynomial.all_coeffs()
        for sign in (1, -1):
            root = -b / (2 * a) + sign * sp.sqrt(sp.factor(b**2 / (4 * a**2) - c / a))
            for vector in vectors.to_list():
                yield root, [field.to_sympy(v).subs(unknown, root) for v in vector]


def _numbers(
    flow: Flow, point: Mapping[sp.Symbol, sp.Expr], numbers: Mapping[str, float], fixed: bool
) -> list[Mode]:
    """Numerical modes, the fastest growth first."""
    rates, jacobian, _ = flow._functions(numbers, 1.0)
    known = {s: numbers[s.name] for v in point.values() for s in v.free_symbols}
    x = np.array([float(point[y].subs(known)) for y in flow.state])
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = rates(0.0, x)
        matrix = jacobian(0.0, x) if jacobian else np.array(np.nan)
    if not np.isfinite(matrix).all():
        raise ParameterError(f"at = {dict(point)}: rates have no derivative there")
    if fixed and np.abs(moved).max() > STILL * np.abs(matrix).max() * max(1.0, np.abs(x).max()):
        k = int(np.abs(moved).argmax())
        raise ParameterError(
            f"at = {dict(point)}: no fixed point, {flow.state[k]} moves at the rate {moved[k]:g}"
        )
    values, vectors = np.linalg.eig(matrix)
    return [
        Mode(values[k].item(), dict(zip(flow.state, vectors[:, k].tolist(), strict=True)))
        for k in np.argsort(-values.real, kind="stable")
    ]
