"""Derived gradients and flows against autograd:
``python -m verify.gradients [MODEL] [--device NAME]``.
"""

from functools import partial

from theory.runtime import cli
from verify.checks import command

main = partial(
    command.main,
    "gradients",
    "Every derived derivative against autograd; with a device (or where there is a"
    " GPU), the students' gradients on it too.",
    ("device", "quiet"),
)

if __name__ == "__main__":
    cli.run(main)
