"""Order parameters of somebody's own PyTorch module, from its gradients alone."""

from simulate.discover.found import Discovered, discover

__all__ = ["Discovered", "discover"]
