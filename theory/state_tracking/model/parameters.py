"""Parameters of the state-tracking model; Table 1 by default."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from theory import Optimiser, ParameterError, Preset, Stepped, parameter
from theory.call.constants import Constant
from theory.runtime import memory
from theory.state_tracking import attention
from theory.state_tracking.model import definitions, groups
from theory.state_tracking.model.symbols import L


def frequencies_memory(p: Parameters) -> float:
    """Memory in bytes for the frequencies and the arrays of `c_omega`, in double
    precision.
    """
    return 8 * (p.d_h // 2) * 9


@dataclass(frozen=True)
class Parameters(Stepped, Optimiser):
    """Sizes, training settings and initial values of the theory (forner2026, Tables 1
    and 2).

    Used by both theory and students. Unit of time: ``alpha = epochs / (d_g N)``.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    INPUTS = {"c_omega": ("sigma2", "omega")}
    CONSTANTS = {
        "c_omega": Constant("attention constant (14)", low=0),
        "tau": Constant("mean overlap of distinct teachers", low=0, high=1),
    }
    PRESETS = {
        "table_1": Preset("Main setting of the paper (Table 1)."),
        "table_2": Preset(
            "Second setting of the paper (App. J): fewer and slower frequencies.",
            **dict(N=24, d_g=24, d_h=8, n_test=128, epochs=16000, rope="plain"),
        ),
        "demo": Preset(
            "Trains in seconds on a CPU.",
            **dict(N=16, L=8, d_g=16, d_h=32, n_train=2048, epochs=12 * 256),
        ),
    }
    TIME, LENGTH = "alpha", "epochs"
    FORMER = {
        "reward": "none",
        "pretrain": 0.0,
        "rollouts": 2048,
        "group": None,
        "normalised": False,
        "horizon": None,
        "kl": 0.0,
    }

    N: int = parameter(32, "number of states", low=2)
    L: int = parameter(10, "actions per sequence, and steps to predict", low=1)
    d_g: int = parameter(32, "number of permutations (actions)", low=1)
    d_h: int = parameter(128, "key and query dimension", low=2, multiple_of=2)
    d_model: int = parameter(
        1, "embedding dimension; above 1 only with a learned embedding", low=1
    )
    eta: float = parameter(0.5, "learning rate", above=0)
    n_train: int = parameter(32768, "training sequences", low=1)
    n_test: int = parameter(256, "test sequences", low=1)
    data_draw: int = parameter(
        0,
        "number of a seed's training set; teachers, weights and test data stay the"
        " same",
        low=0,
    )
    batch_size: int | None = parameter(
        None, "sequences per step; none is full batch", low=1
    )
    rope_theta: float = parameter(1e4, "base of the rotary frequencies", above=1)
    rope: str = parameter(
        "2pi", "family of rotary frequencies", choices=("2pi", "plain", "linear")
    )
    permutations: str = parameter(
        "iid",
        "how teachers are drawn, or the group that they are",
        choices=("iid", "distinct"),
        or_else=(groups.is_group, groups.WORDS),
    )
    fix_embedding: bool = parameter(True, "embeddings held at unity")
    epochs: int = parameter(20000, "length of a run, in epochs (see unit)", low=1)
    eval_every: int = parameter(50, "epochs (see unit) between measurements", low=1)
    unit: str = parameter(
        "epoch",
        "what epochs and eval_every count; step: single steps, each of one batch",
        choices=("epoch", "step"),
        later=True,
    )
    zeta: float = parameter(0.0, "conserved mean of the logit sum", theory_only=True)
    A_0: float | None = parameter(
        None, "attention at time 0; none is 1/L", above=0, high=1, theory_only=True
    )
    R_0: float = parameter(0.0, "teacher overlap at time 0", theory_only=True)
    S_0: float = parameter(0.0, "off-target overlap at time 0", theory_only=True)

    def __post_init__(self) -> None:
        """Check single fields, then relations between them."""
        super().__post_init__()
        if (
            self.permutations == "distinct"
            and self.N < 20
            and self.d_g > math.factorial(self.N)
        ):
            raise ParameterError(
                f"d_g = {self.d_g}: must be <= N! = {math.factorial(self.N)} for"
                f" distinct permutations of N = {self.N}"
            )
        if self.teachers == "group":
            order, points = groups.sizes(self.permutations)
            for field, size, words in (
                ("d_g", order, "elements of the group"),
                ("N", points, "points that it acts on"),
            ):
                if getattr(self, field) != size:
                    raise ParameterError(
                        f"{field} = {getattr(self, field)}: must be {size} with"
                        f" permutations = {self.permutations}, the {words}"
                    )
        warming = self.schedule != "constant"
        too_large = (self.batch_size or 0) > self.n_train
        too_late = warming and self.warmup >= self.updates
        not_one = self.fix_embedding and self.d_model != 1
        for field, wrong, words in (
            ("batch_size", too_large, f"<= n_train = {self.n_train}"),
            ("warmup", too_late, f"< {self.updates}, the steps of this run"),
            ("d_model", not_one, "1 with fix_embedding = True"),
        ):
            if wrong:
                raise ParameterError(
                    f"{field} = {getattr(self, field)}: must be {words}"
                )

    @classmethod
    def presets(cls) -> dict[str, Callable[..., Self]]:
        """Named settings."""
        ends = {"words_a5": "A_5_regular", "words_s5": "S_5_regular"}
        words = {x: functools.partial(cls.words, group) for x, group in ends.items()}
        return super().presets() | words

    @classmethod
    def words(cls, group: str, **fields: Any) -> Self:
        """Word problem of a group: the running product of a word of elements, which act
        on the group itself; other fields as given.

        Raises
        ------
        ParameterError
            For what is no group.
        """
        if not groups.is_group(group):
            raise ParameterError(f"group = {group!r}: must be {groups.WORDS}")
        order, points = groups.sizes(group)
        sizes: dict[str, Any] = dict(
            N=points, d_g=order, permutations=group, epochs=4 * order * points
        )
        return cls(**(sizes | fields))

    @property
    def teachers(self) -> str:
        """Kind of teachers: ``iid``, ``distinct`` or ``group``."""
        return "group" if groups.is_group(self.permutations) else self.permutations

    @property
    def frequencies(self) -> np.ndarray:
        """Rotary frequencies ``omega_n`` in radians per position, shape ``(d_h/2,)``.

        ``2pi`` (Table 1) and ``plain`` (Table 2) fall as powers of `rope_theta`;
        ``linear`` spaces the frequencies evenly from 2 pi down, the alternative App. B
        mentions.

        Raises
        ------
        ParameterError
            If the frequencies and the arrays computed from them do not fit into memory.
        """
        memory.require(frequencies_memory, self, "a table of frequencies")
        index = np.arange(self.d_h // 2)
        if self.rope == "linear":
            return 2 * np.pi * (1 - index / (self.d_h // 2))
        power = self.rope_theta ** (-2 * index / self.d_h)
        return power * (2 * np.pi if self.rope == "2pi" else 1)

    @property
    def initial_variance(self) -> float:
        """Variance of every entry of W_Q, W_K and M at time 0, uniform on
        (-1, 1): 1/3.
        """
        return 1 / 3

    def alpha(self, epoch: Any) -> Any:
        """Training time alpha of an epoch, or of a step where those are counted."""
        return epoch / (self.d_g * self.N)

    @property
    def batches(self) -> int:
        """Steps of the optimiser in one pass over the training set."""
        return -(-self.n_train // (self.batch_size or self.n_train))

    @property
    def updates(self) -> int:
        """Steps of the optimiser in a run."""
        return self.epochs * len(self.steps_of(0))

    def steps_of(self, count: int) -> range:
        """Steps of the optimiser in one epoch,
        or the one step where those are counted.
        """
        each = 1 if self.unit == "step" else self.batches
        return range(count * each, (count + 1) * each)

    @property
    def CLOCK(self) -> str:  # type: ignore[override]
        """What the time is."""
        return f"{self.unit}s / (d_g N)"

    @property
    def time_per_step(self) -> float:
        """Training time of one epoch."""
        return 1 / (self.d_g * self.N)

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name, as used in the equations."""
        constant, tau = _constants(
            self.N,
            self.L,
            self.d_g,
            self.d_h,
            self.rope_theta,
            self.rope,
            self.permutations,
        )
        return {
            "N": self.N,
            "L": self.L,
            "d_g": self.d_g,
            "d_h": self.d_h,
            "eta": self.eta,
            "weight_decay": self.weight_decay,
            "zeta": self.zeta,
            "A_0": 1 / self.L if self.A_0 is None else self.A_0,
            "R_0": self.R_0,
            "S_0": self.S_0,
            "sigma2": self.initial_variance,
            "omega": self.frequencies,
            "c_omega": constant,
            "tau": tau,
        }

    def formulas(self) -> dict[str, Any]:
        """Attention at time 0, the mean teacher overlap and c_omega by sizes."""
        overlap = definitions.overlap_equations()[f"tau_bar_{self.teachers}"].rhs
        formulas = {"tau": overlap}
        if self.A_0 is None:
            formulas["A_0"] = 1 / L
        if self.L > 1:
            formulas["c_omega"] = attention.equations()["c_omega"].rhs
        return formulas


@functools.lru_cache(maxsize=4096)
def _constants(
    N: int, L: int, d_g: int, d_h: int, rope_theta: float, rope: str, permutations: str
) -> tuple[float, float]:
    """c_omega and the mean teacher overlap as a cached function of the fields they
    depend on.
    """
    p = Parameters(
        N, L, d_g, d_h, rope_theta=rope_theta, rope=rope, permutations=permutations
    )
    sizes = {"N": N, "L": L, "d_g": d_g, "d_h": d_h, "sigma2": p.initial_variance}
    constant = attention.equations()["c_omega"]
    of_teachers = definitions.overlap_equations()[f"tau_bar_{p.teachers}"]
    overlap = of_teachers.evaluate({"N": N, "d_g": d_g})
    moving = constant.evaluate(sizes | {"omega": p.frequencies}) if L > 1 else 0.0
    return float(moving), float(overlap)
