"""Order parameters of somebody's own PyTorch module, from its gradients alone."""

from simulate.discover.found import Discovered, discover
from simulate.discover.sizes import Counts, scaling

__all__ = ["Counts", "Discovered", "discover", "scaling"]
