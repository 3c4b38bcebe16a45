"""Parameters of the noisy bigram task, and which learners its theory describes."""

from dataclasses import dataclass
from typing import Any

from theory import BaseParameters, Preset, Scope, parameter, scope


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """A trigger's answer occurs in the context, but the label is a fixed noise token with
    probability a.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    PRESETS = {
        "one_step": Preset("One gradient step from n samples."),
        "ablation": Preset("Both paths trained; more noise than clean answers.", N=32, T=16, a=0.6),
    }
    N: int = parameter(64, "possible answers; the noise token is one more", low=2)
    T: int = parameter(8, "context tokens: the answer and T - 1 random ones", low=2)
    a: float = parameter(0.5, "probability that the label is the noise token", above=0, high=0.99)
    n: int = parameter(256, "samples of the one gradient step", low=1)
    draws: int = parameter(200, "independent data sets", low=2)
    eta: float = parameter(1.0, "learning rate of the ablated model", above=0)
    batch_size: int = parameter(128, "samples per step of the ablated model", low=1)
    steps: int = parameter(3000, "length of a run of the ablated model", low=1)
    eval_every: int = parameter(50, "steps between measurements", low=1)

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name."""
        return {
            "N": self.N,
            "T": self.T,
            "a_noise": self.a,
            "n_samples": self.n,
            "lambda_labels": self.n * (1 - self.a) / self.N,
        }


ONE_STEP = Scope(
    "recovery from samples",
    "one gradient step from n samples",
    (),
    ("draws", "eta", "batch_size", "steps", "eval_every"),
)
applies = scope.applies({"one step": ONE_STEP})
