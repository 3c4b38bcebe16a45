"""Students of the associative-memory systems; each subpackage is one system."""

from simulate.associative_memory import factual_recall, k_hop, noisy_bigram, trigger_task
from simulate.statement import of
from theory.associative_memory import retrieval, softmax_recall

SYSTEMS = {
    "factual_recall": factual_recall.SYSTEM,
    "trigger_task": trigger_task.SYSTEM,
    "noisy_bigram": noisy_bigram.SYSTEM,
    "k_hop": k_hop.SYSTEM,
    "pointers": k_hop.POINTERS,
    **{x.stated.name: of(x.stated).SYSTEMS["student"] for x in (retrieval, softmax_recall)},
}

train = factual_recall.train
