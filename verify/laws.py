"""Laws in closed form against sampling, enumeration and students:
``python -m verify.laws [MODEL]``.
"""

from __future__ import annotations

import argparse

from theory.runtime import cli
from verify import report


def renew(parser: argparse.ArgumentParser) -> None:
    """The flag ``--train``."""
    parser.add_argument(
        "--train",
        action="store_true",
        help="train the students of rows again that come as numbers with the code (hours on a CPU)",
    )


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    return report.main(
        "laws",
        "Laws in closed form against sampling, enumeration and students.",
        ("quiet", "full"),
        argv,
        more=renew,
    )


if __name__ == "__main__":
    cli.run(main)
