"""``python -m simulate.induction_heads``, the same as ``python -m simulate
induction_heads``.
"""

from functools import partial

from simulate import __main__ as command
from theory.runtime import cli

main = partial(command.main, model="induction_heads")

if __name__ == "__main__":
    cli.run(main)
