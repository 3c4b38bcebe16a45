"""An explorer of a model: one HTML page that integrates its flows, evaluates its closed forms and
shows tables of the rest.
"""

from theory.explorer.build import offers, opening, page

__all__ = ["offers", "opening", "page"]
