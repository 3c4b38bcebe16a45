"""An explorer of a model's flows: one HTML page that integrates them itself."""

from theory.explorer.build import page

__all__ = ["page"]
