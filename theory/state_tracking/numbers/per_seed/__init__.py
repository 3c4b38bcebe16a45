"""Numbers of the dressed theory and of the column statistics, from a seed's own start: one curve
per seed, one step per epoch.
"""

from theory.state_tracking.numbers.per_seed.attention import Attention
from theory.state_tracking.numbers.per_seed.columns import Columns
from theory.state_tracking.numbers.per_seed.dressed import Dressed
from theory.state_tracking.numbers.per_seed.runs import data_scatter, half_times, solve
from theory.state_tracking.numbers.per_seed.start import Start

__all__ = ["Attention", "Columns", "Dressed", "Start", "data_scatter", "half_times", "solve"]
