"""What can be verified; ``python -m verify gradients`` is ``python -m verify.gradients``."""

import sys

from theory.runtime import cli, commands


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    return commands.door(["verify", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    cli.run(main)
