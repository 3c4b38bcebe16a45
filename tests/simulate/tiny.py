"""The tiny students of `simulate.systems`, and those of another package."""

from simulate.systems import STEPS, STUDENTS, student
from theory import registry

REGRESSION = dict(spectrum="1.2,0.6", N=3, H=2, start=0.2, batch_size=8, **STEPS)
if "linear_attention" in registry.MODELS:  # of another package
    STUDENTS |= {
        "linear_attention.merged": dict(REGRESSION, student="tokens"),
        "linear_attention.merged, reduced": dict(REGRESSION, student="reduced"),
        "linear_attention.separate": dict(REGRESSION, student="tokens"),
        "linear_attention.separate, population": REGRESSION,
    }
__all__ = ["ALONE", "STUDENTS", "bits", "student"]
ALONE = dict(progress=False, workers=1, device="cpu")


def bits(dataset):
    """Everything that was measured."""
    return {name: v.values.tobytes() for name, v in dataset.variables.items()}
