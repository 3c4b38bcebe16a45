"""How order parameters depend on sizes: polynomials, compared at further sizes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp
import torch

from simulate.discover.found import Discovered, discover
from theory.call.parameters import BaseParameters, parameter
from theory.call.refusal import ParameterError, error_summary
from theory.statement.words.tree import require

HIGHEST = 4  # degree of a polynomial
Make = Callable[..., tuple[Any, Any]]


def parsed(make: Make, assignments: Sequence[str] = ()) -> dict[str, Any]:
    """Sizes that a function takes, from their defaults and ``NAME=VALUE``."""
    defaults = {
        k: None if p.default is p.empty else p.default
        for k, p in inspect.signature(make).parameters.items()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    fields = [
        (k, int | None if x is None else type(x), parameter(x, "size"))
        for k, x in defaults.items()
    ]
    kind = dataclasses.make_dataclass(
        "Sizes", fields, bases=(BaseParameters,), frozen=True
    )
    return kind().parse(assignments).as_dict()


def called(make: Make, sizes: Mapping[str, Any]) -> tuple[Any, Any]:
    """Module and inputs of these sizes.

    Raises
    ------
    ParameterError
        In one line, if a size has no value, or the function fails or returns something
        else.
    """
    for k, value in sizes.items():
        default = inspect.signature(make).parameters[k].default
        require(
            value is not None or default is None,
            f"{k}: has no default; add --set {k}=4",
        )
    try:
        made = make(**sizes)
    except Exception as error:  # a stranger's function may raise anything
        raise ParameterError(f"{make.__name__}: {error_summary(error)}") from error
    got = (
        f"a tuple of {len(made)}"
        if isinstance(made, tuple)
        else f"a {type(made).__name__}"
    )
    pair = (
        isinstance(made, tuple)
        and len(made) == 2
        and isinstance(made[0], torch.nn.Module)
    )
    require(pair, f"{make.__name__}: must return (module, inputs), returned {got}")
    return made


@dataclasses.dataclass(frozen=True)
class Counts:
    """Numbers as polynomials of one size.

    Attributes
    ----------
    size : str
        Which argument of ``make`` changes.
    found : mapping of int to Discovered
        What was found at each size.
    order_parameters, weights : Expr
        Their numbers.
    classes : mapping of str to Expr
        Entries of classes that have the same description at every size.
    checked : sequence of int
        Sizes at which every polynomial was compared without being fitted there.
    """

    size: str
    found: Mapping[int, Discovered]
    order_parameters: sp.Expr
    weights: sp.Expr
    classes: Mapping[str, sp.Expr]
    checked: Sequence[int]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        forms = {f"entries of {k}": v for k, v in self.classes.items()}
        forms |= {"order_parameters": self.order_parameters, "weights": self.weights}
        about = {"size": self.size, "at": [*self.found], "checked": self.checked}
        return about | {k: str(v) for k, v in reversed(forms.items())}

    def __repr__(self) -> str:
        """A line per number."""
        return "\n".join(f"{k}: {v}" for k, v in self.to_dict().items())


def scaling(make: Make, size: str, at: Sequence[int], **others: Any) -> Counts:
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
        If the numbers are no polynomial at these sizes, or two sizes are not left to
        check it.
    """
    sizes = parsed(make)
    require(
        size in sizes,
        f"{size}: no size of {make.__name__}, which has {', '.join(sizes)}",
    )
    sizes |= {k: others.pop(k) for k in sizes if k in others}
    found = {
        n: discover(*called(make, sizes | {size: n}), **others) for n in sorted({*at})
    }
    x = sp.Symbol(size, integer=True, positive=True)
    degrees = [0]

    def polynomial(name: str, count: Callable[[Discovered], int]) -> sp.Expr:
        points = [(n, count(f)) for n, f in found.items()]
        for degree in range(min(HIGHEST, len(points) - 3) + 1):
            form = sp.factor(sp.interpolate(points[: degree + 1], x))
            if all(form.subs(x, n) == number for n, number in points):
                degrees.append(degree)
                return form
        counts = ", ".join(f"{number} at {n}" for n, number in points)
        raise ParameterError(
            f"{name}: no polynomial of {size} that two further sizes confirm"
            f" ({counts}); give more"
        )

    everywhere = set[str].intersection(*({*f.classes} for f in found.values()))
    order_parameters = polynomial("order parameters", lambda f: len(f.order_parameters))
    weights = polynomial("weights", lambda f: f.loss.size)
    classes = {}
    for name in sorted(everywhere):
        classes[name] = polynomial(name, lambda f: f.classes[name])  # noqa: B023
    unused = [*found][max(degrees) + 1 :]
    return Counts(size, found, order_parameters, weights, classes, unused)
