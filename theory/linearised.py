"""Linearisation of a flow about a point: growth rates and their directions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import sympy as sp
from sympy.polys.matrices import DomainMatrix
from sympy.polys.matrices.eigen import dom_eigenvects

from theory import sweep, unified
from theory.parameters import ParameterError

if TYPE_CHECKING:
    from theory.flow import Flow

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
    given = unified.by_name(
        "at: {} is missing or unknown", flow.initial if at is None else at, flow.state
    )
    if missing := [x for x in flow.state if x not in given]:
        names = ", ".join(x.name for x in flow.state)
        raise ParameterError(f"at: {missing[0]} is missing or unknown; a point has {names}")
    known = {s.name: s for r in flow.expanded.values() for s in r.free_symbols}
    point = {x: unified.expression(f"at: {x}", v, known) for x, v in given.items()}
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
        moved, matrix = rates(0.0, x), jacobian(0.0, x) if jacobian else np.array(np.nan)
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
