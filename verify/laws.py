"""Closed-form laws against sampling, enumeration and students:
``python -m verify.laws [MODEL]``.
"""

from functools import partial

from theory.runtime import cli
from verify.checks import command

main = partial(
    command.main,
    "laws",
    "Laws in closed form against sampling, enumeration and students.",
    ("quiet", "full", "train"),
)

if __name__ == "__main__":
    cli.run(main)
