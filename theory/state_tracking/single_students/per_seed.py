"""One curve per seed: numerical integration of the cavity equations and the
fixed-disorder theory from each seed's initial weights.
"""

from theory.state_tracking.attention import Attention
from theory.state_tracking.single_students.cavity import Cavity
from theory.state_tracking.single_students.fixed_disorder import FixedDisorder
from theory.state_tracking.single_students.integrate import half_times, solve
from theory.state_tracking.single_students.optimised_disorder import Trained, system
from theory.state_tracking.single_students.realisation import Realisation, Start

__all__ = [
    "Attention",
    "Cavity",
    "Realisation",
    "FixedDisorder",
    "Start",
    "Trained",
    "half_times",
    "solve",
    "system",
]
