"""Induction heads of a standard character model on real text. Nothing here is solved: a published
fit of their emergence time is quoted and compared with students.
"""

from theory.catalogue import catalogue
from theory.induction_heads.text import published
from theory.induction_heads.text.parameters import Parameters

__all__ = ["Parameters", "equations", "flows", "sections"]

# No solved dynamics.
flows, sections, equations = catalogue({"Induction heads on real text: published": [published]})
