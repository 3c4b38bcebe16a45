"""Emergence times and their scaling against theory: ``python -m verify.timescales [MODEL]``."""

from theory.runtime import cli
from verify import ensemble, report


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    return report.main(
        "timescales",
        "Emergence times of ensembles and their scaling.",
        (*ensemble.FLAGS, "full"),
        argv,
        more=ensemble.flag,
    )


if __name__ == "__main__":
    cli.run(main)
