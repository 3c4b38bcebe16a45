"""Critical sample complexities, simulated against theory:
``python -m verify.thresholds [MODEL]``.
"""

from functools import partial

from theory.runtime import cli
from verify.checks import command

main = partial(
    command.main,
    "thresholds",
    "Thresholds measured on ensembles, with confidence intervals.",
    ("plot", "set", "preset", "seeds", "device", "quiet", "full", "beyond"),
    unset=("alpha",),
)

if __name__ == "__main__":
    cli.run(main)
