"""Many copies of somebody's own PyTorch module, trained at once."""

import sys

from simulate.ensemble.copies import Copies, Parameters, ensemble
from theory.dynamics.catalogue import CalledModule

__all__ = ["Copies", "Parameters", "ensemble"]

sys.modules[__name__].__class__ = CalledModule
