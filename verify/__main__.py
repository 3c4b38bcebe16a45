"""List the checks: ``python -m verify``; ``python -m verify gradients`` is
``verify.gradients``.
"""

from functools import partial

from theory.models import solvable
from theory.runtime import cli

main = partial(solvable.main, wing="verify")

if __name__ == "__main__":
    cli.run(main)
