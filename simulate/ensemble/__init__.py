"""Many copies of somebody's own PyTorch module, trained at once."""

from simulate.ensemble.copies import Copies, Parameters, ensemble

__all__ = ["Copies", "Parameters", "ensemble"]
