"""Parameters of standard transformers on the state-tracking task: the solvable student's, with
other defaults, and those of an ordinary architecture.
"""

from dataclasses import dataclass, field
from typing import Any

from theory.parameters import ParameterError, Preset, parameter
from theory.state_tracking.parameters import Parameters


def _usual(name: str, default: Any) -> Any:
    """A field of the solvable student with another default."""
    return field(default=default, metadata=Parameters.__dataclass_fields__[name].metadata)


@dataclass(frozen=True)
class StandardParameters(Parameters):
    """Sizes and training of a standard transformer. ``d_h`` is the dimension of keys, queries and
    values of one head. Theories of the solvable student refuse these for their embedding.

    Raises
    ------
    ParameterError
        For an unknown name, a value out of range, or one that this architecture does not use.
    """

    PRESETS = {
        "one_block": Preset("One block with two heads."),
        "two_blocks": Preset("Two blocks with one head each.", blocks=2, heads=1),
    }
    N: int = _usual("N", 8)
    L: int = _usual("L", 6)
    d_g: int = _usual("d_g", 8)
    d_h: int = _usual("d_h", 32)
    d_model: int = _usual("d_model", 64)
    eta: float = _usual("eta", 1e-3)
    batch_size: int | None = _usual("batch_size", 256)
    rope: str = _usual("rope", "plain")
    fix_embedding: bool = _usual("fix_embedding", False)
    epochs: int = _usual("epochs", 400)
    eval_every: int = _usual("eval_every", 10)
    unit: str = _usual("unit", "step")
    optimizer: str = _usual("optimizer", "adam")
    blocks: int = parameter(1, "blocks: attention, then an MLP", low=1)
    heads: int = parameter(2, "softmax heads of a block; they see states too", low=1)
    d_ff: int = parameter(256, "hidden width of an MLP", low=1)
    mlp: str = parameter("gelu", "MLP: GELU, or gated by a GELU", choices=("gelu", "glu"))
    norm: bool = parameter(True, "LayerNorm before attention, MLP and output")
    positions: str = parameter(
        "learned", "positions: learned embeddings, or rotary keys", choices=("learned", "rope")
    )

    def __post_init__(self) -> None:
        """Check the solvable student's fields, then those that have one value here."""
        super().__post_init__()
        fixed = {"fix_embedding": "standard transformers", "reward": "standard transformers"}
        if self.positions == "learned":
            fixed |= dict.fromkeys(("rope", "rope_theta"), "positions = 'learned'")
        for name, why in fixed.items():
            value, only = getattr(self, name), type(self).__dataclass_fields__[name].default
            if value != only:
                raise ParameterError(f"{name} = {value!r}: must be {only!r} for {why}")

    @property
    def sequences_per_step(self) -> int:
        """Sequences of a step of the optimiser (the last of an epoch may be smaller)."""
        return self.batch_size or self.n_train

    def tokens(self, epochs: Any) -> Any:
        """Predicted tokens seen after so many epochs, or steps where those are counted."""
        return epochs * self.L * (self.sequences_per_step if self.unit == "step" else self.n_train)
