"""A module's mean loss as a function of one vector of all its trainable weights, in double
precision.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from theory.parameters import ParameterError, error_summary, nearest
from theory.runtime import memory

SAME = 1e-11  # of two evaluations at one point
AWAY = 0.1  # distance from the start at which they are compared: at zero weights dropout is silent
MANY = 512  # inputs from which the memory is estimated before a run
NARROW = (torch.float32, torch.float16, torch.bfloat16)
CASTS = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}


class Double(TorchFunctionMode):
    """Reads float32, float16 and bfloat16 as float64 in all that a module calls."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function with the wider type."""
        widened = [torch.float64 if x in NARROW else x for x in args if isinstance(x, torch.dtype)]
        if widened:
            of = iter(widened)
            args = tuple(next(of) if isinstance(x, torch.dtype) else x for x in args)
        if (kwargs or {}).get("dtype") in NARROW:
            kwargs = {**kwargs, "dtype": torch.float64}
        return (torch.Tensor.double if func in CASTS else func)(*args, **(kwargs or {}))


@contextlib.contextmanager
def double() -> Iterator[None]:
    """Double precision throughout, and attention whose second derivatives exist."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Double(), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.set_default_dtype(usual)


def widened(x: Any) -> Any:
    """Inputs on the CPU with every float in double precision; containers are kept."""
    if isinstance(x, Tensor):
        return x.detach().to("cpu", torch.float64 if x.is_floating_point() else None)
    if isinstance(x, Mapping):
        return {k: widened(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        parts = map(widened, x)
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if isinstance(x, np.ndarray | str | None):
        return x
    if hasattr(x, "__iter__") or hasattr(x, "__next__"):
        raise ParameterError(
            f"inputs: is {type(x).__name__}, of which a second pass may differ; "
            "give tensors, such as torch.stack([*inputs])"
        )
    if hasattr(x, "__dict__") and not callable(x):
        x = copy.copy(x)
        x.__dict__.update({k: widened(v) for k, v in vars(x).items() if isinstance(v, Tensor)})
    return x


def portion(x: Any, rows: int, of: int) -> Any:
    """Inputs with the first ``rows`` of every tensor that has ``of`` rows."""
    if isinstance(x, Tensor):
        return x[:rows] if x.ndim and len(x) == of else x
    if isinstance(x, Mapping):
        return {k: portion(v, rows, of) for k, v in x.items()}
    if isinstance(x, list | tuple):
        parts = [portion(v, rows, of) for v in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return x


def tensors(x: Any) -> list[Tensor]:
    """All tensors in inputs."""
    if isinstance(x, Tensor):
        return [x]
    if isinstance(x, Mapping):
        x = list(x.values())
    return [t for v in x for t in tensors(v)] if isinstance(x, list | tuple) else []


class Loss:
    """Mean loss over fixed inputs, as a function of all trainable weights in one vector.

    Parameters
    ----------
    of : Module, mapping of str to Tensor, or callable
        A module, which is copied; named weights; or the loss itself, with weights from ``start``.
    inputs : object
        What the loss is called with.
    loss_fn : callable, optional
        ``loss_fn(module or weights, inputs)``; by default the module's method ``loss(inputs)``.
    start : number, mapping, optional
        Where weights start: one number for all, or numbers or tensors by name.

    Raises
    ------
    ParameterError
        In one line, for a loss that is not a deterministic, differentiable, real number.
    """

    def __init__(self, of: Any, inputs: Any, loss_fn: Callable | None, start: Any) -> None:
        if callable(of) and not isinstance(of, torch.nn.Module):
            if not isinstance(start, Mapping):
                raise ParameterError(
                    "start: a loss alone does not say its weights; give start={name: tensor}"
                )
            of, loss_fn, start = start, of, None
        self.module = of if isinstance(of, torch.nn.Module) else None
        if self.module is not None:
            named = dict(of.named_parameters())
        elif isinstance(of, Mapping):
            named = {str(k): x for k, x in of.items()}
        else:
            raise ParameterError(
                f"module: must be a torch.nn.Module, a mapping of tensors or a loss, got {type(of).__name__}"
            )
        self.held = [k for k, x in named.items() if self.module is not None and not x.requires_grad]
        for name in self.held:
            del named[name]
        _real(named)
        if self.module is not None:
            of = _copied(of)
            self.module = of
            own: Any = getattr(of, "loss", None)
            if loss_fn is None and not callable(own):
                raise ParameterError(
                    f"{type(of).__name__}: has no method loss(inputs); give loss_fn=lambda module, inputs: ..."
                )
            self.leaves = {k: x for k, x in of.named_parameters() if k in named}
        else:
            if loss_fn is None:
                raise ParameterError("loss_fn: must be given for a mapping of tensors")
            of = {k: x.detach().to("cpu", torch.float64, copy=True) for k, x in named.items()}
            self.leaves = {k: x.requires_grad_() for k, x in of.items()}
        self.inputs = widened(inputs)
        function, before = (loss_fn, (of,)) if loss_fn is not None else (own, ())
        self._with = lambda inputs: _bound(function, before, inputs)
        self.call = self._with(self.inputs)
        self.shapes = {k: tuple(x.shape) for k, x in self.leaves.items()}
        ends = np.cumsum([x.numel() for x in self.leaves.values()])
        first = (0, *ends[:-1])
        self.places = {k: slice(a, b) for k, a, b in zip(self.shapes, first, ends, strict=True)}
        self.size = int(ends[-1])
        self.start = self._started(start)
        self._check()

    def flat(self, weights: Mapping[str, Any]) -> np.ndarray:
        """One vector of named weights."""
        parts = (
            np.asarray(torch.as_tensor(weights[k]).detach().cpu().double()) for k in self.shapes
        )
        return np.concatenate([x.ravel() for x in parts])

    def _started(self, start: Any) -> np.ndarray:
        begun = self.flat(self.leaves)
        if start is None:
            return begun
        if isinstance(start, int | float):
            return np.full_like(begun, start)
        if not isinstance(start, Mapping):
            raise ParameterError(
                f"start: must be a number or a mapping of names to tensors, got {type(start).__name__}"
            )
        for name, x in start.items():
            if name not in self.shapes:
                hint = nearest(str(name), self.shapes)
                raise ParameterError(
                    f"start: {name}: no trainable weight; {hint}there are {', '.join(self.shapes)}"
                )
            value = torch.as_tensor(x).detach().double().numpy()
            if value.shape not in ((), self.shapes[name]):
                raise ParameterError(
                    f"start: {name}: has shape {value.shape}, must have {self.shapes[name]}"
                )
            begun[self.places[name]] = np.broadcast_to(value, self.shapes[name]).ravel()
        return begun

    def load(self, theta: np.ndarray) -> None:
        """Set all weights."""
        with torch.no_grad():
            for name, x in self.leaves.items():
                x.copy_(torch.from_numpy(theta[self.places[name]].reshape(self.shapes[name])))

    def _at(self, theta: np.ndarray) -> Tensor:
        """The loss with these weights, differentiable."""
        self.load(theta)
        with double(), torch.enable_grad():
            return self.call()

    def _slopes(self, loss: Tensor, **options: Any) -> list[Tensor]:
        with double():
            return list(
                torch.autograd.grad(
                    loss,
                    [*self.leaves.values()],
                    allow_unused=True,
                    materialize_grads=True,
                    **options,
                )
            )

    def __call__(self, theta: np.ndarray) -> float:
        """The loss."""
        with torch.no_grad():
            return float(self._at(theta).detach())

    def gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its gradient."""
        loss = self._at(theta)
        slopes = self._slopes(loss)
        return float(loss.detach()), torch.cat([x.flatten() for x in slopes]).numpy()

    def curvature(self, theta: np.ndarray, along: np.ndarray) -> np.ndarray:
        """The Hessian times every column."""
        slopes = torch.cat([x.flatten() for x in self._slopes(self._at(theta), create_graph=True)])
        columns = []
        for column in along.T:
            of = (slopes * torch.from_numpy(np.ascontiguousarray(column))).sum()
            seconds = self._slopes(of, retain_graph=True) if of.requires_grad else []
            columns.append(
                torch.cat([x.flatten() for x in seconds]).numpy() if seconds else 0 * column
            )
        return np.stack(columns, 1)

    def _check(self) -> None:
        """Refuse what is no loss, before anything is computed from it."""
        buffers = dict(self.module.named_buffers()) if self.module is not None else {}
        before = {k: x.clone() for k, x in buffers.items()}
        drawn = torch.get_rng_state()
        away = self.start + AWAY * np.random.default_rng(0).normal(size=self.size)
        try:
            needed = self.memory()
            # a parameter that could be lowered does not exist: the message names the inputs
            if needed > memory.NEGLIGIBLE_BYTES and needed > memory.available():
                raise ParameterError(
                    f"inputs: one gradient over all of them needs {memory.amount(needed)}, there "
                    f"are {memory.amount(memory.available())}; give fewer"
                )
            loss = self._at(away)
        except ParameterError:
            raise
        except Exception as error:  # a stranger's code may raise anything
            raise ParameterError(f"loss: {error_summary(error)}") from error
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            what = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise ParameterError(f"loss: is {what}, must be one number, such as its .mean()")
        if loss.dtype != torch.float64:
            raise ParameterError(f"loss: is {loss.dtype}, must be real and in double precision")
        if not loss.requires_grad:
            raise ParameterError("loss: does not depend on any weight (detached, or a count)")
        changed = [k for k, x in before.items() if not torch.equal(x, buffers[k])]
        if changed:
            raise ParameterError(
                f"loss: changes the buffer {changed[0]} (batch norm in training mode?); call module.eval() first"
            )
        value = float(loss.detach())
        random = not torch.equal(drawn, torch.get_rng_state())
        if random or not abs(self(away) - value) <= SAME * max(abs(value), 1e-30):
            drops = [
                k
                for k, m in (self.module.named_modules() if self.module is not None else ())
                if m.training
                and isinstance(getattr(m, "p", getattr(m, "dropout", 0)), float)
                and getattr(m, "p", getattr(m, "dropout", 0)) > 0
            ]
            why = (
                f"dropout in {', '.join(drops)}; call module.eval() first"
                if drops
                else "use fixed inputs and no random numbers"
            )
            if np.isfinite(value) or random:
                raise ParameterError(f"loss: is not the same at every call: {why}")
        value, slopes = self.gradient(self.start)
        if not np.isfinite([value, *slopes]).all():
            what = f"is {value}" if not np.isfinite(value) else "has a gradient that is not finite"
            raise ParameterError(f"loss: {what} at the start")

    def memory(self) -> float:
        """Bytes that one gradient stores, from a small part of the inputs; 0 where they are few."""
        rows = max((len(x) for x in tensors(self.inputs) if x.ndim), default=0)
        if rows < MANY:
            return 0.0
        stored: dict[int, int] = {}

        def keep(x: Tensor) -> Tensor:
            storage = x.untyped_storage()
            stored[storage._cdata] = storage.nbytes()
            return x

        sizes = []
        for part in (MANY // 8, MANY // 4):
            stored.clear()
            hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x)
            try:
                with double(), torch.enable_grad(), hooks:
                    self._with(portion(self.inputs, part, rows))()
            except Exception:  # a loss for all inputs alone
                return 0.0
            sizes.append(sum(stored.values()))
        return 2.0 * (sizes[0] + (sizes[1] - sizes[0]) * (rows - MANY // 8) / (MANY // 8))


def _copied(of: torch.nn.Module) -> torch.nn.Module:
    """The module in double precision on the CPU, with its tensors that are no buffers."""
    try:
        of = copy.deepcopy(of).to("cpu", torch.float64)
    except (RuntimeError, TypeError) as error:
        raise ParameterError(f"{type(of).__name__}: {error_summary(error)}") from error
    for part in of.modules():
        attributes = [k for k, v in vars(part).items() if isinstance(v, Tensor)]
        vars(part).update({k: widened(vars(part)[k]) for k in attributes})
    return of


def _real(named: Mapping[str, Any]) -> None:
    """Refuse weights that no gradient moves."""
    if not named:
        raise ParameterError("module: has no trainable weights")
    for name, x in named.items():
        if not isinstance(x, Tensor):
            raise ParameterError(f"{name}: is {type(x).__name__}, must be a tensor")
        if not x.is_floating_point():
            kind = str(x.dtype).removeprefix("torch.")
            raise ParameterError(
                f"{name}: is {kind}, weights must be real floats; give {name}.double()"
            )


def _bound(function: Callable, before: tuple[Any, ...], inputs: Any) -> Callable[[], Any]:
    """The function with its inputs: as one argument, or spread where it takes several."""
    one = (*before, inputs)
    spread = (*before, *inputs) if isinstance(inputs, list | tuple) else None
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return lambda: function(*one)
    for arguments in (one, spread, before if inputs is None else None):
        if arguments is None:
            continue
        with contextlib.suppress(TypeError):
            signature.bind(*arguments)
            return lambda: function(*arguments)
    if isinstance(inputs, Mapping):
        return lambda: function(*before, **inputs)
    raise ParameterError(f"loss: {signature} cannot be called with these inputs")
