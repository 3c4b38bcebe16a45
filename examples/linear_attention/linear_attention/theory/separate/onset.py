"""The model's onset, which shows both systems."""

from linear_attention.theory.merged.onset import onset

__all__ = ["onset"]
