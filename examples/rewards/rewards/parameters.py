"""Parameters of students with rewards, and which of them the theory describes."""

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rewards import orbit
from rewards.clocks import REWARD
from theory import ParameterError, Preset, Scope, Stepped, only, parameter
from theory import state_tracking as labelled
from theory.state_tracking.model.scope import STEPS


def shared(name: str, default: Any = None) -> Any:
    """A field of supervised training, with its meaning and allowed values.

    Parameters
    ----------
    name : str
        The field.
    default : object, optional
        Its default here, if it is another one.
    """
    field = labelled.Parameters.__dataclass_fields__[name]
    value = field.default if default is None else default
    return dataclasses.field(default=value, metadata=field.metadata)


@dataclass(frozen=True)
class Parameters(Stepped):
    """Supervised training up to a success, then ascent on rewards of rollouts.

    Both are full-batch steps of plain descent; unit of time: ``alpha = epochs / (d_g
    N)``.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    INPUTS = labelled.Parameters.INPUTS
    PRESETS = {
        "small": Preset("Trains in seconds."),
        "table_1": Preset(
            "Sizes of the paper (Table 1).",
            **dict(N=32, L=10, d_g=32, d_h=128, n_train=32768, n_test=256),
            **dict(epochs=20000, eval_every=50),
        ),
    }
    TIME, LENGTH, CLOCK = "alpha", "epochs", "epochs / (d_g N)"

    N: int = shared("N", 8)
    L: int = shared("L", 3)
    d_g: int = shared("d_g", 8)
    d_h: int = shared("d_h", 16)
    eta: float = shared("eta")
    rope: str = shared("rope")
    rope_theta: float = shared("rope_theta")
    n_train: int = shared("n_train", 2048)
    n_test: int = shared("n_test", 1024)
    reward: str = parameter(
        "outcome",
        "what is rewarded: the last state of a rollout, or every step given the state"
        " before it",
        choices=REWARD,
    )
    pretrain: float = parameter(
        0.3,
        "mean probability of the right state at which rewards take over; 0 is from"
        " scratch",
        low=0,
        below=1,
    )
    rollouts: int = parameter(2048, "rollouts per step", low=2)
    group: int | None = parameter(
        None,
        "rollouts per prompt, whose mean reward is the baseline; none: one each, with"
        " the mean over all as baseline",
        low=2,
    )
    normalised: bool = parameter(
        False, "rewards over their standard deviation, as in GRPO"
    )
    horizon: int | None = parameter(None, "steps of a rollout; none is L", low=1)
    kl: float = parameter(
        0.0,
        "weight, in the objective, of the divergence of a rollout's steps from the"
        " policy that rewards took over from",
        low=0,
    )
    epochs: int = shared("epochs", 45 * 64)
    eval_every: int = shared("eval_every", 16)

    def __post_init__(self) -> None:
        """Check single fields, then relations between them."""
        super().__post_init__()
        size = self.group or 1
        if self.rollouts % size:
            self._refuse("rollouts", f"a multiple of group = {size}")
        if self.rollout_steps > self.L:
            self._refuse("horizon", f"<= L = {self.L}")
        if self.normalised and self.reward != "outcome":
            self._refuse("normalised", f"False for reward = {self.reward!r}")
        _ = self.labels  # refuses sizes that do not fit each other

    def _refuse(self, field: str, words: str) -> None:
        raise ParameterError(f"{field} = {getattr(self, field)}: must be {words}")

    @property
    def labels(self) -> labelled.Parameters:
        """Parameters of the supervised students that these are before rewards."""
        fields = labelled.Parameters.__dataclass_fields__
        same = {k: v for k, v in self.as_dict().items() if k in fields}
        return labelled.Parameters(**same)

    @property
    def rollout_steps(self) -> int:
        """Steps of a rollout."""
        return self.horizon or self.L

    @property
    def baseline_size(self) -> int:
        """Rollouts whose mean reward is the baseline."""
        return self.group or self.rollouts

    @property
    def begun(self) -> float:
        """Success from which on rewards train, in the mean field."""
        return max(self.pretrain, 1 / self.N)

    @property
    def time_per_step(self) -> float:
        """Training time of one epoch."""
        return 1 / (self.d_g * self.N)

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name, as used in the equations."""
        return {
            **self.labels.quantities(),
            **_take_over(self.labels, self.pretrain),
            "G": self.baseline_size,
            "horizon": self.rollout_steps,
            "penalty": self.kl,
            "success_0": self.begun,
        }


@cache
def _take_over(labels: labelled.Parameters, level: float) -> dict[str, float]:
    """A, R and S where the success reaches a level; NaN if it never does."""
    numbers = labels.values()
    time = orbit.time_of(numbers, level)
    if not np.isfinite(time):
        return dict.fromkeys(("A_1", "R_1", "S_1"), np.nan)
    found = orbit.states(numbers, time)
    return {f"{name}_1": float(found[name][0]) for name in "ARS"}


FLOW_STEPS = dataclasses.replace(STEPS, pointwise=True)
UNUSED = ("n_train", "n_test", "epochs", "eval_every")
USED = ("reward", "pretrain", "rollouts", "group", "normalised", "horizon", "kl")
SCOPE = Scope(
    "the clock of rewards",
    "gradient ascent in small steps on rewards of many rollouts",
    (FLOW_STEPS,),
    UNUSED,
    USED,
    kind=lambda: Parameters,
)
UNPENALISED = dataclasses.replace(
    SCOPE, theory="the best switch to rewards", limits=(FLOW_STEPS, only("kl", 0.0))
)


def flow_scope(reward: str) -> Scope:
    """Scope of the flow of one kind of reward."""
    limits = (FLOW_STEPS, only("reward", reward), only("normalised", False))
    return dataclasses.replace(
        SCOPE,
        theory="the flow under rewards",
        limits=limits,
        remedy="rewards.theory.curve follows all",
    )
