"""What follows from a flow without its solution: conserved quantities, found
numerically and then proved; fixed points; growth rates about a point and their
directions.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.optimize
import sympy as sp
from sympy.polys.matrices import DomainMatrix
from sympy.polys.matrices.eigen import dom_eigenvects

from theory.call import sweep
from theory.call.refusal import ParameterError
from theory.dynamics.solution import parameter_names
from theory.equations.equation import Equation
from theory.numbers import numeric
from theory.symbols import notation
from theory.symbols.algebra import replaced, slope, vanishes
from theory.symbols.fractions import factored, shortest, vanishing_sum

if TYPE_CHECKING:
    from theory.dynamics.flow import Flow


ZERO = 1e-9  # relative tolerance for rounding errors in a few hundred rates
# with more order parameters, products of different ones are left out of the ansatz
MANY = 30
POINTS = (0.1, 0.9)  # sampling range on which every term is real
SPREADS = np.array([0, *np.repeat(np.geomspace(1e-6, 1e9, 31), 8)])  # of random starts
ENDLESS = 30  # fixed points: more are taken for a continuum
DRAWS = 6  # random values of the parameters at which SymPy's fixed points are tried
MOST_SOLUTIONS = 4  # of several polynomials that are left to SymPy
SEARCHED = "fixed points: those reached from random points; there may be more"
# largest rate at a fixed point, relative to the Jacobian times the order parameters
STILL = 1e-9
SAME = 1e-6  # relative distance below which two fixed points are one


def ansatz(state: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """Candidate terms of a conserved quantity, the least likely ones first."""
    logs = [
        sp.log(f(x))
        for f in (lambda x: 1 - x**2, lambda x: 1 - x, lambda x: x)
        for x in state
    ]
    pairs = [x * y for x, y in itertools.combinations_with_replacement(state, 2)]
    squares = [x**2 for x in state] if len(state) > MANY else pairs
    return [*logs, *(sp.exp(x) for x in state), *squares, *state]


def conserved(flow: Flow) -> list[Equation]:
    """Independent linear combinations of the terms of `ansatz` that are constant along
    a flow, for all parameter values.

    The null space of the terms' rates at random points selects the terms of each
    combination. Their coefficients then follow from the symbolic rates, and every
    result is proved by `theory.symbols.fractions.vanishing_sum`.

    Returns
    -------
    list of Equation
        Each reads: initial value (a symbol if that is infinite) = conserved quantity.
        Only proved results are returned.
    """
    terms, rng = ansatz(flow.state), np.random.default_rng(0)
    invariants: list[Equation] = []
    gradients = np.empty((0, len(flow.state)))
    slopes, space = _null_space(flow, terms, rng)
    for vector in reversed(space):
        along = np.vstack([gradients, vector @ slopes])
        if np.linalg.matrix_rank(along, tol=1e-6 * np.abs(along).max()) == len(
            gradients
        ):
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
            Equation(
                name, start, quantity, flow.reference, flow.status, flow.assumptions
            )
        )
    return invariants


def _null_space(
    flow: Flow, terms: Sequence[sp.Expr], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the terms at one random point, and row-reduced coefficients of the
    combinations that are conserved at random parameters.
    """
    free, rhs = flow._compiled[:2]
    fixed = [
        rng.integers(3, 20) if x.is_integer else rng.uniform(0.5, 2)
        for x in (flow.time, *free)
    ]
    points = rng.uniform(*POINTS, (len(flow.state), 2 * len(terms) + 5))
    rates = [sp.Dummy() for _ in flow.state]
    slopes = [[sp.diff(f, x) for x in flow.state] for f in terms]
    moved = [sp.Add(*map(sp.Mul, row, rates)) for row in slopes]
    with np.errstate(all="ignore"):
        times = fixed[0] * rng.uniform(*POINTS, points.shape[1])
        found = rhs(times, *points, *fixed[1:])
        rate = np.array([np.broadcast_to(r, points.shape[1]) for r in found], float)
        rows = np.array(
            numeric.compiled([*flow.state, *rates], moved)(*points, *rate)
        ).T
    rows = rows / np.where(rate.any(0), np.abs(rate).max(0), 1)[:, None]
    rows = rows[np.isfinite(rows).all(1)]
    at_one = np.array(
        numeric.compiled(flow.state, sp.Matrix(slopes))(*points[:, 0]), float
    )
    if len(rows) < len(terms):
        return at_one, np.empty((0, len(terms)))
    _, values, basis = np.linalg.svd(rows, full_matrices=False)
    space = sp.Matrix(basis[values <= ZERO * values[0]])
    reduced = space.rref(iszerofunc=lambda x: abs(x) < 1e3 * ZERO, pivots=False)
    return at_one, np.array(reduced, float)


def fixed_points(flow: Flow) -> list[dict[sp.Symbol, sp.Expr]]:
    """Points where all rates vanish at all times: by SymPy, and as numbers those that
    it misses, if a search from random points reaches them. Several polynomials with
    decimals and more than `MOST_SOLUTIONS` solutions are only searched. Common factors
    that cannot vanish are divided out.

    Raises
    ------
    ParameterError
        If SymPy cannot solve the equations, or misses a solution while parameters are
        symbols.
    """
    rates = [factored(r) for r in flow.expanded.values()]
    common = [
        f
        for f in sp.Mul.make_args(rates[0])
        if f.is_nonzero and all(f in sp.Mul.make_args(r) for r in rates)
    ]
    rates = [r / sp.Mul(*common) for r in rates]
    rates += [slope(r, flow.time) for r in rates if flow.time in r.free_symbols]
    if any(not (r.has(*flow.state) or r.is_zero or vanishes(r)) for r in rates):
        return []  # SymPy leaves out such an equation
    if not any(rates):
        return [{}]
    free, rng = flow._compiled[0], np.random.default_rng(0)
    draws = [
        {
            x: (
                float(rng.integers(3, 20))
                if x.is_integer
                else 10 ** rng.uniform(-1.3, 0.3)
            )
            for x in free
        }
        for _ in range(DRAWS if free else 1)
    ]
    decimals = any(r.has(sp.Float) for r in rates)
    polynomials = all(r.is_polynomial(*flow.state) for r in rates)
    if decimals and polynomials and not free and len(flow.state) > 1:
        degrees = [sp.Poly(r, *flow.state).total_degree() for r in rates]
        found = _reached(flow, {}) if math.prod(degrees) > MOST_SOLUTIONS else None
        if found is not None:  # SymPy may take for ever
            warnings.warn(f"{flow.name}: {SEARCHED}", stacklevel=2)
            return found
    exact = polynomials or not decimals  # 0.695 as 139/200 makes large powers
    why: Exception | str = ""
    try:
        points = sp.solve(rates, flow.state, dict=True, rational=exact)
    except (NotImplementedError, ValueError, TypeError) as error:
        points, why = [], error
    points = [
        {
            x: sp.re(sp.N(v)) if v.is_number and not v.is_real else v
            for x, v in p.items()
        }
        for p in points
        if all(_real_and_constant(flow, v) for v in p.values())
    ]
    for numbers in draws:
        reached = _reached(flow, numbers) or ()
        missed = [
            p for p in reached if not any(_same_point(q, numbers | p) for q in points)
        ]
        if missed and free:
            where = ", ".join(
                f"{x} = {float(v):.6g}" for x, v in (numbers | missed[0]).items()
            )
            why = (
                f"SymPy misses that at {where}; with numbers for parameters it is found"
            )
            break
    if why and (free or not missed):
        raise ParameterError(f"{flow.name}: fixed points: {why}")
    return points + missed


def _real_and_constant(flow: Flow, value: sp.Expr) -> bool:
    """Whether a coordinate of a solution is real, and the same at all times."""
    if value.is_real is False or flow.time in value.free_symbols:
        return False
    number = sp.N(value) if value.is_number else sp.S.Zero
    return abs(sp.im(number)) <= SAME * abs(number)


def _reached(
    flow: Flow, numbers: Mapping[sp.Symbol, float]
) -> list[dict[sp.Symbol, sp.Expr]] | None:
    """Fixed points that are reached from random points, at numbers for the parameters;
    None where that is not possible, or there is no end of them.
    """
    _, rates, jacobian, _ = flow._compiled
    if flow.driven or jacobian is None:
        return None
    moved, slopes = _at(rates, numbers), _at(jacobian, numbers)
    rng = np.random.default_rng(0)
    starts = (spread * rng.normal(size=len(flow.state)) for spread in SPREADS)
    found = roots_from(moved, slopes, starts)
    found = [
        here for here in found if np.abs(slopes(here)).max() > STILL
    ]  # or it is far away
    if len(found) > ENDLESS:
        return None
    rounded = [
        [sp.Float(v) if abs(v) > STILL**2 else sp.S.Zero for v in here]
        for here in found
    ]
    return [dict(zip(flow.state, here, strict=True)) for here in rounded]


def _at(
    work: Any, numbers: Mapping[sp.Symbol, float]
) -> Callable[[np.ndarray], np.ndarray]:
    return lambda y: np.array(work(0.0, *y, *numbers.values()), float)


def _same_point(
    point: Mapping[sp.Symbol, sp.Expr], found: Mapping[sp.Symbol, Any]
) -> bool:
    """Whether a symbolic point is there; a coordinate that is no number counts as
    there.
    """
    for x, value in point.items():
        number = sp.N(value.subs(found))
        if number.is_number and not abs(number - found[x]) < SAME * (1 + abs(found[x])):
            return False
    return True


def roots_from(
    rates: Callable[[np.ndarray], np.ndarray],
    jacobian: Callable[[np.ndarray], np.ndarray],
    starts: Iterable[np.ndarray],
) -> list[np.ndarray]:
    """Points where nothing moves, those that are reached from the starts; there may be
    more.
    """
    points = list[np.ndarray]()
    for start in starts:
        with np.errstate(all="ignore"):
            here = scipy.optimize.root(rates, start, jac=jacobian).x
            off, matrix = rates(here), jacobian(here)
        if not np.isfinite([*off, *matrix.flat]).all():
            continue
        # rates also vanish far away, where saturated softmaxes are: there a Newton step
        # is long
        newton = np.linalg.lstsq(matrix, off, rcond=None)[0]
        size = max(1.0, np.abs(here).max())
        still = np.abs(off).max() < STILL * max(1.0, np.abs(matrix).max() * size)
        still &= np.abs(newton).max() < STILL * size
        if still and all(np.abs(here - p).max() > SAME * size for p in points):
            points.append(here - newton)
    return points


def invariant(flow: Flow, terms: Any) -> sp.Expr | None:
    """The conserved combination of the given terms with symbolic coefficients, in place
    of their numerical ones; None if conservation cannot be proved.

    Abbreviations of the flow are kept unexpanded if the proof succeeds without
    expanding them.

    Raises
    ------
    ParameterError
        If terms are no mapping of expressions, or none.
    """
    notation.mapping("terms = {}", terms or None, "{x: 1, x**2: 1}")
    known = {x.name: x for x in (flow.time, *flow.state, *flow.where)}
    terms = [flow._spell(notation.expression("terms", f, known)) for f in terms]
    for given in (flow.rhs, flow.expanded):
        # proved for numbers as they are written, as sums of rounded ones do not vanish
        rates = {
            x: sp.nsimplify(r, rational=True) if r.has(sp.Float) else r
            for x, r in given.items()
        }
        rates[flow.time] = sp.S.One
        moved = [
            sp.Add(*(sp.diff(f, x) * rate for x, rate in rates.items())) for f in terms
        ]
        moving = {flow.time, *flow.state, *flow.where}
        coefficients = vanishing_sum(moved, moving)
        if coefficients is not None:
            whole = sp.Add(*map(sp.Mul, coefficients, terms))
            return whole if rates == given else whole.evalf()
    return None


class Mode(NamedTuple):
    """A direction in which the distance from a point grows as ``exp(rate * time)``."""

    rate: Any
    direction: dict[sp.Symbol, Any]


def linearised(
    flow: Flow, at: Mapping[Any, Any] | None = None, parameters: Any = None
) -> list[Mode]:
    """Growth rates and directions of a flow about a fixed point, or about its initial
    values.

    Parameters
    ----------
    flow : Flow
        The flow.
    at : mapping, optional
        Fixed point: a number or expression for every order parameter, or its name.
    parameters : Parameters or mapping, optional
        If given, the result is numerical, with the fastest growth first; otherwise it
        is symbolic.

    Returns
    -------
    list of Mode
        In the symbolic case, the modes of every decoupled block of the flow.

    Raises
    ------
    ParameterError
        If the point is not a fixed point, or if, without parameters, a characteristic
        polynomial has a degree above two.
    """
    given = notation.by_name(
        "at: {} is missing or unknown", flow.initial if at is None else at, flow.state
    )
    if missing := [x for x in flow.state if x not in given]:
        names = ", ".join(x.name for x in flow.state)
        raise ParameterError(
            f"at: {missing[0]} is missing or unknown; a point has {names}"
        )
    known = {s.name: s for r in flow.expanded.values() for s in r.free_symbols}
    point = {x: notation.expression(f"at: {x}", v, known) for x, v in given.items()}
    if (
        flow.driven
        and flow.time in flow.jacobian().subs(point, simultaneous=True).free_symbols
    ):
        raise ParameterError(
            f"{flow.name}: the rates depend on {flow.time}, growth has no rate"
        )
    if parameters is not None:
        parameter_names(flow, parameters)
        return _numbers(flow, point, sweep.numbers(parameters), fixed=at is not None)
    if at is not None:
        for x, rate in flow.expanded.items():
            left = shortest(replaced(rate, point))
            if not (left.is_zero or vanishes(left)):  # 0.0 is not equal to 0
                raise ParameterError(
                    f"at = {given}: no fixed point, the rate of {x} is {left}"
                )
    jacobian = flow.jacobian()
    matrix = jacobian.applyfunc(lambda slope: factored(replaced(slope, point)))
    if matrix.has(sp.nan, sp.zoo):
        raise ParameterError(f"at = {given}: rates have no derivative there")
    return [
        Mode(
            rate,
            {flow.state[k]: v for k, v in zip(block, vector, strict=True) if v != 0},
        )
        for block in matrix.connected_components()
        for rate, vector in _eigenvectors(flow, matrix.extract(block, block))
    ]


def _eigenvectors(
    flow: Flow, block: sp.Matrix
) -> Iterator[tuple[sp.Expr, list[sp.Expr]]]:
    """Symbolic eigenvectors. Quadratic characteristic equations are solved, higher
    degrees raise an error.
    """
    rational, algebraic = dom_eigenvects(DomainMatrix.from_Matrix(block).to_field())
    for field, value, _, vectors in rational:
        for vector in vectors.to_list():
            yield (
                factored(field.to_sympy(value)),
                [factored(field.to_sympy(v)) for v in vector],
            )
    for field, polynomial, _, vectors in algebraic:
        if polynomial.degree() > 2:
            raise ParameterError(
                f"{flow.name}: a growth rate solves an equation of degree"
                f" {polynomial.degree()}; give parameters for numbers"
            )
        (unknown,), (a, b, c) = polynomial.gens, polynomial.all_coeffs()
        for sign in (1, -1):
            root = -b / (2 * a) + sign * sp.sqrt(factored(b**2 / (4 * a**2) - c / a))
            for vector in vectors.to_list():
                yield root, [field.to_sympy(v).subs(unknown, root) for v in vector]


def _numbers(
    flow: Flow,
    point: Mapping[sp.Symbol, sp.Expr],
    numbers: Mapping[str, float],
    fixed: bool,
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
    if fixed and np.abs(moved).max() > STILL * np.abs(matrix).max() * max(
        1.0, np.abs(x).max()
    ):
        k = int(np.abs(moved).argmax())
        raise ParameterError(
            f"at = {dict(point)}: no fixed point, {flow.state[k]} moves at the rate"
            f" {moved[k]:g}"
        )
    values, vectors = np.linalg.eig(matrix)
    return [
        Mode(
            values[k].item(), dict(zip(flow.state, vectors[:, k].tolist(), strict=True))
        )
        for k in np.argsort(-values.real, kind="stable")
    ]
