"""Optimisers as maps from gradients to steps, with PyTorch's definitions: descent with
momentum, Adam, weight decay, learning-rate schedules, clipping; and the weights behind
a flow that they move. Used for flows and theories of single students; no torch here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from theory.call.parameters import BaseParameters, parameter
from theory.call.refusal import ParameterError
from theory.numbers import numeric
from theory.symbols.notation import Forms
from theory.symbols.reading import sympified

CLIPPED = 1e-6  # added to the norm by torch.nn.utils.clip_grad_norm_


@dataclass(frozen=True, kw_only=True)
class Optimiser(BaseParameters):
    """How weights move, apart from the learning rate and the length of the run.
    Parameters of students inherit these fields.

    Raises
    ------
    ParameterError
        For a value out of range, or one that the chosen optimiser does not use.
    """

    optimizer: str = parameter("sgd", "optimiser", choices=("sgd", "adam", "adamw"))
    weight_decay: float = parameter(
        0.0, "weight decay: coupled for sgd and adam, decoupled for adamw", low=0
    )
    momentum: float = parameter(0.0, "momentum of sgd", low=0, below=1, later=True)
    nesterov: bool = parameter(False, "Nesterov's momentum", later=True)
    beta_1: float = parameter(
        0.9, "Adam's memory of gradients", low=0, below=1, later=True
    )
    beta_2: float = parameter(
        0.999, "Adam's memory of squares", low=0, below=1, later=True
    )
    epsilon: float = parameter(
        1e-8, "added to Adam's root of squares", low=0, later=True
    )
    schedule: str = parameter(
        "constant",
        "learning rate after warm-up",
        choices=("constant", "cosine"),
        later=True,
    )
    warmup: int = parameter(0, "steps of linear warm-up", low=0, later=True)
    clip: float | None = parameter(
        None, "largest norm of the gradient; none is unclipped", above=0, later=True
    )

    def __post_init__(self) -> None:
        """Check single fields, then that the chosen optimiser uses them."""
        super().__post_init__()
        used = {
            "momentum": self.optimizer == "sgd",
            "nesterov": self.momentum > 0,
            **dict.fromkeys(("beta_1", "beta_2", "epsilon"), self.optimizer != "sgd"),
        }
        for name, so in used.items():
            value = getattr(self, name)
            usual = type(self).__dataclass_fields__[name].default
            if not so and value != usual:
                why = f"for {self.optimizer}"
                if name == "nesterov":
                    why = "without momentum"
                raise ParameterError(f"{name} = {value}: must be {usual} {why}")

    def share(self, number: int, steps: int) -> float:
        """Share of the learning rate at step ``number`` (from 0) of a run of so many
        steps.

        Warm-up is linear, ``(number + 1) / warmup``; a cosine then falls to zero at the
        end.
        """
        if number < self.warmup:
            return (number + 1) / self.warmup
        if self.schedule == "constant":
            return 1.0
        through = (number - self.warmup) / max(steps - self.warmup, 1)
        return float(1 + np.cos(np.pi * min(through, 1.0))) / 2

    @property
    def steady(self) -> bool:
        """Whether a step, but for a share of the last one, depends on the weights
        alone.
        """
        plain = self.optimizer == "sgd" and not self.nesterov and self.clip is None
        return plain and self.schedule == "constant" and self.warmup == 0


class Steps:
    """Steps of one run: called with weights and gradients, gives the next weights.
    Arrays have a first axis over independent students.

    Parameters
    ----------
    how : Optimiser
        Also Parameters of students that inherit from it.
    eta : float or array
        Learning rate; or one per student, with an axis of length one for every further
        axis.
    steps : int
        Length of the run, for the schedule.
    entries : sequence of int, optional
        Number of equal weights that each array, or each of its entries, stands for, in
        the norm that is clipped.
    arrays : module
        What the arrays are of, NumPy by default; with PyTorch, weights and gradients
        are tensors.
    """

    def __init__(
        self,
        how: Optimiser,
        eta: Any,
        steps: int,
        entries: Sequence[Any] | None = None,
        arrays: Any = np,
    ) -> None:
        self.how = how
        self.eta = eta
        self.steps = steps
        self.entries = entries
        self.arrays = arrays
        self.number = 0
        self.first: list[np.ndarray] = []  # momentum, or Adam's means of gradients
        self.second: list[np.ndarray] = []  # Adam's means of squares

    def __call__(
        self, weights: Sequence[np.ndarray], gradients: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """The weights after one step."""
        how = self.how
        rate = self.eta * self.how.share(self.number, self.steps)
        self.number += 1
        slopes = self._clipped(gradients)
        if how.optimizer == "adamw":
            weights = [w * (1 - rate * how.weight_decay) for w in weights]
        elif how.weight_decay:
            pairs = zip(slopes, weights, strict=True)
            slopes = [g + how.weight_decay * w for g, w in pairs]
        moves = self._descent(slopes) if how.optimizer == "sgd" else self._adam(slopes)
        return [w - rate * x for w, x in zip(weights, moves, strict=True)]

    def _clipped(self, gradients: Sequence[np.ndarray]) -> list[np.ndarray]:
        if self.how.clip is None:
            return list(gradients)
        many = self.entries or [1] * len(gradients)
        square = sum(
            (n * g**2).sum(tuple(range(1, g.ndim)))
            for n, g in zip(many, gradients, strict=True)
        )
        norm = self.arrays.sqrt(square) + CLIPPED
        share = self.arrays.clip(self.how.clip / norm, None, 1)
        return [g * share.reshape(-1, *[1] * (g.ndim - 1)) for g in gradients]

    def _descent(self, slopes: list[np.ndarray]) -> list[np.ndarray]:
        """Heavy ball or Nesterov; the first step takes the gradient itself as its
        memory.
        """
        mu = self.how.momentum
        if mu == 0:
            return slopes
        before = self.first or [*map(self.arrays.zeros_like, slopes)]
        self.first = [mu * v + g for v, g in zip(before, slopes, strict=True)]
        if not self.how.nesterov:
            return self.first
        return [g + mu * v for g, v in zip(slopes, self.first, strict=True)]

    def _adam(self, slopes: list[np.ndarray]) -> list[np.ndarray]:
        """Adam: mean gradient over the root of the mean square, both without the bias
        of their start at zero. A weight that never had a gradient stays.
        """
        one = self.how.beta_1
        two = self.how.beta_2
        n = self.number
        of = self.arrays
        if not self.first:
            self.first = [*map(of.zeros_like, slopes)]
            self.second = [*map(of.zeros_like, slopes)]
        means = zip(self.first, slopes, strict=True)
        self.first = [one * m + (1 - one) * g for m, g in means]
        squares = zip(self.second, slopes, strict=True)
        self.second = [two * v + (1 - two) * g**2 for v, g in squares]
        moments = []
        for m, v in zip(self.first, self.second, strict=True):
            size = of.sqrt(v) / np.sqrt(1 - two**n) + self.how.epsilon
            mean = of.where(m == 0, 0.0, m)
            moments.append(mean / of.where(size == 0, 1.0, size) / (1 - one**n))
        return moments


@dataclass(frozen=True)
class Entries:
    """Values of weights that are equal by symmetry and stay so under any optimiser, as
    their gradients are equal, too.

    Attributes
    ----------
    slopes : mapping of Symbol to Expr
        Derivative of the loss by one of the weights with a value.
    many : mapping of Symbol to Expr
        How many weights have this value.
    start : mapping of Symbol to Expr
        Values at the start.
    order : mapping of Symbol to Expr
        Order parameters of the flow in these values.
    """

    slopes: Mapping[sp.Symbol, sp.Expr]
    many: Mapping[sp.Symbol, sp.Expr]
    start: Mapping[sp.Symbol, sp.Expr]
    order: Mapping[sp.Symbol, sp.Expr]

    def rates(self) -> Forms:
        """Rates of the order parameters under gradient descent, in the values of the
        weights.
        """
        rates = {}
        for x, form in self.order.items():
            moved = (sp.diff(form, w) * slope for w, slope in self.slopes.items())
            rates[x] = -sum(moved)
        return rates

    def path(
        self,
        state: Sequence[sp.Symbol],
        numbers: Mapping[str, Any],
        how: Optimiser,
        eta: float,
        steps: int,
    ) -> Any:
        """Order parameters, in the order of ``state``, before the first and after every
        step; shape ``(state, steps + 1)``.

        Raises
        ------
        ParameterError
            If a symbol has no value.
        """
        names = [*self.slopes]
        used = [*self.slopes.values(), *self.many.values(), *self.start.values()]
        symbols = set().union(*(sympified(e).free_symbols for e in used))
        free = sorted(symbols - {*names}, key=str)
        missing = [s.name for s in free if s.name not in numbers]
        if missing:
            raise ParameterError(f"optimizer: no value for {', '.join(missing)}")
        known = [float(numbers[s.name]) for s in free]

        def compiled(forms: Mapping[sp.Symbol, sp.Expr]) -> Any:
            function = numeric.system([*names, *free], [*forms.values()])
            return lambda values: function(*values, *known)

        slopes = compiled(self.slopes)
        orders = compiled({x: self.order[x] for x in state})
        start = compiled({w: self.start[w] for w in names})(names)
        many = compiled({w: self.many[w] for w in names})(names)
        step = Steps(how, eta, steps, many)
        path = np.empty((steps + 1, len(names), 1))  # the last axis: one student
        path[0, :, 0] = start
        for n in range(steps):
            gradients = np.array(slopes(path[n, :, 0]), float)[:, None]
            path[n + 1] = step([*path[n]], [*gradients])
        values = orders(path[..., 0].T)
        return np.array([np.broadcast_to(x, steps + 1) for x in values], float)
