"""Order parameters of any differentiable loss, found from its gradients."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import sympy as sp
import torch
import xarray as xr

from simulate.discover import batches, names, onset
from simulate.discover.flow import NumericFlow
from simulate.discover.loss import Loss, alone
from simulate.discover.search import discovered
from simulate.discover.subspace import STEPS, Subspace
from theory.dynamics.onset import Onset
from theory.dynamics.optimisers import Optimiser
from theory.runtime import memory, output
from theory.statement.words.tree import require

AGREE = (
    1e-9  # largest difference of descent by module and by flow, over the largest weight
)


@dataclass(frozen=True, repr=False)
class Discovered:
    """The smallest set of numbers in which descent of a loss from its start closes.

    Attributes
    ----------
    subspace : Subspace
        The loss, classes of entries, coordinates and the evidence for them.
    exact : bool
        Whether the inputs are all inputs; otherwise the answer is for this sample.
    deviation : float
        Largest difference between descent of the module and of its flow, relative to
        weights.
    """

    subspace: Subspace
    exact: bool
    deviation: float

    @property
    def loss(self) -> Loss:
        """Mean loss over the inputs, in double precision."""
        return self.subspace.loss

    @functools.cached_property
    def parts(self) -> list[list[names.Part]]:
        """For every class, its entries of every weight."""
        return names.parts(self.loss.named(self.subspace.labels))

    def described(self, rows: Iterable[Any]) -> list[str]:
        """Combinations of means over classes in words."""
        return [names.order(row, self.parts) for row in rows]

    @property
    def order_parameters(self) -> list[str]:
        """The order parameters, as combinations of entries
        (means over their classes).
        """
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
        what = f"descent of the module and of the flow, {STEPS} steps"
        numbers = {"deviation": self.deviation, "tolerance": AGREE}
        return [{"check": what, **numbers, "passed": self.deviation < AGREE}]

    @functools.cached_property
    def flow(self) -> NumericFlow:
        """Gradient flow of the order parameters; time is learning rate times number of
        steps.
        """
        s = self.subspace
        start = s.coordinates(self.loss.start)
        state = sp.symbols(f"x1:{len(start) + 1}", real=True)
        value = type("loss", (sp.Function,), {"_imp_": staticmethod(s.value)})
        return NumericFlow(
            self.loss.name,
            sp.Symbol("t"),
            {x: sp.Function(f"rate_{x.name}")(*state) for x in state},
            dict(zip(state, map(sp.Float, start), strict=True)),
            "discovered from gradients",
            "exact",
            (self.scope,),
            observables={"loss": value(*state)},
            entries=lambda: s,  # type: ignore[arg-type, return-value]
            subspace=s,
        )

    def predict(
        self,
        runs: xr.Dataset,
        eta: float | None = None,
        optimizer: Optimiser | None = None,
        batch_size: int = 0,
    ) -> xr.Dataset:
        """Curves at the times of trained networks (of `project`).

        Parameters
        ----------
        runs : Dataset
            With times ``t``, learning rate times steps.
        eta : float, optional
            Learning rate of descent on all inputs; by default the flow is solved.
        optimizer : Optimiser, optional
            Of this descent.
        batch_size : int
            Inputs of a batch, drawn with replacement, of plain descent: every variable
            ``x`` gets ``x_bias`` and ``x_sd`` as of
            `theory.statement.randomness.minibatches.curves`. Every step costs twice as
            many gradients as there are weights.

        Raises
        ------
        ParameterError
            If batches come without ``eta`` or with an optimiser, the loss is not a mean
            over single inputs, or the descent diverges.
        """
        t, said = np.asarray(runs.t, float), "batch_size: give eta, and no optimizer"
        if eta is None:
            require(not batch_size, said)
            return self.flow.solve(t=t[-1], at=t)
        if batch_size:
            require(optimizer in (None, Optimiser()), said)
            steps, names = (
                np.rint(t / eta).astype(int),
                [x.name for x in self.flow.state],
            )
            found = batches.path(self.subspace, names, eta, steps, batch_size)
            curves = found.named(found.claimed(found.table, found.times))
            return xr.Dataset(curves, {"t": t}, {"kind": "theory", **found.about})
        path = self.flow.descend(eta, round(t[-1] / eta), optimizer=optimizer)
        return path.sel(t=t, method="nearest", tolerance=eta / 2)

    def onset(self, until: float | None = None) -> Onset:
        """When the loss falls: growth rates at the start, the time of half of its fall,
        and of every plateau and escape from it (where its rate is smallest, and where
        it peaks).

        Parameters
        ----------
        until : float, optional
            Final time; by default long enough that the loss hardly falls any more and
            no saddle is left.
        """
        return onset.onset(self, until)

    def project(
        self,
        checkpoints: Sequence[Any] | xr.Dataset,
        times: Sequence[float] | None = None,
    ) -> xr.Dataset:
        """Order parameters of checkpoints of a run, with any optimiser, batches and
        start.

        Parameters
        ----------
        checkpoints : sequence
            Modules, ``state_dict()`` mappings, or paths of saved ones, in the order of
            training; or a sequence of these for every seed; or what
            `simulate.ensemble.ensemble` gives with ``weights=True``, at its times.
        times : sequence of float, optional
            When, as learning rate times steps; by default 0, 1, 2, ...

        Returns
        -------
        Dataset
            Order parameters and ``loss`` over ``t``. ``outside`` is the share of the
            squared distance from the start that lies outside of the subspace,
            ``update_outside`` that of the move since the last checkpoint; ``by_chance``
            is the share of random weights.

        Raises
        ------
        ParameterError
            If a weight is missing, or has another shape.
        """
        seeds, several = {}, True
        if isinstance(checkpoints, xr.Dataset):
            data, shapes = checkpoints, self.loss.shapes
            know = {"seed", "t", *shapes} <= {*data.variables}
            require(
                know,
                "checkpoints: need seed, t and all weights; train with weights=True",
            )
            seeds, times = {"seed": data.seed}, data.t.values
            arrays = {k: data[k].transpose("seed", "t", ...).values for k in shapes}
            runs = []
            for a in range(data.sizes["seed"]):
                run = []
                for b in range(data.sizes["t"]):
                    run.append({k: x[a, b] for k, x in arrays.items()})
                runs.append(run)
        else:
            require(len(checkpoints), "checkpoints: there are none")
            several = isinstance(checkpoints[0], list | tuple)
            runs = [*checkpoints] if several else [[*checkpoints]]
        many = {len(run) for run in runs}
        t = np.arange(max(many)) if times is None else np.asarray(times)
        require({len(t)} == many, f"times: {len(t)} for {min(many)} checkpoints")
        flat = []
        for run in runs:
            flat.append([self.flat(c, n) for n, c in enumerate(run)])
        weights = np.array(flat)
        s, dims = self.subspace, ("seed", "t")
        values = s.coordinates(weights)
        theta = xr.DataArray(weights - self.loss.start, dims=(*dims, "weight"))
        outside = theta + self.loss.start - s.weights(values)
        moves = {
            "outside": (outside, theta),
            "update_outside": (outside - outside.shift(t=1), theta - theta.shift(t=1)),
        }
        shares = {
            k: (part**2).sum("weight") / (move**2).sum("weight")
            for k, (part, move) in moves.items()
        }
        coords = {"t": t.astype(float), **seeds}
        attributes = {"kind": "students", "inputs": self.scope}
        projected = xr.Dataset(shares, coords, attributes)
        projected["loss"] = dims, np.apply_along_axis(self.loss, -1, weights)
        projected["by_chance"] = 1 - len(s.forms) / self.loss.size
        named = zip(self.flow.state, self.order_parameters, strict=True)
        for k, (x, meaning) in enumerate(named):
            projected[x.name] = dims, values[..., k], {"meaning": meaning}
        return projected if several else projected.isel(seed=0)

    def flat(self, checkpoint: Any, number: int) -> np.ndarray:
        """All weights of a checkpoint in one vector."""
        if isinstance(checkpoint, torch.nn.Module):
            checkpoint = dict(checkpoint.named_parameters())
        elif not isinstance(checkpoint, Mapping):
            checkpoint = torch.load(checkpoint, map_location="cpu", weights_only=True)
        for name, shape in self.loss.shapes.items():
            require(name in checkpoint, f"checkpoint {number}: has no weight {name}")
            got = tuple(checkpoint[name].shape)
            require(
                got == shape,
                f"checkpoint {number}: {name} has shape {got}, must have {shape}",
            )
        theta = self.loss.flat(checkpoint)
        require(
            np.isfinite(theta).all(), f"checkpoint {number}: weights are not finite"
        )
        return theta

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        s = self.subspace
        initial = zip(self.order_parameters, self.flow.initial.items(), strict=True)
        order_parameters = [
            {"name": x.name, "meaning": text, "start": float(v)}
            for text, (x, v) in initial
        ]
        classes = [{"entries": n, "where": text} for text, n in self.classes.items()]
        return {
            "order_parameters": order_parameters,
            "classes": classes,
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
        s, size, (check,) = self.subspace, self.loss.size, self.checks
        meanings = dict(zip(self.flow.state, self.order_parameters, strict=True))
        many = len(meanings)
        classes = self.classes | ({"never move": self.still} if self.still else {})
        lines = [
            f"{many} order parameter{'s' * (many != 1)} for {size:,} weights"
            f"{': everything' * (many == size)}, {self.scope}",
            f"residuals: {s.gap}; classes: {s.class_gap}",
            f"{check['check']}: {self.deviation:.1e} (at most {AGREE:g})",
        ]
        lines += ["", *(f"{x} = {text}" for x, text in meanings.items())]
        lines += ["", "entries  class (entries that move alike)"]
        lines += [f"{n:7d}  {text}" for text, n in classes.items()]
        if self.loss.frozen:
            lines.append(f"not trained: {', '.join(self.loss.frozen)}")
        if self.conserved:
            lines += ["", "conserved:", *(f"  {text}" for text in self.conserved)]
        wrapped = []
        for line in lines:
            wrapped += output.wrapped(line, output.WIDTH)
        return "\n".join(wrapped)


@alone
def discover(
    module: Any,
    inputs: Any = None,
    start: Any = None,
    *,
    loss_fn: Callable | None = None,
    sample: bool | None = None,
    seed: int = 0,
) -> Discovered:
    """Find the order parameters of a loss: the smallest affine subspace of the weights
    that holds the start and is closed under the gradient of the mean loss.

    Parameters
    ----------
    module : Module, mapping of str to Tensor, or callable
        A module with a method ``loss(inputs)``, or with ``loss_fn``; named weights with
        ``loss_fn``; or a loss ``loss(weights, inputs)`` with ``start={name: tensor}``.
    inputs : object
        All inputs, or a fixed sample: tensors, or a list, tuple or mapping of tensors.
    start : number or mapping, optional
        Where weights start: by default where the module's stand; one number for all; or
        numbers and tensors by name.
    loss_fn : callable, optional
        ``loss_fn(module, inputs)``, the mean loss.
    sample : bool, optional
        Whether the inputs are a sample. By default they are all inputs if they list
        every combination of values, or stay the same when two values change places.
    seed : int
        Of the random points at which gradients are compared.

    Returns
    -------
    Discovered

    Raises
    ------
    ParameterError
        In one line, for a loss that is not a deterministic, differentiable, real
        number, for a start without symmetry, or where rounding cannot be told from a
        direction.
    """
    loss = Loss(module, inputs, loss_fn, start)
    if loss.bytes > memory.NEGLIGIBLE_BYTES:
        size = memory.amount(loss.bytes)
        there = memory.amount(memory.available())
        print(
            f"note: one gradient needs {size} of memory, there are {there}",
            file=sys.stderr,
        )
    subspace = discovered(loss, seed)
    deviation = subspace.deviation()
    require(
        deviation < AGREE,
        f"loss: descent of the module leaves its {len(subspace.forms)} order parameters"
        f" by {deviation:.1g} within {STEPS} steps; is the loss differentiable there,"
        " and leaves weights as they are?",
    )
    exact = (
        inputs is None or names.complete(loss.inputs) if sample is None else not sample
    )
    return Discovered(subspace, exact, deviation)
