"""A committee of erf units learns another one, one example after the other (Saad and Solla,
Phys. Rev. E 52, 4225 (1995); noise of labels as in Goldt et al. 2019).
"""

from committee.theory import dynamics, phases
from committee.theory.dynamics import flow
from committee.theory.onset import emergence_times, onset
from committee.theory.parameters import Parameters
from committee.theory.scope import applies
from theory.catalogue import catalogue

__all__ = [
    "Parameters",
    "applies",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "onset",
    "sections",
]

flows, sections, equations = catalogue(
    {"Committee: online dynamics": [dynamics], "Committee: plateau and end": [phases]}, flow
)
