"""How order parameters depend on sizes: polynomials, proved at further sizes."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from simulate.discover.found import Discovered, discover
from theory.parameters import ParameterError

HIGHEST = 4  # degree of a polynomial


@dataclass(frozen=True)
class Counts:
    """Numbers as polynomials of one size.

    Attributes
    ----------
    size : str
        Which argument of ``make`` changes.
    at : tuple of int
        The sizes; the last ones, which fixed no coefficient, are `checked`.
    found : tuple of Discovered
        What was found at each.
    order_parameters, weights : Expr
        Their numbers.
    classes : mapping of str to Expr
        Entries of classes that have the same description at every size.
    checked : tuple of int
        Sizes at which every polynomial was compared without being fitted there.
    """

    size: str
    at: tuple[int, ...]
    found: tuple[Discovered, ...]
    order_parameters: sp.Expr
    weights: sp.Expr
    classes: Mapping[str, sp.Expr]
    checked: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "size": self.size,
            "at": self.at,
            "order_parameters": str(self.order_parameters),
            "weights": str(self.weights),
            "classes": {k: str(v) for k, v in self.classes.items()},
            "checked": self.checked,
        }

    def __repr__(self) -> str:
        """A line per number."""
        lines = [
            f"order parameters: {self.order_parameters}",
            f"weights: {self.weights}",
            *(f"entries of {k}: {v}" for k, v in self.classes.items()),
            f"{self.size} = {', '.join(map(str, self.at))}; checked, not fitted, at "
            f"{', '.join(map(str, self.checked))}",
        ]
        return "\n".join(lines)


def scaling(
    make: Callable[..., tuple[Any, Any]], size: str, at: Sequence[int], **others: Any
) -> Counts:
    """Discover a module at several sizes.

    Parameters
    ----------
    make : callable
        Of sizes: the module and its inputs.
    size : str
        The argument that changes.
    at : sequence of int
        Its values: at least two more than the highest degree needs.
    **others
        Other arguments of ``make``, and keywords of `discover`.

    Raises
    ------
    ParameterError
        If the numbers are no polynomial at these sizes, or two sizes are not left to check it.
    """
    known = inspect.signature(make).parameters
    if size not in known:
        raise ParameterError(f"{size}: no size of make, which has {', '.join(known)}")
    at = tuple(sorted(set(at)))
    fixed = {k: v for k, v in others.items() if k in known}
    options = {k: v for k, v in others.items() if k not in known}
    found = tuple(discover(*make(**{size: n}, **fixed), **options) for n in at)
    x = sp.Symbol(size, integer=True, positive=True)
    degrees = []

    def polynomial(name: str, numbers: Sequence[int]) -> sp.Expr:
        for degree in range(min(HIGHEST, len(at) - 3) + 1):
            points = list(zip(at, numbers, strict=True))
            form = sp.expand(sp.interpolate(points[: degree + 1], x))
            if all(form.subs(x, n) == number for n, number in points):
                degrees.append(degree)
                return sp.factor(form)
        counts = ", ".join(f"{number} at {n}" for n, number in zip(at, numbers, strict=True))
        raise ParameterError(
            f"{name}: no polynomial of {size} that two further sizes confirm ({counts}); give more"
        )

    everywhere = [k for k in found[0].classes if all(k in f.classes for f in found)]
    numbers = {k: [f.classes[k] for f in found] for k in everywhere}
    order = polynomial("order parameters", [len(f.order_parameters) for f in found])
    weights = polynomial("weights", [f.loss.size for f in found])
    classes = {k: polynomial(k, v) for k, v in numbers.items()}
    checked = tuple(itertools.islice(at, int(np.max(degrees)) + 1, None))
    return Counts(size, at, found, order, weights, classes, checked)
