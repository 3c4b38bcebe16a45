"""Emergence times and their scaling against theory: ``python -m verify.timescales [MODEL]``."""

from functools import partial

from theory.runtime import cli
from verify import command, ensemble

main = partial(
    command.main,
    "timescales",
    "Emergence times of ensembles and their scaling.",
    (*ensemble.FLAGS, "full"),
)

if __name__ == "__main__":
    cli.run(main)
