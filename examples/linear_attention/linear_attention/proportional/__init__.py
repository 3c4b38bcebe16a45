"""In-context linear regression in the proportional limit: errors of a fitted linear attention on
trained and on new tasks (Lu, Letey, Zavatone-Veth, Pehlevan, arXiv:2405.11751).
"""

from linear_attention.proportional import errors
from linear_attention.proportional.onset import (
    Parameters,
    applies,
    error_new,
    error_trained,
    error_unlimited,
)
from linear_attention.proportional.onset import charts as charts
from theory.catalogue import catalogue

__all__ = [
    "Parameters",
    "applies",
    "equations",
    "error_new",
    "error_trained",
    "error_unlimited",
    "flows",
    "sections",
]

# No dynamics: the attention is fitted.
flows, sections, equations = catalogue({"Linear attention in the proportional limit": [errors]})
