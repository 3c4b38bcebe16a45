"""Standard transformers on the state-tracking task, and their order parameters by intervention."""

from simulate.state_tracking.standard.learner import SYSTEM
from simulate.state_tracking.standard.transformer import Transformer
from theory.state_tracking.standard import StandardParameters

__all__ = ["SYSTEM", "StandardParameters", "Transformer", "train"]

train = SYSTEM.train
