"""Ensembles with rewards beside supervised ones from the same weights: shipped, or trained."""

from collections.abc import Iterable
from pathlib import Path

import xarray as xr

from simulate import runs as store
from simulate.state_tracking import SYSTEMS
from theory.state_tracking import Parameters

SHIPPED = Path(__file__).with_name("ensembles")
SMALL = Parameters.rewards()
SEEDS = range(5)
FEW = {"scratch": range(2)}  # students that stay where they are need no statistics
# Kind: what differs from `SMALL`, and length in alpha: past s = 0.6, some past 0.9.
KINDS: dict[str, tuple[dict, float]] = {
    "supervised": (dict(reward="none", pretrain=0.0), 60.0),
    "outcome": ({}, 60.0),
    "grpo": (dict(group=8, normalised=True), 32.0),
    "step": (dict(reward="step", pretrain=0.0), 48.0),
    "scratch": (dict(pretrain=0.0), 20.0),
}
COMMAND = 'python -c "from verify.state_tracking import rewards; rewards.renew()"'
KEPT = ("A", "R", "S", "loss", "success", "success_variance", "expected_reward", "rewarded")


def parameters(kind: str, base: Parameters = SMALL) -> Parameters:
    """Parameters of a kind of training."""
    return base.replace(**KINDS[kind][0])


def train(
    kind: str,
    base: Parameters = SMALL,
    seeds: Iterable[int] | None = None,
    alpha: float | None = None,
    **options: object,
) -> xr.Dataset:
    """Students of one kind, trained unless they are in the store."""
    until = KINDS[kind][1] if alpha is None else alpha
    system = SYSTEMS["student" if kind == "supervised" else "rewards"]
    seeds = FEW.get(kind, SEEDS) if seeds is None else seeds
    return system.train(parameters(kind, base), seeds, until=until, **options)  # type: ignore[arg-type]


def shipped(kind: str) -> xr.Dataset:
    """Ensemble that comes with the code."""
    return store.read(SHIPPED / f"rewards_{kind}.nc")


def renew(kinds: Iterable[str] = KINDS, progress: bool = True) -> None:
    """Train the shipped ensembles again and write them in single precision."""
    for kind in kinds:
        runs = train(kind, progress=progress)
        few = runs[[name for name in KEPT if name in runs]].assign_attrs(command=COMMAND)
        store.write(few.astype("float32", keep_attrs=True), SHIPPED / f"rewards_{kind}.nc")
