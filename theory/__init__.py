"""What the papers derive: symbolic results that give LaTeX and fast numbers."""

__version__ = "0.1.0"
