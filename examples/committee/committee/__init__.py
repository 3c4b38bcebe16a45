"""Online learning of a committee of hidden units (Saad and Solla 1995), a model from outside the
toolkit.
"""

from theory.registry import Model

MODEL = Model("committee", "A committee of hidden units (Saad and Solla)", "saad1995", "committee")
