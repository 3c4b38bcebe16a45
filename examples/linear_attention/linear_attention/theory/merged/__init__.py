"""Key and query in one matrix: one abrupt drop."""

from functools import partial

from linear_attention.theory import task
from linear_attention.theory.merged import drop, dynamics
from linear_attention.theory.parameters import Parameters
from linear_attention.theory.scope import applies
from theory.catalogue import catalogue

__all__ = ["Parameters", "applies", "drop", "dynamics", "equations", "flows", "sections"]

flows, sections, equations = catalogue(
    {"Task": [task], "Merged key and query": [dynamics], "Merged: white data": [drop]},
    drop.flow,
    partial(dynamics.flow, 4),
)
