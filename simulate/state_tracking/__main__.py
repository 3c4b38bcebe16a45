"""``python -m simulate.state_tracking``, the same as ``python -m simulate
state_tracking``.
"""

from functools import partial

from simulate import __main__ as command
from theory.runtime import cli

main = partial(command.main, model="state_tracking")

if __name__ == "__main__":
    cli.run(main)
