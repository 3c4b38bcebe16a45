"""Laws in closed form against sampling, enumeration and students:
``python -m verify.laws [MODEL]``.
"""

from theory.runtime import cli
from verify import report


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    return report.main(
        "laws",
        "Laws in closed form against sampling, enumeration and students.",
        ("quiet", "full"),
        argv,
    )


if __name__ == "__main__":
    cli.run(main)
