"""Parameters of the induction-head model, used by the theory and the disentangled
students.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from theory import Limit, Scope, only
from theory.call import scope
from theory.call.parameters import BaseParameters, Preset, Stepped, parameter
from theory.call.refusal import ParameterError

LAST = dict(data="orthonormal", query="last")
# beyond it, double precision does not resolve the O(1) terms of emergence times
LARGEST_N = 10**7


@dataclass(frozen=True)
class Parameters(Stepped):
    """Task, architecture and training of the disentangled transformer (musat2025, Secs.
    3 and 6, Apps. C, D, F).

    The three-parameter theory depends on ``N`` only. Its time ``t`` is that of gradient
    flow at unit rate in the three parameters, on the loss SUMMED over the D
    coordinates. `time_per_step` converts training steps to ``t``.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    PRESETS = {
        "structure": Preset(
            "Figs. 3 and 6-8 of the paper (App. C): all weights.", N=4, D=16
        ),
        "ablation": Preset(
            "Fig. 4 of the paper (App. D).", D=32, batch_size=256, steps=2000
        ),
        "emergence": Preset(
            "Fig. 5 of the paper (App. F): three numbers, orthonormal data, the last"
            " pair queried.",
            **dict(D=256, trained="three", eta=100.0, batch_size=64),
            **LAST,
        ),
        "demo": Preset(  # the mean over D = 8 coordinates makes it a step of 0.25 in t
            "Trains in seconds on a CPU.",
            **dict(N=4, D=8, eta=16.0, batch_size=32, eval_every=2),
            **LAST,
        ),
    }
    N: int = parameter(16, "item-label pairs in the context", low=1, high=LARGEST_N)
    D: int | None = parameter(
        None,
        "dimension of items, labels and positions; none is 2 N",
        low=2,
        multiple_of=2,
    )
    trained: str = parameter(
        "all",
        "what moves: all weights; their part in the 19 directions; along alpha_3,"
        " beta_2, gamma_3; or these three as numbers",
        choices=("all", "nineteen", "projected", "three"),
    )
    data: str = parameter(
        "gaussian",
        "law of items, labels and positions",
        choices=("gaussian", "orthonormal"),
    )
    query: str = parameter(
        "uniform",
        "which pair is queried: drawn, the last, each in turn",
        choices=("uniform", "last", "each"),
    )
    mask: str = parameter(
        "strict",
        "causal mask: without or with the position itself",
        choices=("strict", "inclusive"),
    )
    loss: str = parameter(
        "mean", "squared error over the D coordinates", choices=("mean", "sum")
    )
    eta: float = parameter(1.0, "learning rate", above=0)
    batch_size: int = parameter(512, "fresh sequences per step", low=1)
    steps: int = parameter(400, "length of a run", low=1)
    eval_every: int = parameter(10, "steps between measurements", low=1)
    B: int = parameter(
        1,
        "right pairs: the context ends in so many copies of the queried one",
        low=1,
        later=True,
    )

    def __post_init__(self) -> None:
        """Check single fields, then relations between them."""
        super().__post_init__()
        if self.B > 1:
            if self.query != "last":
                raise ParameterError(f"B = {self.B}: must be 1 unless query = 'last'")
            if self.B >= self.N:
                raise ParameterError(f"B = {self.B}: must be below N = {self.N}, or 1")
        if self.data == "orthonormal" and self.dimension < 2 * self.N:
            raise ParameterError(
                f"D = {self.D}: must be >= 2 N = {2 * self.N} for orthonormal data"
            )

    @property
    def dimension(self) -> int:
        """D, or by default the smallest dimension with N orthonormal pairs."""
        if self.D is None:
            return 2 * self.N
        return self.D

    @property
    def CLOCK(self) -> str:  # type: ignore[override]
        """What the time is, as `time_per_step` says."""
        return "eta * steps" + ("", " / D", " / D^2")[self._powers]

    @property
    def _powers(self) -> int:
        return (self.trained != "three") + (self.loss == "mean")

    @property
    def time_per_step(self) -> float:
        """Time ``t`` of the three-parameter flow in one training step.

        ``eta * D^(-[matrices are trained] - [mean loss])``: a pseudo-parameter
        multiplies a matrix of squared norm D, so a step of the matrices moves it D
        times less than a step of the parameter itself; a mean over the D coordinates
        divides the gradient by D once more.
        """
        return self.eta / self.dimension**self._powers

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name, as used in the equations."""
        return {
            "N": self.N,
            "B": self.B,
            "D": self.dimension,
            "x": 1 / (2 * self.N),
            "gamma_E": float(np.euler_gamma),
        }


@dataclass(frozen=True)
class StandardParameters(BaseParameters):
    """Sizes and training of the standard transformer; by default as in App. E, with
    some sizes reduced for a CPU.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    PRESETS = {
        "small": Preset("Trains in a minute on a CPU."),
        "paper": Preset(
            "Sizes of App. E of the paper, for a GPU.", D=2048, batch_size=512
        ),
    }
    D: int = parameter(128, "embedding and head dimension (paper: 2048)", low=2)
    vocabulary: int = parameter(32, "tokens", low=2)
    block: int = parameter(32, "positions", low=3)
    pairs: int = parameter(8, "item-label pairs per sequence", low=1)
    eta: float = parameter(1e-3, "learning rate of AdamW", above=0)
    weight_decay: float = parameter(0.01, "weight decay of AdamW", low=0)
    batch_size: int = parameter(128, "sequences per step (paper: 512)", low=1)
    steps: int = parameter(300, "length of a run", low=1)
    eval_every: int = parameter(2, "steps between measurements", low=1)

    def __post_init__(self) -> None:
        """Check single fields, then relations between them."""
        super().__post_init__()
        if 2 * self.pairs > self.vocabulary:
            raise ParameterError(
                f"pairs = {self.pairs}: must be <= vocabulary / 2 ="
                f" {self.vocabulary // 2}, tokens are distinct"
            )
        if 2 * self.pairs + 1 > self.block:
            raise ParameterError(
                f"pairs = {self.pairs}: 2 pairs + 1 positions must fit into block ="
                f" {self.block}"
            )


# Which students the theories of induction heads describe

LEAST_D = 32  # there the drop is 1.6% later than leading order in 1/D says, at N = 16
PROJECTED = ("three", "projected")
# the unit of time, noise, measurement
TIME = ("loss", "eta", "batch_size", "steps", "eval_every")
ALL_TRAINED = only("trained", "all")
ORTHONORMAL = only("data", "orthonormal")
LAST_PAIR = only("query", "last")
STRICT = only("mask", "strict")
BURSTS = Limit(
    "B",
    "1, or all weights on orthonormal data (of three numbers: induction_heads.bursty)",
    lambda p, runs: p.B == 1 or (p.trained == "all" and p.data == "orthonormal"),
    reads=("trained", "data"),
)
LARGE_D = Limit(
    "D",
    f"at least {LEAST_D} with Gaussian data",
    lambda p, runs: p.data == "orthonormal" or p.dimension >= LEAST_D,
    lambda p, runs: p.dimension,
    ("data", "N"),
)


def _unless_all(field: str, value: str, others: str = "any") -> Limit:
    """One value of a field, or others as well where all weights are trained."""

    def holds(p: Parameters, runs: Any) -> bool:
        present = getattr(p, field)
        if p.trained == "all" and others in ("any", present):
            return True
        return present == value

    return Limit(
        field,
        f"{value} (or {others}, where all weights are trained)",
        holds,
        lambda p, runs: repr(getattr(p, field)),
        ("trained",),
    )


LAST_OR_ALL = _unless_all("query", "last", "uniform")
STRICT_OR_ALL = _unless_all("mask", "strict")
DATA_OR_ALL = _unless_all("data", "orthonormal")
QUERY = only("query", "last", "uniform")
THREE = Scope(
    "the flow (B.5)",
    "three trained numbers on orthonormal data, the last pair queried",
    (only("trained", *PROJECTED), ORTHONORMAL, LAST_PAIR, STRICT, BURSTS),
    ("D", *TIME),
)
ALL = Scope(
    "the flow of all weights",
    "all weights, the last pair or a uniform one queried",
    (ALL_TRAINED, QUERY, LARGE_D, BURSTS),
    ("mask", *TIME),
)
DESCENT = Scope(
    "descent of the flow of all weights",
    "all weights on orthonormal data, the last pair or a uniform one queried",
    (ALL_TRAINED, QUERY, ORTHONORMAL),
    ("D", "mask", *TIME),
)
PLATEAU = Scope(
    "the flow of five numbers",
    "all weights on orthonormal data, the last pair queried",
    (ALL_TRAINED, ORTHONORMAL, LAST_PAIR, STRICT, only("B", 1)),
    DESCENT.free,
)
EMERGENCE = Scope(
    "the theory of emergence",
    "all weights, or three numbers",
    (
        only("trained", "all", *PROJECTED),
        DATA_OR_ALL,
        LAST_OR_ALL,
        STRICT_OR_ALL,
        LARGE_D,
        BURSTS,
    ),
    TIME,
)
SCOPES = {"emergence": EMERGENCE, "three": THREE, "all": ALL, "descent": DESCENT}
applies = scope.applies(SCOPES)
