"""The trigger-token (in-context bigram) task and its induction head (slides; Bietti et al.
2023).
"""

from theory.associative_memory.trigger_task import memories
from theory.associative_memory.trigger_task.parameters import Parameters
from theory.catalogue import catalogue

__all__ = ["Parameters", "equations", "flows", "sections"]

# No solved dynamics.
flows, sections, equations = catalogue({"Trigger task: sequences, memories, probes": [memories]})
