"""One curve per seed: numerical integration of the dressed theory, the cavity equations
and the fixed-disorder theory from each seed's initial weights.
"""

from theory.state_tracking.numbers.per_seed.arrivals import Arrivals, emergence_steps
from theory.state_tracking.numbers.per_seed.attention import Attention
from theory.state_tracking.numbers.per_seed.batches import Orders, batch_times
from theory.state_tracking.numbers.per_seed.cavity import Cavity
from theory.state_tracking.numbers.per_seed.dressed import Dressed
from theory.state_tracking.numbers.per_seed.fixed_disorder import FixedDisorder
from theory.state_tracking.numbers.per_seed.lowered import Spelled
from theory.state_tracking.numbers.per_seed.realisation import Realisation
from theory.state_tracking.numbers.per_seed.runs import data_scatter, half_times, solve
from theory.state_tracking.numbers.per_seed.start import Start
from theory.state_tracking.numbers.per_seed.trained import Trained, system

__all__ = [
    "Arrivals",
    "Attention",
    "Cavity",
    "Dressed",
    "Orders",
    "Realisation",
    "FixedDisorder",
    "Spelled",
    "Start",
    "Trained",
    "batch_times",
    "data_scatter",
    "emergence_steps",
    "half_times",
    "solve",
    "system",
]
