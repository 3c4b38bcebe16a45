"""CPU time of commands with empty caches, over the imports that they cannot avoid."""

from __future__ import annotations

from benchmarks.timing import command, show
from theory.models import registry

IMPORTS = (
    "import numpy, scipy, sympy, xarray, matplotlib; from theory import onset, latex"
)
STATEMENT = "examples/statements/retrieval.py"


def main() -> None:
    """Print a table."""
    imports = command("-c", IMPORTS)
    commands = [["theory", STATEMENT]]
    for model in registry.MODELS:
        commands += [["theory.onset", model], ["theory.latex", model]]
    rows = [["(imports alone)", f"{imports:.2g}", "1"]]
    for words in commands:
        seconds = command("-m", *words)
        line = f"python -m {' '.join(words)}"
        rows.append([line, f"{seconds:.2g}", f"{seconds / imports:.2g}"])
    show("First answers", ["command", "CPU s", "over the imports"], rows)


if __name__ == "__main__":
    main()
