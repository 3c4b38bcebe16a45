"""One curve per seed: numerical integration of the dressed theory, the cavity equations (columns)
and the fixed-disorder (fixed_disorder) theory from each seed's initial weights.
"""

from theory.state_tracking.numbers.per_seed.attention import Attention
from theory.state_tracking.numbers.per_seed.cavity import Cavity
from theory.state_tracking.numbers.per_seed.dressed import Dressed
from theory.state_tracking.numbers.per_seed.fixed_disorder import FixedDisorder
from theory.state_tracking.numbers.per_seed.lowered import Spelled
from theory.state_tracking.numbers.per_seed.realisation import Realisation
from theory.state_tracking.numbers.per_seed.runs import data_scatter, half_times, solve
from theory.state_tracking.numbers.per_seed.start import Start

__all__ = [
    "Attention",
    "Columns",
    "Dressed",
    "Realisation",
    "FixedDisorder",
    "Spelled",
    "Start",
    "data_scatter",
    "half_times",
    "solve",
]
