"""Accuracy of each level of theory for every seed: ``python -m verify.fidelity [MODEL]``."""

import argparse

from theory.runtime import cli
from verify import report


def renew(parser: argparse.ArgumentParser) -> None:
    """The flag ``--train``, specific to this command."""
    parser.add_argument(
        "--train", action="store_true", help="train the ensembles again first (hours on a CPU)"
    )


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    return report.main(
        "fidelity",
        "Levels of theory, compared with every seed of the shipped ensembles.",
        ("plot", "device", "quiet", "full"),
        argv,
        more=renew,
    )


if __name__ == "__main__":
    cli.run(main)
