"""Order parameters of any differentiable loss, found from its gradients."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.signal
import sympy as sp

from simulate.discover import inputs as listed
from simulate.discover import names
from simulate.discover.flow import AGREE, STEPS, NumericFlow, Reduced
from simulate.discover.loss import Loss
from simulate.discover.project import project
from simulate.discover.subspace import Subspace, discovered
from theory.parameters import ParameterError
from theory.runtime import output

SLOW = 0.01  # share of the fall of the loss in the second half of a run that is long enough
MOST_DOUBLINGS = 24
PEAK = 0.05  # of the fastest fall of the loss: smaller peaks are no escape
POINTS = 2001


@dataclass(frozen=True, repr=False)
class Discovered:
    """The smallest set of numbers in which descent of a loss from its start closes.

    Attributes
    ----------
    loss : Loss
        Mean loss over the inputs, in double precision.
    subspace : Subspace
        Classes of entries, coordinates and the evidence for them.
    exact : bool
        Whether the inputs are all inputs; otherwise the answer is for this sample.
    deviation : float
        Largest difference between descent of the module and of its flow, relative to weights.
    seconds : float
        What the search took.
    """

    loss: Loss = field(repr=False)
    subspace: Subspace = field(repr=False)
    exact: bool
    deviation: float
    seconds: float

    project = project

    @functools.cached_property
    def parts(self) -> list[list[names.Part]]:
        """For every class, its entries of every weight."""
        return names.parts(self.subspace.labels, self.loss.shapes, self.loss.places)

    @property
    def symbols(self) -> list[sp.Symbol]:
        """Symbols of the order parameters in the flow: x1, x2, ..."""
        return [sp.Symbol(f"x{k + 1}", real=True) for k in range(len(self.subspace.forms))]

    @property
    def order_parameters(self) -> list[str]:
        """The order parameters, as combinations of entries (means over their classes)."""
        return [names.order(row, self.parts) for row in self.subspace.forms]

    @property
    def classes(self) -> dict[str, int]:
        """Classes of entries that move alike, and how many entries each has."""
        return {
            " and ".join(map(str, of)): int(n)
            for of, n, moves in zip(
                self.parts, self.subspace.counts, self.subspace.moving, strict=True
            )
            if moves
        }

    @property
    def still(self) -> int:
        """Number of trainable weights that never move."""
        return int(self.subspace.counts[~self.subspace.moving].sum())

    @functools.cached_property
    def conserved(self) -> list[str]:
        """Combinations of moving entries that are constant."""
        return [names.order(row, self.parts) for row in self.subspace.conserved]

    @property
    def scope(self) -> str:
        """For which inputs the answer holds."""
        many = max(map(len, listed.columns(self.loss.inputs)), default=0)
        of = f" ({many:,} listed)" if many else ""
        return f"exact over all inputs{of}" if self.exact else f"for this sample{of}"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Checks: what was compared, the deviation, and the largest that passes."""
        return [
            {
                "check": f"descent of the module and of the flow, {STEPS} steps",
                "deviation": self.deviation,
                "tolerance": AGREE,
                "passed": self.deviation < AGREE,
            }
        ]

    @functools.cached_property
    def flow(self) -> NumericFlow:
        """Gradient flow of the order parameters; time is learning rate times number of steps."""
        s = self.subspace
        state = self.symbols
        rates = {x: sp.Function(f"rate_{x.name}")(*state) for x in state}
        reduced = Reduced(self.loss, s)
        value = type("loss", (sp.Function,), {"_imp_": staticmethod(reduced.value)})
        return NumericFlow(
            self.loss.name,
            sp.Symbol("t"),
            rates,
            dict(zip(state, map(sp.Float, s.coordinates(s.start)), strict=True)),
            "discovered from gradients",
            "exact",
            (self.scope,),
            observables={"loss": value(*state)},
            entries=lambda: reduced,  # type: ignore[arg-type, return-value]
            reduced=reduced,
        )

    def onset(self, until: float | None = None) -> dict[str, Any]:
        """When the loss falls: growth rates at the start, the time of half of its fall, and the
        times at which it leaves a plateau (peaks of its rate).

        Parameters
        ----------
        until : float, optional
            Final time; by default long enough that the loss hardly falls any more.
        """
        end = until or self._long_enough()
        path = self.flow.solve(t=end, at=np.linspace(0, end, POINTS), rtol=1e-9, atol=1e-12)
        t, loss = path.t.values, path.loss.values
        fall = -np.gradient(loss, t)
        padded = np.concatenate([[0], fall, [0]])
        escapes = scipy.signal.find_peaks(padded, prominence=PEAK * fall.max())[0] - 1
        escapes, plateaus = escapes[escapes > 0], []
        for a, b in zip([0, *escapes], escapes, strict=False):
            if b > a:
                k = a + int(fall[a : b + 1].argmin())
                plateaus.append(
                    {"loss": float(loss[k]), "until": float(t[b]), "slowest": float(t[k])}
                )
        half = (loss[0] + loss[-1]) / 2
        return {
            "until": float(end),
            "loss_start": float(loss[0]),
            "loss_end": float(loss[-1]),
            "growth_rates": [complex(m.rate).real for m in self.flow.linearised()],
            "half_loss": float(np.interp(-half, -loss, t)),
            "escapes": [float(t[k]) for k in escapes],
            "plateaus": plateaus,
        }

    def _long_enough(self) -> float:
        rate = max((abs(m.rate) for m in self.flow.linearised()), default=0.0)
        end = 1 / max(rate, 1e-3)
        for _ in range(MOST_DOUBLINGS):
            path = self.flow.solve(t=end, at=[0, end / 2, end], rtol=1e-8, atol=1e-10)
            first, middle, last = path.loss.values
            if middle - last < SLOW * (first - last):
                return end
            end *= 2
        raise ParameterError(f"until: the loss still falls at t = {end:g}; give until=...")

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        s = self.subspace
        return {
            "order_parameters": [
                {"name": x.name, "meaning": text, "start": float(v)}
                for x, text, v in zip(
                    self.symbols, self.order_parameters, s.coordinates(s.start), strict=True
                )
            ],
            "rational": s.rational,
            "classes": [{"entries": n, "where": text} for text, n in self.classes.items()],
            "never_move": self.still,
            "frozen": self.loss.frozen,
            "conserved": self.conserved,
            "weights": self.loss.size,
            "inputs": self.scope,
            "exact": self.exact,
            "smallest_accepted": s.gap.accepted,
            "largest_rejected": s.gap.rejected,
            "classes_smallest_accepted": s.class_gap.accepted,
            "classes_largest_rejected": s.class_gap.rejected,
            "checks": self.rows,
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        """A block to quote, then classes and conserved quantities."""
        s = self.subspace
        many = len(s.forms)
        everything = ": everything" if many == self.loss.size else ""
        lines = [
            f"{many} order parameter{'s' * (many != 1)} for {self.loss.size:,} weights{everything}, "
            f"{self.scope}",
            f"residuals: {s.gap}; classes: {s.class_gap}",
            f"{self.rows[0]['check']}: {self.deviation:.1e} (at most {AGREE:g})",
            "",
        ]
        for x, text in zip(self.symbols, self.order_parameters, strict=True):
            lines += output.wrapped(f"{x.name} = {text}", output.WIDTH)
        lines += ["", "entries  class (entries that move alike)"]
        lines += [f"{n:7d}  {text}" for text, n in self.classes.items()]
        if self.still:
            lines.append(f"{self.still:7d}  never move")
        if self.loss.frozen:
            lines.append(f"not trained: {', '.join(self.loss.frozen)}")
        if self.conserved:
            lines += ["", "conserved:", *(f"  {text}" for text in self.conserved)]
        return "\n".join(lines)


def discover(
    module: Any,
    inputs: Any = None,
    start: Any = None,
    *,
    loss_fn: Callable | None = None,
    sample: bool | None = None,
    seed: int = 0,
) -> Discovered:
    """Find the order parameters of a loss: the smallest affine subspace of the weights that holds
    the start and is closed under the gradient of the mean loss.

    Parameters
    ----------
    module : Module, mapping of str to Tensor, or callable
        A module with a method ``loss(inputs)``, or with ``loss_fn``; named weights with
        ``loss_fn``; or a loss ``loss(weights, inputs)`` with ``start={name: tensor}``.
    inputs : object
        All inputs, or a fixed sample: tensors, or a list, tuple or mapping of tensors.
    start : number or mapping, optional
        Where weights start: by default where the module's stand; one number for all; or numbers and
        tensors by name.
    loss_fn : callable, optional
        ``loss_fn(module, inputs)``, the mean loss.
    sample : bool, optional
        Whether the inputs are a sample. By default they are all inputs if they list every
        combination of values, or stay the same when two values change places.
    seed : int
        Of the random points at which gradients are compared.

    Returns
    -------
    Discovered

    Raises
    ------
    ParameterError
        In one line, for a loss that is not a deterministic, differentiable, real number, for a
        start without symmetry, or where rounding cannot be told from a direction.
    """
    began = time.perf_counter()
    loss = Loss(module, inputs, loss_fn, start)
    subspace = discovered(loss.gradient, loss.start, loss.places, seed)
    deviation = Reduced(loss, subspace).deviation()
    if not deviation < AGREE:
        raise ParameterError(
            f"loss: descent of the module leaves its {len(subspace.forms)} order parameters by "
            f"{deviation:.1g} within {STEPS} steps; is the loss differentiable there?"
        )
    exact = listed.complete(loss.inputs) if sample is None else not sample
    return Discovered(loss, subspace, exact, deviation, time.perf_counter() - began)
