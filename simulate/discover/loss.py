"""A module's mean loss as a function of one vector of all its trainable weights, in
double precision.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from simulate.discover import copying
from simulate.training.pool import one_thread
from theory.call.refusal import ParameterError, error_summary, nearest
from theory.runtime import memory
from theory.statement.words.tree import require

SAME = 1e-11  # of two evaluations at one point
# distance from the start at which they are compared: at zero weights dropout is silent
AWAY = 0.1
STEP, COARSE = 1e-6, 1e-4  # of differences of gradients, and how far off they may be
MANY = 512  # inputs from which the memory is estimated, by an eighth of them
LITTLE = 2**25  # bytes of one gradient, below which one thread is enough
NARROW = (torch.float32, torch.float16, torch.bfloat16)
WIDE = dict.fromkeys(NARROW, torch.float64) | {torch.complex64: torch.complex128}
# Precision, threads and generators of torch are the process's: calls take turns.
ALONE = threading.RLock()
CASTS = {Tensor.float, Tensor.half, Tensor.bfloat16}


class Double(TorchFunctionMode):
    """Reads float32, float16 and bfloat16 as float64, and complex64 as complex128, in
    all that a module calls.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call the function with the wider type."""
        kwargs = {k: wider(x) for k, x in (kwargs or {}).items()}
        return (Tensor.double if func in CASTS else func)(*map(wider, args), **kwargs)


def wider(x: Any) -> Any:
    """The type that an argument is read as, if it is a type."""
    return WIDE.get(x, x) if isinstance(x, torch.dtype) else x


def widened(x: Any, dtype: torch.dtype = torch.float64) -> Any:
    """A tensor on the CPU, in this precision if it is of floats; others as they are."""
    require(
        not hasattr(x, "__next__") and not isinstance(x, torch.utils.data.DataLoader),
        f"inputs: is {type(x).__name__}, of which a second pass may differ; give"
        " tensors, such as torch.cat([*inputs])",
    )
    if not isinstance(x, Tensor):
        return x
    kind = (
        dtype.to_complex()
        if x.is_complex()
        else dtype
        if x.is_floating_point()
        else None
    )
    return x.detach().to("cpu", kind)


def alone(function: Callable) -> Callable:
    """Decorator: calls in several threads take turns."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with ALONE:
            return function(*arguments, **named)

    return call


def typed(x: Tensor) -> Tensor:
    """Float32 and float16 in double precision, as they were typed: 0.1 is 0.1. Of many
    different numbers, which are drawn and not typed, nothing changes.
    """
    if x.dtype not in NARROW[:2]:
        return x
    values, places = x.detach().cpu().unique(return_inverse=True)
    if len(values) > MANY:
        return x
    return torch.from_numpy(values.numpy().astype(str).astype(float))[places]


def copied(of: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The module in this precision on the CPU, with its tensors that are no buffers."""
    try:
        of = copy.deepcopy(of).to("cpu", dtype)
    except (RuntimeError, TypeError) as error:
        raise ParameterError(f"{type(of).__name__}: {error_summary(error)}") from error
    for part in of.modules():
        vars(part).update(
            {
                k: widened(v, dtype)
                for k, v in vars(part).items()
                if isinstance(v, Tensor)
            }
        )
    return of


def spread(function: Callable, inputs: Any) -> Any:
    """A function at its inputs; several are spread if it takes several."""
    several = isinstance(inputs, list | tuple | None)
    with contextlib.suppress(
        ValueError, TypeError
    ):  # without a signature, or with several
        inspect.signature(function).bind(None)
        several = False
    return function(*inputs or ()) if several else function(inputs)


class Loss:
    """Mean loss over fixed inputs, as a function of all trainable weights in one
    vector.

    Parameters
    ----------
    of : Module, mapping of str to Tensor, or callable
        A module, which is copied; named weights; or the loss itself, with weights from
        ``start``.
    inputs : object
        What the loss is called with.
    loss_fn : callable, optional
        ``loss_fn(module or weights, inputs)``; by default the module's method
        ``loss(inputs)``.
    start : number, mapping, optional
        Where weights start: one number for all, or numbers or tensors by name.
    dtype : torch.dtype
        Precision of a module.

    Raises
    ------
    ParameterError
        In one line, for a loss that is not a deterministic, differentiable, real
        number.
    """

    def __init__(
        self,
        of: Any,
        inputs: Any,
        loss_fn: Callable | None,
        start: Any = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.dtype = dtype
        if callable(of) and not isinstance(of, nn.Module):
            of, loss_fn, start = start, of, None
        given = None
        self.name = type(of).__name__
        require(
            isinstance(of, nn.Module | Mapping),
            "module: must be a torch.nn.Module, a mapping of tensors, or a loss with "
            f"start={{name: tensor}}, got {self.name}",
        )
        if isinstance(of, nn.Module):
            weights = dict(of.named_parameters())
            self.frozen = [k for k, x in weights.items() if not x.requires_grad]
        else:
            weights, self.frozen = dict(of), []
        for name, x in weights.items():
            kind = str(getattr(x, "dtype", type(x).__name__)).removeprefix("torch.")
            require(
                name in self.frozen or "float" in kind and isinstance(x, Tensor),
                f"{name}: is {kind}, weights must be tensors of real floats; give "
                "torch.tensor(..., dtype=torch.float64)",
            )
            require(
                not (nn.parameter.is_lazy(x) or x.is_meta),
                f"{name}: has no values (a lazy module, or one on device meta);"
                " initialise it first",
            )
        if isinstance(of, nn.Module):
            given, of = of, copied(of, dtype)
            self.module = of
            weights = dict(of.named_parameters())
        else:
            self.module = nn.Module()
            of = weights = {
                k: widened(typed(x)).clone().requires_grad_() for k, x in of.items()
            }
        method = getattr(of, "loss", None)
        require(
            loss_fn or callable(method),
            f"{self.name}: has no method loss(inputs); give loss_fn=lambda module,"
            " inputs: ...",
        )
        self.function: Any = functools.partial(loss_fn, of) if loss_fn else method
        self.leaves: dict[str, Tensor] = {
            k: weights[k] for k in weights if k not in self.frozen
        }
        say = (
            "module: weights of torch.jit modules cannot be copied; give the module"
            " before that"
        )
        require(all(x.is_leaf for x in self.leaves.values()), say)
        require(self.leaves, "module: has no trainable weights")
        self.inputs = tree_map(functools.partial(widened, dtype=dtype), inputs)
        self.shapes = {k: tuple(x.shape) for k, x in self.leaves.items()}
        ends = np.cumsum([x.numel() for x in self.leaves.values()]).tolist()
        self.places = dict(zip(self.leaves, map(slice, [0, *ends], ends), strict=False))
        self.size, self.bytes = ends[-1], 0.0
        self.bytes = self.memory()
        self.own = self.flat(self.leaves)  # where the module's weights stand
        self.start = self.started(start)
        self.check()
        if isinstance(given, nn.Module):
            copying.compare(self, given, loss_fn)

    def flat(self, weights: Mapping[str, Any]) -> np.ndarray:
        """One vector of named weights."""
        rows = (
            torch.as_tensor(weights[k]).detach().cpu().double() for k in self.shapes
        )
        return torch.cat([x.flatten() for x in rows]).numpy()

    def named(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Numbers of all weights, by name."""
        return {
            k: vector[self.places[k]].reshape(shape) for k, shape in self.shapes.items()
        }

    def started(self, start: Any) -> np.ndarray:
        """All weights at the start."""
        start = (
            dict.fromkeys(self.shapes, start)
            if isinstance(start, int | float)
            else start or {}
        )
        require(
            isinstance(start, Mapping),
            "start: must be a number or a mapping of names to tensors, got"
            f" {type(start).__name__}",
        )
        begun: dict[str, Any] = dict(self.leaves)
        for name, x in start.items():
            hint = f"{nearest(str(name), begun)}there are {', '.join(begun)}"
            require(name in begun, f"start: {name}: no trainable weight; {hint}")
            value, shape = typed(torch.as_tensor(x)), self.shapes[name]
            require(
                value.shape in ((), shape),
                f"start: {name}: has shape {tuple(value.shape)}, must have {shape}",
            )
            begun[name] = value.expand(shape)
        theta = self.flat(begun)
        require(np.isfinite(theta).all(), "start: weights are not finite")
        return theta

    def load(self, theta: np.ndarray) -> None:
        """Set all weights."""
        with torch.no_grad():
            for name, x in self.named(theta).items():
                self.leaves[name].copy_(torch.from_numpy(x))

    def call(self, inputs: Any, function: Callable | None = None) -> Any:
        """The loss, or another function, with the weights as they are."""
        with self.exactly():
            return spread(function or self.function, inputs)

    @contextlib.contextmanager
    def exactly(self) -> Iterator[None]:
        """The precision throughout, attention whose second derivatives exist, and one
        thread where others would wait longer than they work.
        """
        nothing = contextlib.nullcontext()
        with ALONE:
            usual = torch.get_default_dtype()
            torch.set_default_dtype(self.dtype)
            try:
                with (
                    Double() if self.dtype == torch.float64 else nothing,
                    one_thread() if self.bytes < LITTLE else nothing,
                    sdpa_kernel(SDPBackend.MATH),
                    torch.enable_grad(),
                ):
                    yield
            finally:
                torch.set_default_dtype(usual)

    def __call__(self, theta: np.ndarray) -> float:
        """The loss."""
        self.load(theta)
        return float(self.call(self.inputs).detach())

    def slopes(self, theta: np.ndarray, **options: Any) -> tuple[Tensor, Tensor]:
        """The loss and its gradient, as tensors."""
        self.load(theta)
        loss = self.call(self.inputs)
        return loss, self.derived(loss, **options)

    def derived(self, of: Tensor, **options: Any) -> Tensor:
        """Gradient of a number by all weights."""
        every = [*self.leaves.values()]
        options = options | {"allow_unused": True}
        with self.exactly():
            parts = torch.autograd.grad(of, every, materialize_grads=True, **options)
        return torch.cat([x.to_dense().flatten() for x in parts])

    def gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its gradient."""
        loss, slopes = self.slopes(theta)
        return float(loss.detach()), slopes.detach().numpy()

    def curvature(self, theta: np.ndarray, along: np.ndarray) -> np.ndarray:
        """Derivatives by all weights of the gradient along every row."""
        _, slopes = self.slopes(theta, create_graph=True)
        rows = torch.tensor(along)
        return np.stack(
            [self.derived(slopes @ row, retain_graph=True).numpy() for row in rows]
        )

    @functools.cached_property
    def twice(self) -> bool:
        """Whether torch has right second derivatives: it has none of some functions,
        and zeros where one is marked ``once_differentiable``.
        """
        away, row, step = np.random.default_rng(1).normal(size=(3, self.size))
        away = self.start + AWAY * away
        ends = [row @ self.gradient(away + x * step)[1] for x in (STEP, -STEP)]
        try:
            exact = self.curvature(away, row[None])[0] @ step
        except RuntimeError:
            return False
        near = COARSE * np.abs(ends).max()
        return bool(
            np.isclose(exact, (ends[0] - ends[1]) / (2 * STEP), rtol=COARSE, atol=near)
        )

    def check(self) -> None:
        """Refuse what is no loss, before anything is computed from it."""
        # a parameter that could be lowered does not exist: the message names the inputs
        require(
            not memory.exceeds(self.bytes),
            f"inputs: one gradient over all of them needs {memory.amount(self.bytes)},"
            f" there are {memory.amount(memory.available())}; give fewer",
        )
        away = self.start + AWAY * np.random.default_rng(0).normal(size=self.size)
        try:
            self.load(away)
            loaded = self.flat(self.leaves)
            loss = self.call(self.inputs)
            what = (
                tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            )
            number = isinstance(loss, Tensor) and loss.numel() == 1
            require(number, f"loss: is {what}, must be one number, such as its .mean()")
            real = loss.dtype == self.dtype
            require(
                real, f"loss: is {loss.dtype}, must be real and {self.dtype} throughout"
            )
            require(
                loss.requires_grad,
                "loss: does not depend on any weight (detached, or a count)",
            )
            same = np.array_equal(self.flat(self.leaves), loaded)
            same &= all(x.grad is None for x in self.leaves.values())
            require(same, "loss: changes weights or their .grad; it must only compute")
            before, drawn = self.state(), torch.get_rng_state()
            value, again = float(loss.detach()), self(away)
            for what, x in self.state().items():
                same = np.array_equal(x, before.get(what, x), equal_nan=True)
                require(same, f"loss: changes {what}")
            if not (
                torch.equal(drawn, torch.get_rng_state())
                and np.isclose(again, value, rtol=SAME, atol=0, equal_nan=True)
            ):
                drops = [
                    k
                    for k, m in self.module.named_modules()
                    if m.training and dropped(m)
                ]
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
        require(
            np.isfinite(slopes).all(), "loss: its gradient is not finite at the start"
        )

    def state(self) -> dict[str, np.ndarray]:
        """Buffers, and numbers that modules keep as attributes, by what to do if they
        change.
        """
        numbers: dict[str, Any] = {}
        for name, x in self.module.named_buffers():
            buffer = f"the buffer {name} (batch norm in training mode?)"
            numbers[f"{buffer}; call module.eval() first"] = x.tolist()
        for name, of in self.module.named_modules(prefix="module"):
            for k, x in vars(of).items():
                if isinstance(x, int | float):
                    numbers[f"{name}.{k} at every call; make it a constant"] = x
        return {k: np.array(x) for k, x in numbers.items()}

    def memory(self) -> float:
        """Bytes that one gradient stores beside the weights, from some of the inputs; 0
        of few.
        """
        parts = [
            x for x in tree_leaves(self.inputs) if isinstance(x, Tensor) and x.ndim
        ]
        rows, few = max(map(len, parts), default=0), MANY // 8
        stored: dict[int, int] = {}

        def keep(x: Tensor) -> Tensor:
            stored[x.untyped_storage()._cdata] = x.untyped_storage().nbytes()
            return x

        def part(x: Any) -> Any:
            return (
                x[:few].clone()
                if isinstance(x, Tensor) and x.ndim and len(x) == rows
                else x
            )

        if rows < MANY:
            return 0.0
        with contextlib.suppress(
            Exception
        ):  # a loss for all inputs alone; `check` will tell
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
                self.call(tree_map(part, self.inputs))
            for x in (
                *self.leaves.values(),
                *self.module.parameters(),
                *self.module.buffers(),
            ):
                stored.pop(x.untyped_storage()._cdata, None)
            return 2.0 * sum(stored.values()) * rows / few
        return 0.0


def dropped(of: nn.Module) -> bool:
    """Whether a module drops a part of its inputs."""
    share = getattr(of, "p", getattr(of, "dropout", 0))
    return isinstance(share, float) and share > 0
