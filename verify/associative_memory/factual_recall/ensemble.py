"""Ensemble for the checks: a given file, or the reference run, trained once."""

from __future__ import annotations

from simulate.associative_memory.factual_recall.student import SYSTEM
from theory.associative_memory.factual_recall import Parameters
from verify.ensemble import Source

SOURCE = Source(
    SYSTEM,
    Parameters(),
    "4",
    {"t": ("t",), "step": ("t",), **{x: ("seed", "t") for x in SYSTEM.meaning}},
)
