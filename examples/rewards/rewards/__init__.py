"""State tracking with rewards after pretraining, the second open question of Forner et
al. (arXiv:2606.18164): a model outside of the toolkit.
"""

from theory.models.model import Model

MODEL = Model(
    "rewards",
    "State tracking with rewards after pretraining",
    "forner2026_rewards",
    package="rewards",
)
