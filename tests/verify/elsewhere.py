"""A simulated device: its tensors are stored on the CPU, but cannot be combined with
CPU tensors, as on a GPU.

What would end in "Expected all tensors to be on the same device" on a GPU ends in an
error here. Importing this registers the device with torch for good, so it is done in a
process of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("elsewhere")
DEVICE = torch.device("elsewhere", 0)
MOVES = ("copy_", "_to_copy")
INDEXING = ("index", "index_put_", "index_put", "_index_put_impl_", "_unsafe_index")
STRICT = ("cat", "stack")  # take no numbers of the CPU's, not even scalars


class There(torch.Tensor):
    """A tensor elsewhere; ``inner`` holds its numbers."""

    inner: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor):
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            inner.stride(),
            inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        self.inner = inner
        return self

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return call(func, args, kwargs or {})

    @property
    def data(self):
        return There(self.inner.data)

    @data.setter
    def data(self, other):  # what students do to make their weights slices of a stack's
        torch.Tensor.data.__set__(self, other)
        self.inner = other.inner

    def __reduce_ex__(self, protocol):  # a checkpoint holds the numbers
        return self.inner.__reduce_ex__(protocol)


def call(func: Any, args: Any, kwargs: Any) -> Any:
    """Carry out an operator on the numbers, or refuse as a GPU would."""
    name, tensors = (
        func.overloadpacket.__name__,
        [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)],
    )
    there = [x for x in tensors if isinstance(x, There)]
    here = [
        x
        for x in tensors
        if not isinstance(x, There) and (x.ndim > 0 or name in STRICT)
    ]
    fine = name in MOVES or (name in INDEXING and isinstance(args[0], There))
    if there and here and not fine:
        raise RuntimeError(f"{name}: tensors both on the CPU and elsewhere")

    def inner(x: Any) -> Any:
        return (
            x.inner
            if isinstance(x, There)
            else torch.device("cpu")
            if isinstance(x, torch.device)
            else x
        )

    wanted = kwargs.get("device")
    found = func(*tree_map(inner, args), **tree_map(inner, kwargs))
    if name.endswith("_") and not name.startswith("__"):
        return args[0]
    goes_there = (
        torch.device(wanted).type == DEVICE.type if wanted is not None else bool(there)
    )
    return tree_map(
        lambda x: There(x) if goes_there and isinstance(x, torch.Tensor) else x, found
    )


class Elsewhere(TorchDispatchMode):
    """While it is on, tensors can be made elsewhere."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return call(func, args, kwargs or {})
