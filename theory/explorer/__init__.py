"""An explorer of a model's flows: one HTML page that integrates them itself."""

from theory.explorer.build import opening, page

__all__ = ["opening", "page"]
