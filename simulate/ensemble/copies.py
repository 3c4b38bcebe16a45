"""Copies of a module, each with weights, batches and a learning rate of its own,
trained as one `Learner`.
"""

from __future__ import annotations

import functools
import hashlib
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map

from simulate.discover.loss import MANY, Loss, alone, spread, widened
from simulate.training import arguments, jobs, optimisers, plan
from simulate.training.learner import Learner, State
from simulate.training.streams import keyed
from theory.call.parameters import Stepped, parameter
from theory.call.refusal import ParameterError, error_summary
from theory.dynamics.optimisers import Optimiser, Steps
from theory.statement.words.tree import require

BLOCK = 64  # steps whose batches are drawn together
MODEL = 2**62  # seed of the copy that identifies what is computed
# Files that are not the user's.
OTHERS = re.compile(
    rf'File "(<|{re.escape(str(Path(__file__).parents[1]))})|[/\\]torch[/\\]'
)
TAKEN = {"loss", "seed", "eta", "t", "step"}  # names in the result


@dataclass(frozen=True)
class Parameters(Stepped, Optimiser):
    """Training of a copy; time is the learning rate times steps.

    Raises
    ------
    ParameterError
        For values out of range, or that the optimiser does not use.
    """

    eta: float = parameter(0.1, "learning rate", above=0)
    steps: int = parameter(1000, "number of steps", low=1)
    eval_every: int = parameter(10, "steps between measurements", low=1)
    batch_size: int = parameter(
        0, "inputs of a batch, drawn anew for every step; 0: all", low=0
    )


def built(module: Any, seed: int) -> nn.Module:
    """The module of a seed; errors of a function that builds it stay as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = (
            module
            if isinstance(module, nn.Module) or not callable(module)
            else module()
        )
    require(
        isinstance(made, nn.Module),
        f"module = {made!r:.60}: must be, or build, a module of torch",
    )
    return made


@functools.lru_cache(2)
def drawn(seeds: Sequence[int], block: int, rows: int, size: int) -> Tensor:
    """Places of the rows of many batches, with replacement, from the stream of each
    seed.
    """
    streams = (keyed(seed, 0, block) for seed in seeds)
    return torch.tensor(
        np.array([s.integers(rows, size=(BLOCK, size)) for s in streams])
    )


class Copies(nn.Module, Learner):
    """Copies of a module under training.

    Parameters
    ----------
    module, data, loss_fn, observables, weights
        As for `ensemble`.
    points : sequence of Parameters
        Of every copy; they differ in the learning rate alone.
    seeds : sequence of int
        Of every copy.
    device : torch.device
        The CPU.
    dtype : torch.dtype
        Precision.

    Raises
    ------
    ParameterError
        In one line, for what cannot be trained so.
    """

    def __init__(
        self,
        module: Any,
        data: Any,
        loss_fn: Callable | None,
        observables: Mapping[str, Callable],
        weights: bool,
        points: Sequence[Any],
        seeds: Sequence[int],
        device: Any,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.p, self.many, self.recorded = points[0], len(seeds), weights
        # Torch rounds otherwise in a stack of one than in all others.
        self.seeds = tuple(seeds) * (2 if self.many == 1 else 1)
        self.data = some = tree_map(functools.partial(widened, dtype=dtype), data)
        if self.p.batch_size:
            rows = {
                len(x) if isinstance(x, Tensor) and x.ndim else 0
                for x in tree_leaves(data)
            }
            say = (
                "batch: draws rows of the data, which must be tensors with as many rows"
                " each"
            )
            require(len(rows) == 1 and rows != {0}, say)
            (self.rows,) = rows
            some = tree_map(lambda x: x[: max(self.p.batch_size, MANY)], some)
        every = [
            Loss(built(module, seed), some, loss_fn, dtype=dtype) for seed in self.seeds
        ]
        self.loss, self.module = every[0], every[0].module
        names = ", ".join(observables.keys() & self.loss.shapes.keys())
        require(
            not names, f"observables: {names}: is the name of a weight; take another"
        )
        own = {k: functools.partial(f, self.module) for k, f in observables.items()}
        self.functions = {"loss": self.loss.function, **own}
        try:
            params, buffers = stack_module_state([one.module for one in every])
        except RuntimeError as error:
            why = error_summary(error)
            raise ParameterError(
                f"module: is another under another seed ({why})"
            ) from error
        self.fixed = buffers | {k: params[k] for k in self.loss.frozen}
        self.theta = torch.cat(
            [params[k].detach().reshape(len(every), -1) for k in self.loss.shapes], 1
        )
        for b, one in enumerate(every):
            theta, fixed = self.copy(b)
            theta = theta.clone().requires_grad_()
            with one.exactly():
                ours, theirs = self.numbers(theta, fixed, some)["loss"], one.call(some)
                same = bool(torch.isclose(ours, theirs, 1e-4, equal_nan=True))
                if same and theirs.requires_grad:  # from small weights only slopes tell
                    (slope,) = torch.autograd.grad(ours, [theta])
                    other = one.derived(theirs)
                    same = not (slope - other).norm() > 1e-4 * other.norm()
            require(
                same,
                "module: differs from seed to seed in more than weights and buffers;"
                " keep what is drawn at random in buffers (register_buffer)",
            )
        rates = [[p.eta] for p in points] * (len(self.seeds) // self.many)
        self.moves: Any = Steps(
            self.p, torch.tensor(rates, dtype=dtype), self.p.steps, arrays=torch
        )

    def copy(self, b: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Weights and other tensors of one copy."""
        return self.theta[b], {k: x[b] for k, x in self.fixed.items()}

    def forward(self, data: Any) -> dict[str, Tensor]:
        """Loss and observables of the module, as `functional_call` takes them."""
        values = {k: spread(f, data) for k, f in self.functions.items()}
        bad = {k: x for k, x in values.items() if not isinstance(x, Tensor)}
        require(not bad, f"{bad}: must be tensors of torch")
        return values

    def numbers(self, theta: Tensor, fixed: Any, data: Any) -> dict[str, Tensor]:
        """Loss and observables of one copy, and its weights if they are recorded."""
        places = self.loss.places
        weights = {
            k: theta[places[k]].view(shape) for k, shape in self.loss.shapes.items()
        }
        called = {f"module.{k}": x for k, x in (weights | fixed).items()}
        return functional_call(self, called, (data,)) | (
            weights if self.recorded else {}
        )

    def traced(self, data: Any, axis: int | None, part: int) -> Any:
        """Operations that give gradients (part 0) or numbers (1) of all copies, without
        the Python that calls them.

        Raises
        ------
        ParameterError
            Naming the line of the user's code that torch cannot compute for many copies
            at once.
        """

        def loss(*of: Any) -> Any:
            found = self.numbers(*of)
            return found["loss"].sum(), found

        one = grad(loss, has_aux=True)
        try:
            with self.loss.exactly():
                made = make_fx(vmap(lambda *of: one(*of)[part], (0, 0, axis)))(
                    self.theta, self.fixed, data
                )
        except ParameterError:
            raise
        except Exception as error:  # a stranger's code may raise anything
            lines = traceback.format_tb(error.__traceback__)
            own = [x for x in lines if not OTHERS.search(x)]
            where = " ".join("".join(own[-1:]).split())
            raise ParameterError(
                "module: cannot be computed for many copies at once:"
                f" {where} ({error_summary(error)}); use torch.where for if and masks,"
                " torch.stack for assignments in place, no .item()"
            ) from error
        made.graph.eliminate_dead_code()
        made.recompile()
        return made

    @functools.cached_property
    def slopes(self) -> Any:
        """Gradients of all copies, of weights, other tensors and data."""
        return self.traced(self.batch(0), 0 if self.p.batch_size else None, 0)

    @functools.cached_property
    def values(self) -> Any:
        """Loss, observables and recorded weights of all copies."""
        return self.traced(self.data, None, 1)

    def batch(self, number: int) -> Any:
        """Data of a step: all, or rows drawn for every copy."""
        if not self.p.batch_size:
            return self.data
        block, at = divmod(number, BLOCK)
        places = drawn(self.seeds, block, self.rows, self.p.batch_size)[:, at]
        return tree_map(lambda x: x[places], self.data)

    def step(self, number: int) -> None:
        """One step of all copies."""
        slopes = self.slopes(self.theta, self.fixed, self.batch(number))
        (self.theta,) = self.moves([self.theta], [slopes])

    def measure(self) -> dict[str, np.ndarray]:
        """Loss over all data, observables, recorded weights."""
        found = self.values(self.theta, self.fixed, self.data)
        return {k: x[: self.many].detach().numpy() for k, x in found.items()}

    def state(self, b: int) -> State:
        """Weights and the optimiser's memory of one copy."""
        every = [self.theta, *self.moves.first, *self.moves.second]
        return {"number": self.moves.number, "arrays": [x[b].clone() for x in every]}

    def load(self, states: Sequence[State]) -> None:
        """Restore weights and the optimiser's memory of all copies."""
        columns = zip(*(s["arrays"] for s in states), strict=True)
        double = len(self.seeds) // self.many
        self.theta, *memory = (torch.stack(x * double) for x in columns)
        self.moves.first, self.moves.second = memory[:1], memory[1:]
        self.moves.number = int(states[0]["number"])

    def digest(self, b: int) -> str:
        """What a copy computes: operations, and all tensors before the first step."""
        graphs = self.slopes, self.values
        every = tree_leaves([self.copy(b), self.data, [g.state_dict() for g in graphs]])
        raw = [
            x.numpy().tobytes() if isinstance(x, Tensor) else repr(x).encode()
            for x in every
        ]
        return hashlib.sha256(
            b" ".join([g.code.encode() for g in graphs] + raw)
        ).hexdigest()[:32]


SYSTEM = plan.System(
    "ensemble",
    Parameters,
    Copies,
    {"loss": "mean loss over all data"},
    plan.records,
    time="step",
    sweep_parameter="eta",
    default_dtype="float64",
    devices=("cpu",),
    stack=64,
    joint=True,
)


def system(make: Callable, p: Any, copies: int, dtype: torch.dtype) -> plan.System:
    """How these copies are trained.

    Raises
    ------
    ParameterError
        In one line, for what cannot be trained so.
    """
    trial = make([p] * 3, [MODEL, MODEL, MODEL + 1], None, dtype)
    computed, again, other = map(trial.digest, range(3))
    require(
        computed == again,
        "module: is built otherwise when it is built again under the same seed; draw"
        " from torch's generator",
    )
    require(
        copies == 1 or p.batch_size or computed != other,
        "seeds: all copies would be the same, from the same weights on all data; give a"
        " function that builds the module (lambda: Net()), or batch=32",
    )
    loss, values = trial.loss, trial.measure()
    share = (
        max(1, trial.rows / max(p.batch_size, MANY)) if p.batch_size else 1
    )  # all data
    value, leaves = loss.call(loss.inputs), [*loss.leaves.values()]
    slopes = torch.autograd.grad(value, leaves, allow_unused=True)
    for name, slope in zip(loss.leaves, slopes, strict=True):
        say = (
            f"{name}: the loss does not depend on it; freeze it, requires_grad_(False)"
        )
        require(slope is not None, say)
    size = sum(x[0].size for x in values.values())
    dimensions = {}
    for k, x in values.items():
        dimensions[k] = tuple(f"{k}_{n}" for n in range(x.ndim - 1))

    def memory(p: Any, itemsize: int) -> float:
        return share * loss.bytes + 64 * loss.size + plan.records(p, size)

    return replace(
        SYSTEM,
        name=f"ensemble.{loss.name}",
        make=make,
        memory=memory,
        dimensions=dimensions,
        identity=lambda p: {"computation": computed},
    )


@alone
def ensemble(
    module: Any,
    data: Any = None,
    *,
    seeds: Iterable[int] | int = 8,
    eta: float | Sequence[float] = 0.1,
    steps: int = 1000,
    batch: int = 0,
    optimizer: str | Optimiser = "sgd",
    loss_fn: Callable | None = None,
    observables: Mapping[str, Callable] | None = None,
    weights: bool = False,
    eval_every: int | None = None,
    dtype: torch.dtype | str | None = None,
    store: Path | str | None = None,
    scheduler: str | None = None,
    **more: Any,
) -> xr.Dataset:
    """Train many copies of a module at once.

    Parameters
    ----------
    module : callable or Module
        A function, or class, that builds the module: the copy of seed s starts as
        ``module()`` is after ``torch.manual_seed(s)``. Of a module itself all copies
        start with its weights.
    data : object, optional
        What the loss is called with: tensors, or a list, tuple or mapping of tensors.
        What differs from copy to copy belongs into buffers of the module.
    seeds : iterable of int, or int
        Seeds, or their number counted from 0.
    eta : float or sequence of float
        Learning rate, or several; every seed is trained with each.
    steps : int
        Number of steps.
    batch : int
        Rows of the data in a batch, which are drawn with replacement for every step
        from the stream of each seed; 0: every step takes all data.
    optimizer : str or Optimiser
        ``sgd``, ``adam``, or a `theory.dynamics.optimisers.Optimiser`.
    loss_fn : callable, optional
        ``loss_fn(module, data)``, the mean loss; by default ``module.loss(data)``.
    observables : mapping of str to callable, optional
        Further measurements, ``function(module, data)``, which return tensors.
    weights : bool
        Whether trained weights are recorded, too, as variables with their names.
    eval_every : int, optional
        Steps between measurements; by default a hundredth of the run.
    dtype : torch.dtype or str, optional
        ``float64`` by default, or ``float32``.
    store : path, optional
        Folder of stored runs; ``output/runs`` by default.
    scheduler : str, optional
        Address of a dask scheduler (``tcp://HOST:PORT``) whose workers train, 64 copies
        at a time.
    **more
        ``workers`` and ``progress``, as of every student; a process trains 64 copies at
        a time.

    Returns
    -------
    Dataset
        ``loss`` over all data, and observables, over ``seed`` and ``t``, the learning
        rate times steps; of several learning rates over ``seed``, ``eta`` and ``step``,
        with ``t`` of each.

    Raises
    ------
    ParameterError
        In one line, for what cannot be trained so, or a loss that does not stay finite.
    """
    unknown = ", ".join(more.keys() - {"workers", "progress"})
    require(
        not unknown, f"{unknown}: unknown keyword; see help(simulate.ensemble.ensemble)"
    )
    say = (
        "adamw: is adam without weight decay; Optimiser(optimizer='adamw',"
        " weight_decay=0.01)"
    )
    require(optimizer != "adamw", say)
    calls = all(map(callable, (observables or {}).values()))
    require(calls, "observables: must be functions of module and data, by name")
    seeds = arguments.seeds(seeds)
    how = Optimiser(optimizer=optimizer) if isinstance(optimizer, str) else optimizer
    optimisers.identity(how)
    rates, own = np.atleast_1d(eta).tolist(), observables or {}
    require(
        rates and seeds, f"seeds = {seeds}, eta = {rates}: must be at least one of each"
    )
    names = ", ".join(TAKEN & own.keys())
    require(
        not names, f"observables: {names}: is the name of something else; take another"
    )
    one = Parameters(eta=rates[0], steps=steps, batch_size=batch, **how.as_dict())
    p = one.replace(
        eval_every=max(1, one.steps // 100) if eval_every is None else eval_every
    )
    make = functools.partial(Copies, module, data, loss_fn, own, weights)
    found = system(make, p, len(seeds), SYSTEM.precision(dtype))
    if scheduler:
        planned = found.plan(
            [p.replace(eta=v) for v in rates], seeds, store=store, dtype=dtype
        )
        for _, error in jobs.on_cluster(planned, scheduler, more.get("progress", True)):
            raise error
    runs = found.train(p, seeds, eta=rates, store=store, dtype=dtype, **more)
    runs = p.timed(runs.assign_coords(t=runs.eta * runs.step))
    return runs if np.ndim(eta) else runs.squeeze("eta").swap_dims(step="t")
