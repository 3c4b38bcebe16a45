"""Induction heads of a standard character model on real text. Nothing here is solved: a published
fit of their emergence time is quoted and compared with students.
"""

from dataclasses import dataclass
from functools import cache

import sympy as sp

from theory import Equations, symbol, table
from theory.catalogue import catalogue
from theory.parameters import BaseParameters, ParameterError, Preset, parameter

__all__ = ["Parameters", "equations", "flows", "sections"]


# Sizes, text and training of a two-layer attention-only character model


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """A standard attention-only transformer of two layers that predicts the next character of real
    text. No theory describes it; time is counted in steps.

    Raises
    ------
    ParameterError
        For an unknown name, a value out of range, or heads that do not divide D.
    """

    PRESETS = {
        "repeated": Preset("Every window of text repeats one segment: a head pays at once."),
        "plain": Preset("Plain text, in which repetitions are rare.", repeats=0.0, steps=6000),
    }
    text: str = parameter(
        "topics",
        "English text: the help topics of Python's standard library, or the 850 characters of `import this`",
        choices=("topics", "zen"),
    )
    vocabulary: int = parameter(
        64, "alphabet: the most frequent characters, and all others as one", low=2
    )
    context: int = parameter(32, "characters in the context, C", low=8)
    piece: int | None = parameter(
        None,
        "length of the pieces, from anywhere in the text, that windows consist of; none: consecutive text",
        low=1,
    )
    repeats: float = parameter(
        1.0, "share of windows that repeat one segment, of C/4 to C/2 characters", low=0, high=1
    )
    D: int = parameter(64, "width of the residual stream", low=2)
    heads: int = parameter(4, "heads of a layer", low=1)
    eta: float = parameter(3e-3, "learning rate of Adam", above=0)
    batch_size: int = parameter(32, "windows per step, B", low=1)
    n_test: int = parameter(64, "test windows, from text held out of training", low=1)
    steps: int = parameter(1000, "length of a run", low=1)
    eval_every: int = parameter(25, "steps between measurements", low=1)

    def __post_init__(self) -> None:
        """Check single fields, then that heads divide the stream."""
        super().__post_init__()
        if self.D % self.heads:
            raise ParameterError(f"heads = {self.heads}: must divide D = {self.D}")

    @property
    def tokens_per_step(self) -> int:
        """Predicted characters of a step, B C."""
        return self.batch_size * self.context


# What Aoyama, Wilcox and Schneider (arXiv:2511.16893) fit to language models

B = symbol("B", means="windows per step", positive=True)
C = symbol("C", means="tokens of a context", positive=True)
T = symbol("T", means="constant of the published fit", positive=True)
N_pt = symbol("N_pt", r"N_{\mathrm{pt}}", "tokens trained on when induction heads form")
steps = symbol("n_pt", r"n_{\mathrm{pt}}", "steps when induction heads form")
QUOTED = "fitted by others to language models of words, T = 10^5.7; quoted, nothing derived"


@cache
def published_equations() -> Equations:
    """The fit, and its prediction for steps of B C tokens each."""
    tokens = T * sp.sqrt(B * C)
    return table(
        "musat2025, beside it: arXiv:2511.16893",
        QUOTED,
        status="empirical",
        published_tokens=(N_pt, tokens),
        published_steps=(steps, sp.powsimp(tokens / (B * C))),
    )


T_PUBLISHED = 10**5.7


def exponent(variable: sp.Symbol) -> float:
    """Exponent of the published steps in B or C."""
    of = published_equations()["published_steps"].rhs
    return float(sp.simplify(sp.diff(sp.log(of), variable) * variable))


# No solved dynamics.
flows, sections, equations = catalogue(
    {"Induction heads on real text: published": [published_equations]}
)
