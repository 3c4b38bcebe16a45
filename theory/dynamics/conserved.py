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
    logs = []
    for argument in (lambda x: 1 - x**2, lambda x: 1 - x, lambda x: x):
        logs += [sp.log(argument(x)) for x in state]
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
    terms = ansatz(flow.state)
    rng = np.random.default_rng(0)
    invariants: list[Equation] = []
    gradients = np.empty((0, len(flow.state)))
    slopes, space = _null_space(flow, terms, rng)
    for vector in reversed(space):
        along = np.vstack([gradients, vector @ slopes])
        rank = np.linalg.matrix_rank(along, tol=1e-6 * np.abs(along).max())
        if rank == len(gradients):
            continue
        pairs = zip(terms, vector, strict=True)
        quantity = flow.invariant({term: c for term, c in pairs if abs(c) > 1e3 * ZERO})
        if quantity is None:
            continue
        gradients = along
        name = f"conserved_{len(invariants) + 1}"
        start = quantity.subs(flow.initial)
        if not start.is_finite and start.has(sp.oo, -sp.oo, sp.zoo, sp.nan):
            start = sp.Symbol(f"C_{len(invariants) + 1}")
        source = (flow.reference, flow.status, flow.assumptions)
        invariants.append(Equation(name, start, quantity, *source))
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
        values = rhs(times, *points, *fixed[1:])
        rate = np.array([np.broadcast_to(r, points.shape[1]) for r in values], float)
        rows = numeric.compiled([*flow.state, *rates], moved)(*points, *rate)
        rows = np.array(rows).T
    rows = rows / np.where(rate.any(0), np.abs(rate).max(0), 1)[:, None]
    rows = rows[np.isfinite(rows).all(1)]
    at_one = numeric.compiled(flow.state, sp.Matrix(slopes))(*points[:, 0])
    at_one = np.array(at_one, float)
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
    factors = [sp.Mul.make_args(r) for r in rates]
    common = []
    for factor in factors[0]:
        if factor.is_nonzero and all(factor in of_rate for of_rate in factors):
            common.append(factor)
    rates = [r / sp.Mul(*common) for r in rates]
    rates += [slope(r, flow.time) for r in rates if flow.time in r.free_symbols]
    if any(not (r.has(*flow.state) or r.is_zero or vanishes(r)) for r in rates):
        return []  # SymPy leaves out such an equation
    if not any(rates):
        return [{}]
    free = flow._compiled[0]
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(DRAWS if free else 1):
        draws.append({x: _random(x, rng) for x in free})
    decimals = any(r.has(sp.Float) for r in rates)
    polynomials = all(r.is_polynomial(*flow.state) for r in rates)
    if decimals and polynomials and not free and len(flow.state) > 1:
        degrees = [sp.Poly(r, *flow.state).total_degree() for r in rates]
        many = math.prod(degrees) > MOST_SOLUTIONS  # SymPy may take for ever
        reached = _reached(flow, {}) if many else None
        if reached is not None:
            warnings.warn(f"{flow.name}: {SEARCHED}", stacklevel=2)
            return reached
    exact = polynomials or not decimals  # 0.695 as 139/200 makes large powers
    why: Exception | str = ""
    try:
        solutions = sp.solve(rates, flow.state, dict=True, rational=exact)
    except (NotImplementedError, ValueError, TypeError) as error:
        solutions = []
        why = error
    points = []
    for solution in solutions:
        if all(_real_and_constant(flow, v) for v in solution.values()):
            points.append({x: _real(v) for x, v in solution.items()})
    for numbers in draws:
        missed = []
        for other in _reached(flow, numbers) or ():
            if not any(_same_point(point, numbers | other) for point in points):
                missed.append(other)
        if missed and free:
            miss = numbers | missed[0]
            where = ", ".join(f"{x} = {float(v):.6g}" for x, v in miss.items())
            why = (
                f"SymPy misses that at {where}; with numbers for parameters it is found"
            )
            break
    if why and (free or not missed):
        raise ParameterError(f"{flow.name}: fixed points: {why}")
    return points + missed


def _random(x: sp.Symbol, rng: np.random.Generator) -> float:
    """A random value of a parameter."""
    return float(rng.integers(3, 20)) if x.is_integer else 10 ** rng.uniform(-1.3, 0.3)


def _real(value: sp.Expr) -> sp.Expr:
    """A coordinate without an imaginary part that is rounding."""
    return sp.re(sp.N(value)) if value.is_number and not value.is_real else value


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
    moved = _at(rates, numbers)
    slopes = _at(jacobian, numbers)
    rng = np.random.default_rng(0)
    starts = (spread * rng.normal(size=len(flow.state)) for spread in SPREADS)
    roots = roots_from(moved, slopes, starts)
    # elsewhere it is far away
    roots = [here for here in roots if np.abs(slopes(here)).max() > STILL]
    if len(roots) > ENDLESS:
        return None
    points = []
    for here in roots:
        rounded = [sp.Float(v) if abs(v) > STILL**2 else sp.S.Zero for v in here]
        points.append(dict(zip(flow.state, rounded, strict=True)))
    return points


def _at(
    work: Any, numbers: Mapping[sp.Symbol, float]
) -> Callable[[np.ndarray], np.ndarray]:
    return lambda y: np.array(work(0.0, *y, *numbers.values()), float)


def _same_point(
    point: Mapping[sp.Symbol, sp.Expr], other: Mapping[sp.Symbol, Any]
) -> bool:
    """Whether a symbolic point is there; a coordinate that is no number counts as
    there.
    """
    for x, value in point.items():
        number = sp.N(value.subs(other))
        if number.is_number and not abs(number - other[x]) < SAME * (1 + abs(other[x])):
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
            off = rates(here)
            matrix = jacobian(here)
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
    for rhs in (flow.rhs, flow.expanded):
        # proved for numbers as they are written, as sums of rounded ones do not vanish
        rates = {x: _rational(rate) for x, rate in rhs.items()}
        rates[flow.time] = sp.S.One
        moved = []
        for f in terms:
            moved.append(sp.Add(*(sp.diff(f, x) * rate for x, rate in rates.items())))
        moving = {flow.time, *flow.state, *flow.where}
        coefficients = vanishing_sum(moved, moving)
        if coefficients is not None:
            combination = sp.Add(*map(sp.Mul, coefficients, terms))
            return combination if rates == rhs else combination.evalf()
    return None


def _rational(expr: sp.Expr) -> sp.Expr:
    """An expression with its decimals as fractions."""
    return sp.nsimplify(expr, rational=True) if expr.has(sp.Float) else expr


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
    if flow.driven:
        at_point = flow.jacobian().subs(point, simultaneous=True)
        if flow.time in at_point.free_symbols:
            raise ParameterError(
                f"{flow.name}: the rates depend on {flow.time}, growth has no rate"
            )
    if parameters is not None:
        parameter_names(flow, parameters)
        return _numbers(flow, point, sweep.numbers(parameters), fixed=at is not None)
    if at is not None:
        for x, rate in flow.expanded.items():
            here = shortest(replaced(rate, point))
            if not (here.is_zero or vanishes(here)):  # 0.0 is not equal to 0
                raise ParameterError(
                    f"at = {given}: no fixed point, the rate of {x} is {here}"
                )
    jacobian = flow.jacobian()
    matrix = jacobian.applyfunc(lambda slope: factored(replaced(slope, point)))
    if matrix.has(sp.nan, sp.zoo):
        raise ParameterError(f"at = {given}: rates have no derivative there")
    modes = []
    for block in matrix.connected_components():
        state = [flow.state[k] for k in block]
        for rate, vector in _eigenvectors(flow, matrix.extract(block, block)):
            pairs = zip(state, vector, strict=True)
            modes.append(Mode(rate, {x: v for x, v in pairs if v != 0}))
    return modes


def _eigenvectors(
    flow: Flow, block: sp.Matrix
) -> Iterator[tuple[sp.Expr, list[sp.Expr]]]:
    """Symbolic eigenvectors. Quadratic characteristic equations are solved, higher
    degrees raise an error.
    """
    rational, algebraic = dom_eigenvects(DomainMatrix.from_Matrix(block).to_field())
    for field, value, _, vectors in rational:
        rate = factored(field.to_sympy(value))
        for vector in vectors.to_list():
            yield rate, [factored(field.to_sympy(v)) for v in vector]
    for field, polynomial, _, vectors in algebraic:
        if polynomial.degree() > 2:
            raise ParameterError(
                f"{flow.name}: a growth rate solves an equation of degree"
                f" {polynomial.degree()}; give parameters for numbers"
            )
        (unknown,) = polynomial.gens
        a, b, c = polynomial.all_coeffs()
        half_width = sp.sqrt(factored(b**2 / (4 * a**2) - c / a))
        for sign in (1, -1):
            root = -b / (2 * a) + sign * half_width
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
    still = STILL * np.abs(matrix).max() * max(1.0, np.abs(x).max())
    if fixed and np.abs(moved).max() > still:
        k = int(np.abs(moved).argmax())
        raise ParameterError(
            f"at = {dict(point)}: no fixed point, {flow.state[k]} moves at the rate"
            f" {moved[k]:g}"
        )
    values, vectors = np.linalg.eig(matrix)
    modes = []
    for k in np.argsort(-values.real, kind="stable"):
        direction = zip(flow.state, vectors[:, k].tolist(), strict=True)
        modes.append(Mode(values[k].item(), dict(direction)))
    return modes
