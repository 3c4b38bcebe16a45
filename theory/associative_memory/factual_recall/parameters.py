"""Parameters of factual recall, by default the authors' reference run; and the theory's scope."""

from dataclasses import dataclass

from theory import ParameterError, Preset, Scope, Stepped, parameter, prediction, scope


@dataclass(frozen=True)
class Parameters(Stepped):
    """Sizes and training settings of the fact-lookup task (reference run of Nichani et al. 2024,
    authors' code).

    Used by both theory and students. Unit of time: gradient-flow time ``t = eta * steps``.

    Raises
    ------
    ParameterError
        For an unknown name, a value out of range, or a number of subjects that is not a multiple of
        the answers per relation.
    """

    PRESETS = {
        "reference": Preset("16 subjects, 4 relations, 8 answers each."),
        "small": Preset(
            "Trains in a second: few facts, larger initial weights.",
            **dict(S=8, R=2, D=4, noise_tokens=6, T=8, epsilon=1e-3, eta=0.2),
            **dict(batch_size=256, steps=1500, eval_every=5),
        ),
    }
    S: int = parameter(16, "subjects, a multiple of D", low=2)
    R: int = parameter(4, "relations", low=2)
    D: int = parameter(8, "possible answers per relation", low=2)
    noise_tokens: int = parameter(20, "tokens without meaning", low=1)
    T: int = parameter(32, "sequence length, with subject, relation and end token", low=3)
    epsilon: float = parameter(1e-5, "initial value of every weight", low=1e-100, high=1)
    eta: float = parameter(0.1, "learning rate", above=0)
    batch_size: int = parameter(1024, "sequences per step", low=1)
    steps: int = parameter(8192, "length of a run", low=1)
    eval_every: int = parameter(16, "steps between measurements", low=1)

    def __post_init__(self) -> None:
        """Check single fields, then that every answer has equally many subjects."""
        super().__post_init__()
        if self.S % self.D:
            raise ParameterError(
                f"S = {self.S}: must be a multiple of D = {self.D}, so that answers are balanced"
            )

    @property
    def answers(self) -> int:
        """Number of answers, ``R D``."""
        return self.R * self.D

    @property
    def vocabulary(self) -> int:
        """Number of tokens: subjects, relations, noise, end of sequence."""
        return self.S + self.R + self.noise_tokens + 1


# The weights of noise tokens do not change, and batches only add noise.
RECALL = Scope(
    "the flow of factual recall",
    "linear attention on balanced facts",
    (prediction.LINEAR,),
    ("noise_tokens", "steps", "eval_every"),
)
applies = scope.applies({"flow": RECALL})
