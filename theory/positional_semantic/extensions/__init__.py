"""Theory of the extensions of App. E.3 of Cui et al. (arXiv:2402.03902): correlated tokens, a
trained full value matrix, two columns of queries.
"""

from theory.positional_semantic.extensions.fixed_point import Point, critical, predict, solve
from theory.positional_semantic.extensions.layer import equations

__all__ = ["Point", "critical", "equations", "predict", "solve"]
