"""Parameters of the positional-semantic model; by default the setting of the paper's
figures; and which students the theory describes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from theory import Limit, Scope, only
from theory.call import scope
from theory.call.parameters import BaseParameters, Preset, parameter
from theory.call.refusal import ParameterError

TARGETS = {
    "standard": ((0.6, 0.4), (0.4, 0.6)),
    "alternative": ((0.3, 0.7), (0.8, 0.2)),
}


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """Task, student and training settings (cui2024, Secs. 5 and E).

    Used by both theory and students. The theory has no training time; the control
    variable is the sample complexity ``alpha = n / d``.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    PRESETS = {
        "figures": Preset("Figs. 2 and 3 of the paper."),
        "alternative": Preset(
            "The asymmetric matrix (144) of Fig. 9.", target="alternative"
        ),
        "demo": Preset(
            "Trains in seconds on a CPU.", d=200, alpha=2.0, steps=2000, n_test=5000
        ),
    }
    omega: float = parameter(
        0.3, "positional fraction of the target (16)", low=0, high=1
    )
    alpha: float | None = parameter(
        None, "sample complexity n / d; none where it is swept", above=0
    )
    sigma: float = parameter(
        0.5, "standard deviation of a token's entries", low=1e-50, high=1e50
    )
    lam: float = parameter(0.01, "ridge strength lambda", above=0)
    L: int = parameter(2, "tokens per sentence", low=2, high=2)
    target: str = parameter("standard", "the matrix A of (16)", choices=tuple(TARGETS))
    prox: str = parameter(
        "global",
        "which minimiser of the envelope",
        choices=("global", "local"),
        theory_only=True,
    )
    order: int = parameter(
        16,
        "nodes per axis of the quadrature",
        low=4,
        high=64,
        multiple_of=2,
        theory_only=True,
    )
    d: int = parameter(1000, "embedding dimension of the students", low=2)
    rank: int = parameter(1, "columns of Q", low=1, high=2)
    tied: bool = parameter(True, "keys share the weights of queries")
    value: bool = parameter(False, "a full value matrix is trained, from the identity")
    heads: bool = parameter(
        False, "every column of Q is a head, the attention is their mean", later=True
    )
    value_rank: int = parameter(
        0,
        "columns of a low-rank value matrix and of the labels; none: 0",
        low=0,
        high=2,
        later=True,
    )
    correlation: float = parameter(
        0.0, "correlation of the second token with the first", low=-1, high=1
    )
    start: str = parameter(
        "semantic",
        "initial weights",
        choices=("semantic", "positional", "mixed", "random"),
    )
    optimizer: str = parameter("gd", "optimiser", choices=("gd", "adam"))
    eta: float = parameter(0.15, "learning rate", above=0)
    steps: int = parameter(5000, "full-batch steps", low=0)
    polish: bool = parameter(
        True, "quasi-Newton (L-BFGS) steps to the minimum after the descent"
    )
    teacher: str = parameter(
        "normalised",
        "normalised: norm sqrt(d), orthogonal to p; gaussian: as drawn",
        choices=("normalised", "gaussian"),
    )
    n_test: int = parameter(50000, "test sentences", low=1)

    def __post_init__(self) -> None:
        """Check single fields, then relations between them."""
        super().__post_init__()
        rank = self.rank
        value_rank = self.value_rank
        if self.start == "mixed" and rank != 2:
            raise ParameterError(f"start = 'mixed': needs rank = 2, got rank = {rank}")
        if not self.tied and rank != 1:
            raise ParameterError(f"tied = False: needs rank = 1, got rank = {rank}")
        if self.heads and rank == 1:
            raise ParameterError("heads = True: needs rank = 2, got rank = 1")
        if self.value and value_rank:
            raise ParameterError(
                f"value = True: needs value_rank = 0, got {value_rank}"
            )
        least = 2 + value_rank
        if self.d < least:
            raise ParameterError(f"d = {self.d}: must be >= {least}, 2 + value_rank")

    @property
    def A(self) -> np.ndarray:
        """Fixed matrix of the target, shape (2, 2)."""
        return np.array(TARGETS[self.target])

    @property
    def complexity(self) -> float:
        """The sample complexity ``alpha``.

        Raises
        ------
        ParameterError
            If it is not set.
        """
        if self.alpha is None:
            raise ParameterError(
                "alpha = None: must be > 0 here, n/d; try p.replace(alpha=2.0)"
            )
        return self.alpha

    @property
    def finer(self) -> int:
        """Nodes per axis of the reference quadrature: 1.5 times as many."""
        return min(64, 2 * (3 * self.order // 4))

    @property
    def n(self) -> int:
        """Training sentences."""
        return max(1, round(self.complexity * self.d))

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name, as used in the equations."""
        A = self.A
        return {
            "omega": self.omega,
            "sigma": self.sigma,
            "lam": self.lam,
            "rho_star": self.sigma**2,
            "L": self.L,
            "d": self.d,
            "A_12": float(A[0, 1]),
            "A_21": float(A[1, 0]),
            "alpha": math.nan if self.alpha is None else self.alpha,
        }


@dataclass(frozen=True)
class HistogramParameters(BaseParameters):
    """Sizes and training settings of the counting task (cui2024, App. A); the preset
    `paper` has the published ones.
    """

    PRESETS = {
        "small": Preset("Trains in minutes on a CPU."),
        "paper": Preset(
            "Published sizes: an hour per seed and solution on a CPU.",
            **dict(length=10, alphabet=15, samples=50000, width=64),
            **dict(epochs=200, unfrozen_epochs=100),
        ),
    }
    length: int = parameter(6, "tokens per sequence", low=2)
    alphabet: int = parameter(8, "different tokens", low=2)
    samples: int = parameter(
        4000, "sequences drawn, before repetitions are dropped", low=10
    )
    share: float = parameter(
        0.7, "share of the sequences that are trained on", above=0, high=0.99
    )
    width: int = parameter(32, "embedding dimension", low=4, multiple_of=2)
    hidden: int = parameter(128, "hidden units", low=1)
    epochs: int = parameter(60, "epochs with frozen weights", low=1)
    unfrozen_epochs: int = parameter(20, "epochs after unfreezing", low=0)
    eta: float = parameter(
        1e-3, "learning rate: Adam while frozen, SGD afterwards", above=0
    )
    batch: int = parameter(32, "sequences per step", low=1)
    noise: float = parameter(
        1e-3, "size of the perturbation of weights at unfreezing", low=0
    )


# Which students the theory of the positional-semantic model describes

# Heads need two columns, which the first limit refuses.
UNCORRELATED = only("correlation", 0.0)
NO_VALUE = only("value_rank", 0)
ONE_TIED = (only("rank", 1), only("tied", True), only("value", False))
TIED = (*ONE_TIED, UNCORRELATED, NO_VALUE)
# Set after looking, at d = 100, omega = 0.3, alpha = 0.57 to 8: a student has left its
# well if its overlap differs by a fifth from that of descent by shorter steps on the
# same sentences. Within these limits no student of descent had, of 136 at sigma = 0.5
# and 56 at 1, but five of 32 at 2; at eta = 10 and sigma = 0.5 six of 80 had. Steps of
# Adam have the size eta in every weight, whatever the slope: at sigma = 0.5 one of 136
# had at eta = 0.1, seven of 80 at 0.3, and at sigma = 1 four of 56 even at 0.02.
LONGEST = 0.5
LONGEST_OF_ADAM = 0.1
WIDEST = 0.5


def _stays(p: Any, runs: Any) -> bool:
    if p.optimizer == "adam":
        return bool(p.eta <= LONGEST_OF_ADAM and p.sigma <= WIDEST)
    return bool(p.eta * max(p.sigma**2, p.sigma**4) <= LONGEST)


STAYS = Limit(
    "eta",
    f"at most {LONGEST:g} / max(sigma^2, sigma^4), with Adam {LONGEST_OF_ADAM:g} and"
    f" sigma at most {WIDEST:g} (longer steps leave the initial well),",
    _stays,
    reads=("optimizer", "sigma"),
)
# descent that ends in the minimum of its initial well
TO_MINIMUM = (only("polish", True), STAYS)
FREE = ("d", "teacher", "steps", "n_test")
HOW = (*FREE, "optimizer", "eta")  # the path to the minimum
ELSEWHERE = "App. E.3 is theory.positional_semantic.extensions"
MINIMUM = Scope(
    "state evolution",
    "minima of one tied layer of rank one on independent tokens",
    TIED,
    (*HOW, "polish", "start"),
    remedy=ELSEWHERE,
)
LINEAR = Scope(
    "the linear baseline",
    "the linear layer on independent tokens",
    (UNCORRELATED, NO_VALUE),
    (*HOW, "polish", "start", "rank", "tied", "value", "heads"),
)
DESCENT = Scope(
    "state evolution",
    "minima of one tied layer of rank one, from an informed start",
    (*TIED, only("start", "positional", "semantic"), *TO_MINIMUM),
    FREE,
    remedy=ELSEWHERE,
)
SCOPES = {"minimum": MINIMUM, "descent": DESCENT, "linear": LINEAR}
applies = scope.applies(SCOPES)
