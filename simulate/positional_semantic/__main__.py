"""``python -m simulate.positional_semantic``, the same as ``python -m simulate
positional_semantic``.
"""

from functools import partial

from simulate import __main__ as command
from theory.runtime import cli

main = partial(command.main, model="positional_semantic")

if __name__ == "__main__":
    cli.run(main)
