"""What the papers printed: figures, claims and write-ups, remade from theory and students."""

from theory import __version__

__all__ = ["__version__"]
