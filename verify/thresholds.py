"""Critical sample complexities from simulations against theory: ``python -m verify.thresholds
[MODEL]``.
"""

from theory.runtime import cli
from verify import report


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    return report.main(
        "thresholds",
        "Thresholds measured on ensembles, with confidence intervals.",
        ("plot", "set", "preset", "seeds", "device", "quiet", "full", "beyond"),
        argv,
        unset=("alpha",),
    )


if __name__ == "__main__":
    cli.run(main)
