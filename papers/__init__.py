"""The papers' figures, claims and write-ups, reproduced from theory and students."""

from theory import __version__

__all__ = ["__version__"]
