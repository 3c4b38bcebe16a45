"""Emergence times and their scaling against theory: ``python -m verify.timescales
[MODEL]``.
"""

from functools import partial

from theory.runtime import cli
from verify.checks import command, ensemble_source

main = partial(
    command.main,
    "timescales",
    "Emergence times of ensembles and their scaling.",
    (*ensemble_source.FLAGS, "full"),
)

if __name__ == "__main__":
    cli.run(main)
