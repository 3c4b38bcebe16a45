"""A module's mean loss as a function of one vector of all its trainable weights, in double
precision.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from theory.parameters import ParameterError, error_summary, nearest
from theory.runtime import memory
from theory.statement.tree import require

SAME = 1e-11  # of two evaluations at one point
AWAY = 0.1  # distance from the start at which they are compared: at zero weights dropout is silent
MANY = 512  # inputs from which the memory is estimated before a run
NARROW = (torch.float32, torch.float16, torch.bfloat16)
CASTS = {Tensor.float, Tensor.half, Tensor.bfloat16}


class Double(TorchFunctionMode):
    """Reads float32, float16 and bfloat16 as float64 in all that a module calls."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function with the wider type."""

        def wide(x: Any) -> Any:
            return torch.float64 if isinstance(x, torch.dtype) and x in NARROW else x

        of = Tensor.double if func in CASTS else func
        return of(*map(wide, args), **{k: wide(v) for k, v in (kwargs or {}).items()})


@contextlib.contextmanager
def double() -> Iterator[None]:
    """Double precision throughout, and attention whose second derivatives exist."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Double(), sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(usual)


def widened(x: Any) -> Any:
    """A tensor on the CPU, in double precision if it is of floats; others as they are."""
    require(
        not hasattr(x, "__next__") and not isinstance(x, torch.utils.data.DataLoader),
        f"inputs: is {type(x).__name__}, of which a second pass may differ; give tensors, such as "
        "torch.cat([*inputs])",
    )
    if not isinstance(x, Tensor):
        return x
    return x.detach().to("cpu", torch.float64 if x.is_floating_point() else None)


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
        if callable(of) and not isinstance(of, nn.Module):
            require(
                isinstance(start, Mapping),
                "start: a loss alone does not say its weights; give start={name: tensor}",
            )
            of, loss_fn, start = start, of, None
        self.module = _copied(of) if isinstance(of, nn.Module) else None
        if self.module is not None:
            every, of = dict(self.module.named_parameters()), self.module
            named = {k: x for k, x in every.items() if x.requires_grad}
            self.frozen = [k for k in every if k not in named]
        else:
            require(
                isinstance(of, Mapping),
                "module: must be a torch.nn.Module, a mapping of tensors or a loss, got "
                + type(of).__name__,
            )
            named, self.frozen = {str(k): x for k, x in of.items()}, []
        require(named, "module: has no trainable weights")
        for name, x in named.items():
            require(
                isinstance(x, Tensor) and x.is_floating_point(),
                f"{name}: is {str(getattr(x, 'dtype', type(x).__name__)).removeprefix('torch.')}, "
                "weights must be tensors of real floats; give torch.tensor(..., dtype=torch.float64)",
            )
        if self.module is None:
            named = of = {k: widened(x).clone().requires_grad_() for k, x in named.items()}
        own = getattr(self.module, "loss", None)
        require(
            loss_fn or callable(own),
            f"{type(of).__name__}: has no method loss(inputs); give loss_fn=lambda module, inputs: "
            "...",
        )
        self.function: Callable = functools.partial(loss_fn, of) if loss_fn else own  # type: ignore
        self.leaves, self.inputs = named, tree_map(widened, inputs)
        self.shapes = {k: tuple(x.shape) for k, x in named.items()}
        ends = np.cumsum([x.numel() for x in named.values()]).tolist()
        self.places = dict(zip(named, map(slice, [0, *ends], ends), strict=False))
        self.size, self.bytes = ends[-1], 0.0
        self.start = self._started(start)
        self._check()

    def flat(self, weights: Mapping[str, Any]) -> np.ndarray:
        """One vector of named weights."""
        return torch.cat(
            [torch.as_tensor(weights[k]).detach().cpu().double().flatten() for k in self.shapes]
        ).numpy()

    def _started(self, start: Any) -> np.ndarray:
        begun = self.flat(self.leaves)
        if start is None:
            return begun
        if isinstance(start, int | float):
            return np.full_like(begun, start)
        require(
            isinstance(start, Mapping),
            f"start: must be a number or a mapping of names to tensors, got {type(start).__name__}",
        )
        for name, x in start.items():
            if name not in self.shapes:
                hint = nearest(str(name), self.shapes)
                raise ParameterError(
                    f"start: {name}: no trainable weight; {hint}there are {', '.join(self.shapes)}"
                )
            value, shape = torch.as_tensor(x).detach().double().numpy(), self.shapes[name]
            require(
                value.shape in ((), shape),
                f"start: {name}: has shape {value.shape}, must have {shape}",
            )
            begun[self.places[name]] = np.broadcast_to(value, shape).ravel()
        return begun

    def load(self, theta: np.ndarray) -> None:
        """Set all weights."""
        with torch.no_grad():
            for name, x in self.leaves.items():
                x.copy_(torch.from_numpy(theta[self.places[name]].reshape(self.shapes[name])))

    def call(self, inputs: Any = None) -> Any:
        """The loss with the weights as they are; several inputs are spread if it takes several."""
        inputs = self.inputs if inputs is None else inputs
        if isinstance(inputs, list | tuple | None) and not _takes_one(self.function):
            return self.function(*inputs or ())
        return self.function(inputs)

    def __call__(self, theta: np.ndarray) -> float:
        """The loss."""
        self.load(theta)
        with double():
            return float(self.call().detach())

    def gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its gradient."""
        loss, slopes = self._slopes(theta)
        return float(loss.detach()), slopes.numpy()

    def _slopes(self, theta: np.ndarray, **options: Any) -> tuple[Tensor, Tensor]:
        self.load(theta)
        with double():
            loss = self.call()
            return loss, self._derived(loss, **options)

    def _derived(self, of: Tensor, **options: Any) -> Tensor:
        every: list[Tensor] = [*self.leaves.values()]
        options |= {"allow_unused": True, "materialize_grads": True}
        return torch.cat([x.flatten() for x in torch.autograd.grad(of, every, **options)])

    def curvature(self, theta: np.ndarray, along: np.ndarray) -> np.ndarray:
        """The Hessian times every column."""
        _, slopes = self._slopes(theta, create_graph=True)
        if not slopes.requires_grad:
            return np.zeros_like(along)
        with double():
            return np.stack(
                [
                    self._derived(slopes @ torch.tensor(c), retain_graph=True).numpy()
                    for c in along.T
                ],
                1,
            )

    def _check(self) -> None:
        """Refuse what is no loss, before anything is computed from it."""
        modules = dict(self.module.named_modules()) if self.module is not None else {}
        buffers = dict(self.module.named_buffers()) if self.module is not None else {}
        before, drawn = {k: x.clone() for k, x in buffers.items()}, torch.get_rng_state()
        away = self.start + AWAY * np.random.default_rng(0).normal(size=self.size)
        self.bytes = self.memory()
        # a parameter that could be lowered does not exist: the message names the inputs
        require(
            not memory.exceeds(self.bytes),
            f"inputs: one gradient over all of them needs {memory.amount(self.bytes)}, there are "
            f"{memory.amount(memory.available())}; give fewer",
        )
        try:
            self.load(away)
            with double():
                loss = self.call()
            what = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            number = isinstance(loss, Tensor) and loss.numel() == 1
            require(number, f"loss: is {what}, must be one number, such as its .mean()")
            real = loss.dtype == torch.float64
            require(real, f"loss: is {loss.dtype}, must be real and in double precision")
            require(
                loss.requires_grad, "loss: does not depend on any weight (detached, or a count)"
            )
            changed = [k for k, x in before.items() if not torch.equal(x, buffers[k])]
            require(
                not changed,
                f"loss: changes the buffer {', '.join(changed[:1])} (batch norm in training mode?); "
                "call module.eval() first",
            )
            random = not torch.equal(drawn, torch.get_rng_state())
            value, again = float(loss.detach()), self(away)
            if random or not np.isclose(again, value, rtol=SAME, atol=0, equal_nan=True):
                drops = [k for k, m in modules.items() if m.training and _share(m) > 0]
                why = f"dropout in {', '.join(drops)}; call module.eval() first"
                raise ParameterError(
                    "loss: is not the same at every call: "
                    + (why if drops else "use fixed inputs and no random numbers")
                )
            value, slopes = self.gradient(self.start)
        except ParameterError:
            raise
        except Exception as error:  # a stranger's code may raise anything
            raise ParameterError(f"loss: {error_summary(error)}") from error
        require(np.isfinite(value), f"loss: is {value} at the start")
        require(np.isfinite(slopes).all(), "loss: its gradient is not finite at the start")

    def memory(self) -> float:
        """Bytes that one gradient stores, from a small part of the inputs; 0 where they are few."""
        parts = [x for x in tree_leaves(self.inputs) if isinstance(x, Tensor) and x.ndim]
        rows = max(map(len, parts), default=0)
        stored: dict[int, int] = {}

        def keep(x: Tensor) -> Tensor:
            storage = x.untyped_storage()
            stored[storage._cdata] = storage.nbytes()
            return x

        def cost(few: int) -> int:
            def part(x: Any) -> Any:
                return x[:few] if isinstance(x, Tensor) and x.ndim and len(x) == rows else x

            stored.clear()
            with double(), torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
                self.call(tree_map(part, self.inputs))
            return sum(stored.values())

        with contextlib.suppress(Exception):  # a loss for all inputs alone; `_check` will tell
            if rows >= MANY:
                one, two = cost(MANY // 8), cost(MANY // 4)
                return 2.0 * (one + (two - one) * (rows - MANY // 8) / (MANY // 8))
        return 0.0


def _share(of: nn.Module) -> float:
    """What a module drops."""
    share = getattr(of, "p", getattr(of, "dropout", 0))
    return share if isinstance(share, float) else 0.0


def _takes_one(function: Callable) -> bool:
    """Whether a function can be called with one argument; taken for granted where none can say."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:
        pass
    return True


def _copied(of: nn.Module) -> nn.Module:
    """The module in double precision on the CPU, with its tensors that are no buffers."""
    try:
        of = copy.deepcopy(of).to("cpu", torch.float64)
    except (RuntimeError, TypeError) as error:
        raise ParameterError(f"{type(of).__name__}: {error_summary(error)}") from error
    for part in of.modules():
        attributes = [k for k, v in vars(part).items() if isinstance(v, Tensor)]
        vars(part).update({k: widened(vars(part)[k]) for k in attributes})
    return of
