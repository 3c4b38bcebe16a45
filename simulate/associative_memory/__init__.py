"""Students of the associative-memory systems; each subpackage is one system."""

from simulate.associative_memory import (
    factual_recall,
    k_hop,
    noisy_bigram,
    trigger_task,
)

SYSTEMS = {
    "factual_recall": factual_recall.SYSTEM,
    "trigger_task": trigger_task.SYSTEM,
    "noisy_bigram": noisy_bigram.SYSTEM,
    "k_hop": k_hop.SYSTEM,
    "pointers": k_hop.POINTERS,
}

train = factual_recall.train
