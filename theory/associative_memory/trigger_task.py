"""The trigger-token (in-context bigram) task and its induction head (slides; Bietti et
al. 2023).
"""

from dataclasses import dataclass
from functools import cache

import sympy as sp

from theory import Chapter, Equations, array, function, symbol
from theory.associative_memory.symbols import K, N, T, e, i, j, k, ref, u
from theory.call.parameters import BaseParameters, Preset, parameter
from theory.call.refusal import ParameterError
from theory.dynamics.catalogue import catalogue
from theory.symbols.fractions import factored

__all__ = ["Parameters", "equations", "flows", "sections"]


# The in-context bigram task, the three memories that solve it, and the probe that
# measures them

position = symbol("t_position", "t", "a position", integer=True, positive=True)
transition = array("p_sequence", "p", "bigram within a sequence")
p = array("p", means="positional codes")
bigram = function(r"\pi_b", "bigram of the language")
trigger = array("q_trigger", "q", "triggers")
output = array("o_output", "o", "outputs: what follows them in this sequence")
remapped = array(
    "e_remapped", r"\tilde{e}", "token k remapped by the first layer, W_OV^1 e_k"
)
value = array("v_value", r"v", "token k as a value of the second layer, W_V^2 e_k")
W_K1 = array(
    "target_K1", "W_K^1", "memory that the keys of the first layer should become"
)
W_K2 = array(
    "target_K2", "W_K^2", "memory that the keys of the second layer should become"
)
W_O2 = array(
    "target_O2", "W_O^2", "memory that the outputs of the second layer should become"
)
probe = symbol("R_probe", "R", "recall of a memory", positive=True)
size = symbol("M_probe", "M", "tokens that are probed", integer=True, positive=True)
hit = array(
    "hit_probe",
    r"\mathbf{1}\{i=\arg\max_j u_j^{\top}\hat{W}e_i\}",
    "1 where token i is recalled",
)
first = symbol("i_state", "i", "a token", integer=True, positive=True)
last = symbol("j_state", "j", "the token behind it", integer=True, positive=True)


def transition_law() -> sp.Expr:
    """Next token of a sequence whose triggers q_1 .. q_K are followed by o_1 .. o_K."""
    is_trigger = sp.KroneckerDelta(first, trigger[k])
    follows = sp.Sum(is_trigger * sp.KroneckerDelta(last, output[k]), (k, 1, K))
    free = 1 - sp.Sum(is_trigger, (k, 1, K))
    return follows + free * bigram(last, first)


@cache
def memories_equations() -> Equations:
    """Distribution of the sequences, entries of the target memories, the probe, and its
    chance level.
    """
    chapter = Chapter(ref, status="exact")
    law = "slides, p(j|i) of the bigram task"
    chapter.state("trigger_transition", transition[last, first], transition_law(), law)
    heads = "slides, induction head with associative memories"
    k_1 = sp.Sum(p[position, i] * p[position - 1, j], (position, 2, T))
    k_2 = sp.Sum(e[trigger[k], i] * remapped[trigger[k], j], (k, 1, K))
    o_2 = sp.Sum(u[k, i] * value[k, j], (k, 1, N))
    chapter.state("target_W_K1", W_K1[i, j], k_1, heads)
    chapter.state("target_W_K2", W_K2[i, j], k_2, heads)
    chapter.state("target_W_O2", W_O2[i, j], o_2, heads)
    recall = sp.Sum(hit[i], (i, 1, size)) / size
    chapter.state("probe", probe, recall, "slides, memory recall probes")
    # By chance the largest of M candidates is uniform.
    chance = factored(size * (1 / size) / size)
    chapter.state(
        "probe_chance",
        probe,
        chance,
        "derived here",
        "weights that know nothing: mean over draws",
    )
    return chapter.equations


# Parameters of the trigger-token (in-context bigram) task

TRANSFORMER = dict(
    student="transformer",
    layers=2,
    batch_size=48,
    eta=2e-3,
    loss_on="all",
    steps=200,
    eval_every=20,
)


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """Task, student and training of the in-context bigram task (slides; Bietti et al.
    2023).

    Time is counted in steps. The student ``simplified`` has frozen random embeddings
    and three trained matrices; ``transformer`` is a full pre-norm transformer with
    ``layers`` layers.

    Raises
    ------
    ParameterError
        For an unknown name, a value out of range, more triggers than tokens, or a field
        that the student does not have.
    """

    PRESETS = {
        "simplified": Preset(
            "Three trained matrices, loss on predictable tokens (memory-recall probes"
            " of the slides)."
        ),
        "two_layers": Preset(
            "A transformer of two layers, which learns the task.", **TRANSFORMER
        ),
        "one_layer": Preset(
            "A transformer of one layer, which cannot learn the task.",
            **TRANSFORMER | dict(layers=1, steps=300),
        ),
    }
    N: int = parameter(65, "vocabulary", low=3)
    K: int = parameter(5, "trigger tokens per sequence", low=1)
    T: int = parameter(64, "sequence length", low=4)
    triggers: str = parameter(
        "fixed",
        "the K most frequent tokens, or drawn per sequence",
        choices=("fixed", "drawn"),
    )
    outputs: str = parameter(
        "uniform",
        "law of the tokens that follow triggers",
        choices=("uniform", "bigram"),
    )
    self_loops: bool = parameter(
        True, "whether a trigger's output may be the trigger itself"
    )
    student: str = parameter(
        "simplified", "kind of student", choices=("simplified", "transformer")
    )
    layers: int = parameter(
        2, "layers of the transformer; the simplified student has two", low=1, high=4
    )
    d: int = parameter(128, "embedding dimension", low=4)
    batch_size: int = parameter(64, "sequences per step", low=1)
    eta: float = parameter(
        0.03,
        "learning rate: SGD with momentum 0.9 (simplified) or AdamW (transformer)",
        above=0,
    )
    schedule: str = parameter(
        "joint",
        "train the three matrices together or one after the other",
        choices=("joint", "staged"),
    )
    loss_on: str = parameter(
        "repeats",
        "positions that enter the loss: from a trigger's second occurrence on, or all",
        choices=("repeats", "all"),
    )
    steps: int = parameter(200, "length of a run", low=1)
    eval_every: int = parameter(5, "steps between measurements", low=1)
    n_test: int = parameter(256, "test sequences", low=1)

    def __post_init__(self) -> None:
        """Check single fields, then relations between them."""
        super().__post_init__()
        if self.K >= self.N:
            raise ParameterError(f"K = {self.K}: must be < N = {self.N}")
        if self.student == "simplified":
            if self.layers != 2:
                raise ParameterError(
                    f"layers = {self.layers}: must be 2 with student = 'simplified'"
                )
        elif self.schedule != "joint":
            raise ParameterError(
                f"schedule = {self.schedule}: must be joint with student ="
                " 'transformer', which has none of the three matrices"
            )


# No solved dynamics.
flows, sections, equations = catalogue(
    {"Trigger task: sequences, memories, probes": [memories_equations]}
)
