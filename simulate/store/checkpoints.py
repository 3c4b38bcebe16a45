"""Checkpoints of runs in training, next to the run's file."""

from __future__ import annotations

import random
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from theory.call.refusal import ParameterError, error_summary
from theory.runtime.sealed import seal, unseal

NUMPY_WORDS = 624  # of the state of its generator


def pickled(state: dict[str, Any]) -> bytes:
    """Serialise a checkpoint, and check that `unpickled` can read it.

    Raises
    ------
    ParameterError
        If torch cannot save it, or would not read it back.
    """
    buffer = BytesIO()
    try:
        torch.save(state, buffer)
        unpickled(buffer.getvalue())
    except MemoryError:
        raise
    except (
        Exception
    ) as error:  # torch raises various errors for what it cannot save or read
        raise ParameterError(
            f"cannot be saved and read back ({error_summary(error)}); "
            "tensors, numbers, and lists or dictionaries of them can"
        ) from None
    return buffer.getvalue()


def unpickled(saved: bytes) -> dict[str, Any]:
    """Read a serialised checkpoint. Only tensors and plain values are created from the
    bytes.
    """
    return torch.load(BytesIO(saved), weights_only=True, map_location="cpu")


def generators() -> dict[str, Any]:
    """States of the random numbers that torch, NumPy and Python share between all
    students.
    """
    name, words, *numbers = cast(Any, np.random.get_state(legacy=True))  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "numpy": [name, torch.as_tensor(words.astype(np.int64)), *numbers],
        "python": random.getstate(),
    }


def set_generators(said: dict[str, Any]) -> None:
    """Restore what `generators` gave."""
    name, words, *numbers = said["numpy"]
    if not 0 <= numbers[0] <= NUMPY_WORDS:  # NumPy would read beyond them
        raise ParameterError(f"random numbers of NumPy at place {numbers[0]}")
    torch.set_rng_state(said["torch"])
    np.random.set_state((name, words.numpy().astype(np.uint32), *numbers))  # noqa: NPY002
    random.setstate(said["python"])


def sweep_up(path: Path) -> None:
    """Remove temporary files that killed processes have left of a run; the caller holds
    its `lock`.
    """
    for left in path.parent.glob(f".{path.stem}-*"):
        left.unlink(missing_ok=True)


def save_checkpoint(path: Path, config: str, seed: int, state: dict[str, Any]) -> None:
    """Write a checkpoint next to the run it belongs to; errors as in `pickled`."""
    seal(
        path.with_suffix(".checkpoint"),
        pickled({"configuration": config, "seed": seed, **state}),
    )


def load_checkpoint(path: Path, config: str, seed: int) -> dict[str, Any] | None:
    """Checkpoint of an interrupted run, or None. A damaged checkpoint, or one of
    another run, is reported and ignored.
    """
    checkpoint = path.with_suffix(".checkpoint")
    if not checkpoint.exists():
        return None
    try:
        state = unpickled(unseal(checkpoint))
        if (state["configuration"], state["seed"]) != (config, seed):
            raise ParameterError(f"{checkpoint}: of another configuration or seed")
    except ParameterError as error:
        warnings.warn(f"{error}; starting over", stacklevel=2)
        return None
    except (
        Exception
    ) as error:  # torch.load raises various errors for what it cannot read
        warnings.warn(
            f"{checkpoint}: cannot be read ({error_summary(error)}); starting over",
            stacklevel=2,
        )
        return None
    return state


def drop_checkpoint(path: Path) -> None:
    """Remove the checkpoint of a finished run."""
    path.with_suffix(".checkpoint").unlink(missing_ok=True)
