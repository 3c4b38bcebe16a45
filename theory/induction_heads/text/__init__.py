"""Induction heads of a standard character model on real text: nothing here is solved. What is
published about the time of their emergence is quoted, to be held beside students.
"""

from __future__ import annotations

from theory.catalogue import catalogue
from theory.induction_heads.text import published
from theory.induction_heads.text.parameters import Parameters

__all__ = ["Parameters", "equations", "flows", "sections"]

# No solved dynamics.
flows, sections, equations = catalogue({"Induction heads on real text: published": [published]})
