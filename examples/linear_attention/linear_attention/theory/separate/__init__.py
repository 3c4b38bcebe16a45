"""Key and query in two matrices: from saddle to saddle."""

from linear_attention.theory import task
from linear_attention.theory.parameters import Parameters
from linear_attention.theory.scope import applies
from linear_attention.theory.separate import dynamics, heads
from theory.catalogue import catalogue

__all__ = ["Parameters", "applies", "dynamics", "equations", "flows", "heads", "sections"]

flows, sections, equations = catalogue(
    {"Task": [task], "Separate key and query": [dynamics]}, dynamics.flow
)
