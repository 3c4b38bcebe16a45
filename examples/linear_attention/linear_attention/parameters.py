"""Parameters of in-context linear regression,
and which students each theory describes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from linear_attention.statement import d, equations, lam
from theory import Limit, ParameterError, Preset, Scope, Stepped, only, parameter
from theory.call import scope


@dataclass(frozen=True)
class Parameters(Stepped):
    """Task, attention and training; time is ``t = eta * steps``, gradient flow of unit
    rate on half the loss.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    PRESETS = {
        "reference": Preset("Merged heads, four eigenvalues."),
        "white": Preset(
            "Equal eigenvalues: one logistic drop.",
            **dict(spectrum="1,1,1,1", H=3, start=1.5e-6**0.5, steps=300),
        ),
        "staircase": Preset(
            "Separate keys and queries: a drop for each eigenvalue.",
            **dict(attention="separate", start=0.05, steps=5000, eval_every=25),
        ),
    }
    spectrum: str = parameter(
        "1.6,1.1,0.8,0.5", "eigenvalues of Lambda, falling, commas between"
    )
    N: int = parameter(20, "pairs in the context", low=1)
    H: int = parameter(4, "heads", low=1)
    R: int = parameter(1, "rank of separate keys and queries", low=1)
    attention: str = parameter(
        "merged", "key and query: one matrix or two", choices=("merged", "separate")
    )
    start: float = parameter(
        0.01,
        "size of the start: sqrt(P(0)) if merged, standard deviation of the weights if"
        " separate",
        low=1e-100,
        high=0.5,
    )
    begin: str = parameter(
        "generic",
        "start: Gaussian entries, or along Lambda^2 (merged), one direction per row"
        " (separate)",
        choices=("generic", "aligned"),
    )
    student: str = parameter(
        "population",
        "the weights that may move under the population gradient, or on drawn prompts;"
        " or all weights of the attention on drawn tokens",
        choices=("population", "reduced", "tokens"),
    )
    eta: float = parameter(0.02, "step in t", above=0)
    batch_size: int = parameter(512, "fresh prompts per step", low=1)
    steps: int = parameter(600, "length of a run", low=1)
    eval_every: int = parameter(10, "steps between measurements", low=1)

    def __post_init__(self) -> None:
        """Check single fields, then relations between them."""
        super().__post_init__()
        x = self.eigenvalues
        if not (((x >= 1e-20) & (x <= 1e20)).all() and (np.diff(x) <= 0).all()):
            raise ParameterError(
                f"spectrum = {self.spectrum!r}: must be positive numbers that do not"
                " rise, as in '1.6,1.1,0.5', all from 1e-20 to 1e20"
            )
        if (
            self.begin == "aligned"
            and self.attention == "separate"
            and self.H * self.R > x.size
        ):
            raise ParameterError(
                f"H = {self.H}: must be at most D / R = {x.size // self.R} for an"
                " aligned start"
            )

    @property
    def eigenvalues(self) -> np.ndarray:
        """Eigenvalues of Lambda, shape (D,); not-a-number where the text holds none."""
        try:
            return np.array([float(x) for x in self.spectrum.split(",")])
        except ValueError:
            return np.array([np.nan])

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name, with derived quantities."""
        x, (a, c) = self.eigenvalues, (equations()[n] for n in "ac")
        known = {**super().quantities(), "D": x.size, "lambda": x}
        known |= {"tr_Lambda": float(x.sum()), "gamma": float(np.sqrt((x**4).sum()))}
        known |= {"a": a.evaluate(known | {lam[d]: x}), "c": c.number(known)}
        known |= {
            "P_0": self.start**2,
            "u_0": self.start,
            "s_0": self.start**2 / x.size**0.5,
        }
        each = {n: enumerate(known[n].tolist(), 1) for n in ("lambda", "a")}
        return known | {f"{n}_{k}": y for n, of in each.items() for k, y in of}

    def learned(self, directions: int) -> dict[str, Any]:
        """Numbers with only the first directions left to be learned."""
        known = dict(self.values().items())
        return known | {
            "m": directions,
            **{n: known[n][:directions] for n in ("lambda", "a")},
        }

    @property
    def modes(self) -> list[dict[str, Any]]:
        """Numbers for every direction in the place of the first."""
        known = self.values()
        each = zip(known["lambda"].tolist(), known["a"].tolist(), strict=True)
        return [known | {"lambda_1": x, "a_1": y} for x, y in each]


RUN = ("H", "R", "student", "eta", "batch_size", "steps", "eval_every", "attention")
ALIGNED = Limit(
    "begin",
    "aligned where key and query are separate",
    lambda p, runs: p.attention == "merged" or p.begin == "aligned",
    reads=("attention",),
)
WHITE = Limit(
    "spectrum", "white, as in '1,1,1'", lambda p, runs: set(p.eigenvalues) == {1}
)
STARTS = "merged heads from a small start, separate ones from an aligned start"
ANY = "theory.drops follows any start"
DROPS = Scope("the time of each drop", STARTS, (ALIGNED,), RUN, remedy=ANY)
ONE = only("attention", "separate"), only("begin", "aligned")
ONE_HEAD = Scope(
    "the flow of one aligned head", "heads that start along one direction", ONE, RUN
)
FREE = ("begin", *RUN)
WHITE_DATA = Scope(
    "the logistic drop", "merged key and query on white data", (WHITE,), FREE
)
MERGED = Scope("the flow of one effective head", "merged key and query", (), FREE)
SCOPES = {"drops": DROPS, "merged": MERGED, "separate": ONE_HEAD}
applies = scope.applies(SCOPES)
