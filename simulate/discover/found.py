"""Order parameters of any differentiable loss, found from its gradients."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.interpolate
import scipy.signal
import sympy as sp
import xarray as xr

from simulate.discover import names
from simulate.discover.flow import AGREE, STEPS, NumericFlow, Reduced, project
from simulate.discover.loss import Loss
from simulate.discover.subspace import Subspace, discovered
from theory.onset import Onset, tabulated
from theory.optimisers import Optimiser
from theory.parameters import ParameterError
from theory.runtime import memory, output
from theory.trajectory import Trajectory

SLOW = 0.01  # share of the fall of the loss in the second half of a run that is long enough
LEAVES = 60  # e-folds after which a descent that has not left a saddle never does
MOST_DOUBLINGS = 24
PEAK = 0.05  # of the fastest fall of the loss: smaller peaks are no escape


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
    """

    loss: Loss
    subspace: Subspace
    exact: bool
    deviation: float

    project = project

    @functools.cached_property
    def parts(self) -> list[list[names.Part]]:
        """For every class, its entries of every weight."""
        return names.parts(self.subspace.labels, self.loss.shapes, self.loss.places)

    def described(self, rows: Iterable[Any]) -> list[str]:
        """Combinations of means over classes in words."""
        return [names.order(row, self.parts) for row in rows]

    @property
    def order_parameters(self) -> list[str]:
        """The order parameters, as combinations of entries (means over their classes)."""
        return self.described(self.subspace.forms)

    @property
    def conserved(self) -> list[str]:
        """Combinations of moving entries that are constant."""
        return self.described(self.subspace.conserved)

    @property
    def classes(self) -> dict[str, int]:
        """Classes of entries that move alike, and how many entries each has."""
        s = self.subspace
        named = zip(self.parts, s.counts.tolist(), s.moving, strict=True)
        return {" and ".join(map(str, of)): n for of, n, moves in named if moves}

    @property
    def still(self) -> int:
        """Number of trainable weights that never move."""
        return int(self.subspace.counts[~self.subspace.moving].sum())

    @property
    def scope(self) -> str:
        """For which inputs the answer holds."""
        lengths = {len(x) for x in names.columns(self.loss.inputs)}
        listed = f"{max(lengths):,} listed" if len(lengths) == 1 else "not counted"
        sample = f"for this sample ({listed}; all inputs may need fewer)"
        return f"exact over all inputs ({listed})" if self.exact else sample

    @property
    def checks(self) -> list[dict[str, Any]]:
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
        state = [sp.Symbol(f"x{k + 1}", real=True) for k in range(len(s.forms))]
        reduced = Reduced(self.loss, s)
        value = type("loss", (sp.Function,), {"_imp_": staticmethod(reduced.value)})
        return NumericFlow(
            self.loss.name,
            sp.Symbol("t"),
            {x: sp.Function(f"rate_{x.name}")(*state) for x in state},
            dict(zip(state, map(sp.Float, s.coordinates(s.start)), strict=True)),
            "discovered from gradients",
            "exact",
            (self.scope,),
            observables={"loss": value(*state)},
            entries=lambda: reduced,  # type: ignore[arg-type, return-value]
            reduced=reduced,
        )

    def predict(
        self, runs: xr.Dataset, eta: float | None = None, optimizer: Optimiser | None = None
    ) -> xr.Dataset:
        """Curves at the times of trained networks (of `project`): of the flow, or of descent on all
        inputs with the learning rate ``eta``.
        """
        t = np.asarray(runs.t, float)
        if eta is None:
            return self.flow.solve(t=t[-1], at=t)
        path = self.flow.descend(eta, round(t[-1] / eta), optimizer=optimizer)
        return path.sel(t=t, method="nearest", tolerance=eta / 2)

    def onset(self, until: float | None = None) -> Onset:
        """When the loss falls: growth rates at the start, the time of half of its fall, and of
        every plateau and escape from it (where its rate is smallest, and where it peaks).

        Parameters
        ----------
        until : float, optional
            Final time; by default long enough that the loss hardly falls any more and no saddle is
            left.
        """
        flow, notes = self.flow, []
        growth = [complex(m.rate) for m in flow.linearised()]
        end = until or 1 / max(*map(abs, growth), 1e-3)
        for _ in range(MOST_DOUBLINGS):
            path = Trajectory(flow, {}, end, 1e-9, 1e-12)
            curve = flow.observed({}, end * path.t, path.y)
            t, loss = curve.t.values, curve.loss.values
            fall = loss[0] - np.interp([end / 2, end], t, loss)
            up = end * np.linalg.eigvals(flow.reduced.jacobian(path.y[:, -1])).real.max()
            if until or (np.diff(fall) < SLOW * fall[1] and not 1 < up < LEAVES):
                break
            end *= 2
        if up > 1:
            notes.append(
                f"ends near a saddle, from which one direction grows by e in {end / up:.4g}"
            )
        rate = -np.gradient(loss, t)
        peaks = scipy.signal.find_peaks([0, *rate, 0], prominence=PEAK * rate.max())[0] - 1
        smooth = scipy.interpolate.PchipInterpolator(t, loss)
        rows: dict[str, tuple[Any, ...]] = {
            "run": (end, "length of the run"),
            "loss_start": (loss[0], "loss at the start"),
            "loss_end": (loss[-1], "loss at the end of the run"),
            "half_loss": (
                smooth.solve(loss[0] - fall[1] / 2, extrapolate=False)[0],
                "half of the fall of the loss",
                "t",
            ),
        }
        a, k = 0, 0
        for b in peaks:
            slow = a + int(rate[a : b + 1].argmin())
            if rate[slow] > (1 - PEAK) * rate[b]:  # a fall from the start is no escape
                continue
            a, k = b, k + 1
            rows |= {
                f"plateau_{k}": (t[slow], f"plateau {k}: the loss falls slowest", "t"),
                f"plateau_{k}_loss": (loss[slow], f"loss on plateau {k}"),
                f"escape_{k}": (t[b], f"escape from plateau {k}: the loss falls fastest", "t"),
            }
        for k, g in enumerate(growth, 1):
            rows[f"growth_{k}"] = (g.real, "growth rate at the start, real part")
        return tabulated(
            rows,
            curves=lambda: {"flow": curve},
            equations=lambda: [*flow.equations().values()],
            notes=notes,
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        s = self.subspace
        begun = self.flow.initial.items()
        return {
            "order_parameters": [
                {"name": x.name, "meaning": text, "start": float(v)}
                for (x, v), text in zip(begun, self.order_parameters, strict=True)
            ],
            "classes": [{"entries": n, "where": text} for text, n in self.classes.items()],
            "conserved": self.conserved,
            "never_move": self.still,
            "frozen": self.loss.frozen,
            "weights": self.loss.size,
            "inputs": self.scope,
            "exact": self.exact,
            "residuals": asdict(s.gap),
            "residuals_of_classes": asdict(s.class_gap),
            "checks": self.checks,
            "bytes": self.loss.bytes,
        }

    def __repr__(self) -> str:
        """A block to quote, then classes and conserved quantities."""
        s, meanings = self.subspace, self.order_parameters
        many = len(meanings)
        lines = [
            f"{many} order parameter{'s' * (many != 1)} for {self.loss.size:,} weights"
            f"{': everything' * (many == self.loss.size)}, {self.scope}",
            f"residuals: {s.gap}; classes: {s.class_gap}",
            f"{self.checks[0]['check']}: {self.deviation:.1e} (at most {AGREE:g})",
            "",
        ]
        pairs = zip(self.flow.state, meanings, strict=True)
        lines += [f"{x.name} = {text}" for x, text in pairs]
        lines += ["", "entries  class (entries that move alike)"]
        classes = self.classes | ({"never move": self.still} if self.still else {})
        lines += [f"{n:7d}  {text}" for text, n in classes.items()]
        if self.loss.frozen:
            lines.append(f"not trained: {', '.join(self.loss.frozen)}")
        if self.conserved:
            lines += ["", "conserved:", *(f"  {text}" for text in self.conserved)]
        return "\n".join(part for line in lines for part in output.wrapped(line, output.WIDTH))


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
    loss = Loss(module, inputs, loss_fn, start)
    if loss.bytes > memory.NEGLIGIBLE_BYTES:
        size = memory.amount(loss.bytes)
        there = memory.amount(memory.available())
        print(f"note: one gradient needs {size} of memory, there are {there}", file=sys.stderr)
    subspace = discovered(loss.gradient, loss.start, loss.shapes, loss.places, seed)
    deviation = Reduced(loss, subspace).deviation()
    if not deviation < AGREE:
        raise ParameterError(
            f"loss: descent of the module leaves its {len(subspace.forms)} order parameters by "
            f"{deviation:.1g} within {STEPS} steps; is the loss differentiable there, and leaves "
            "weights as they are?"
        )
    exact = inputs is None or names.complete(loss.inputs) if sample is None else not sample
    return Discovered(loss, subspace, exact, deviation)
