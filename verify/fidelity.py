"""Accuracy of each level of theory for every seed: ``python -m verify.fidelity
[MODEL]``.
"""

from functools import partial

from theory.runtime import cli
from verify.checks import command

main = partial(
    command.main,
    "fidelity",
    "Levels of theory, compared with every seed of the shipped ensembles.",
    ("plot", "device", "quiet", "full", "train"),
)

if __name__ == "__main__":
    cli.run(main)
