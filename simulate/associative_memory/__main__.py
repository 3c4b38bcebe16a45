"""``python -m simulate.associative_memory``, the same as ``python -m simulate
associative_memory``.
"""

from functools import partial

from simulate import __main__ as command
from theory.runtime import cli

main = partial(command.main, model="associative_memory")

if __name__ == "__main__":
    cli.run(main)
