"""Parameters of the trigger-token (in-context bigram) task."""

from dataclasses import dataclass

from theory.parameters import BaseParameters, ParameterError, Preset, parameter

# Full transformer
WHOLE = dict(student="transformer", layers=2, batch_size=48, eta=2e-3, loss_on="all") | dict(
    steps=200, eval_every=20
)


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """Task, student and training of the in-context bigram task (slides; Bietti et al. 2023).

    Time is counted in steps. The student ``simplified`` has frozen random embeddings and three
    trained matrices; ``transformer`` is a full pre-norm transformer with ``layers`` layers.

    Raises
    ------
    ParameterError
        For an unknown name, a value out of range, more triggers than tokens, or a field that the
        student does not have.
    """

    PRESETS = {
        "simplified": Preset(
            "Three trained matrices, loss on predictable tokens (memory-recall probes of the slides)."
        ),
        "two_layers": Preset("A transformer of two layers, which learns the task.", **WHOLE),
        "one_layer": Preset(
            "A transformer of one layer, which cannot learn the task.",
            **{**WHOLE, "layers": 1, "steps": 300},
        ),
    }
    N: int = parameter(65, "vocabulary", low=3)
    K: int = parameter(5, "trigger tokens per sequence", low=1)
    T: int = parameter(64, "sequence length", low=4)
    triggers: str = parameter(
        "fixed", "the K most frequent tokens, or drawn per sequence", choices=("fixed", "drawn")
    )
    outputs: str = parameter(
        "uniform", "law of the tokens that follow triggers", choices=("uniform", "bigram")
    )
    self_loops: bool = parameter(True, "whether a trigger's output may be the trigger itself")
    student: str = parameter("simplified", "kind of student", choices=("simplified", "transformer"))
    layers: int = parameter(
        2, "layers of the transformer; the simplified student has two", low=1, high=4
    )
    d: int = parameter(128, "embedding dimension", low=4)
    batch_size: int = parameter(64, "sequences per step", low=1)
    eta: float = parameter(
        0.03, "learning rate: SGD with momentum 0.9 (simplified) or AdamW (transformer)", above=0
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
        if self.student == "simplified" and self.layers != 2:
            raise ParameterError(f"layers = {self.layers}: must be 2 with student = 'simplified'")
        if self.student == "transformer" and self.schedule != "joint":
            raise ParameterError(
                f"schedule = {self.schedule}: must be joint with student = 'transformer', which has "
                "none of the three matrices"
            )
