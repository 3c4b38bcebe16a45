"""A standard two-layer attention-only character model on real text."""

from simulate.induction_heads.text.learner import SYSTEM, on_text, train
from simulate.induction_heads.text.transformer import Transformer
from theory.induction_heads.text import Parameters

__all__ = ["SYSTEM", "Parameters", "Transformer", "on_text", "train"]
