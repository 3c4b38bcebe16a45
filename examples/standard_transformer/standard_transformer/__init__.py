"""Standard transformers on state tracking, the first open question of Forner et al.
(arXiv:2606.18164): a model outside of the toolkit.
"""

from theory.models.registry import Model

MODEL = Model(
    "standard_transformer",
    "Standard transformers on state tracking",
    "forner2026_standard",
    package="standard_transformer",
)
