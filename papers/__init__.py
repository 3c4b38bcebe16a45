"""The papers' figures, claims and write-ups, reproduced from theory and students."""

from verify import __version__

__all__ = ["__version__"]
