"""Derived gradients and flows against autograd:
``python -m verify.gradients [MODEL] [--device NAME]``.
"""

from theory.runtime import cli
from verify import report


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    return report.main(
        "gradients",
        "Every derived derivative against autograd; with a device (or where there is a GPU), the "
        "students' gradients on it too.",
        ("device", "quiet"),
        argv,
    )


if __name__ == "__main__":
    cli.run(main)
