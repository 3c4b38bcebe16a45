"""Start-up cost: ``python -m verify.start`` times every command in a fresh process, relative to
importing its libraries.
"""

import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

from theory import registry
from theory.runtime import cli, output, progress

LIBRARIES = "import sympy, scipy.integrate, scipy.optimize, xarray"
TORCH = f"{LIBRARIES}, torch"
# Time of a second evaluation in the same process, with derivations, machine code and imports
# already done.
AGAIN = (
    "import time\nfrom theory import registry\nwing = registry.find('{0}').wing('theory', 'onset')\n"
    "p = registry.find('{0}').wing('theory').Parameters()\nwing.onset(p)\nstart = time.process_time()\n"
    "wing.onset(p)\nprint(time.process_time() - start)"
)
WITH_NUMBERS = ("positional_semantic",)  # its fixed points cost more than the start


def commands(model: str) -> dict[str, tuple[list[str], float]]:
    """Commands of a model, with the allowed ratio of their cost to the import of the libraries."""
    room = registry.find(model).path("theory")
    return {
        f"import {room}": (["-c", f"import {room}"], 1.2),
        f"theory.onset {model} --json": (["-m", "theory.onset", model, "--json", "--quiet"], 1.5),
        f"theory.latex {model}": (["-m", "theory.latex", model], 4.0),
        f"verify.gradients {model}": (["-m", "verify.gradients", model], 4.0),
    }


def seconds(arguments: list[str]) -> tuple[float, str]:
    """CPU time (user and system) of a Python process including its children, and its output."""
    # Bytecode is written regardless of the shell's settings, as for the libraries.
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=kept
    )
    after = os.times()
    if done.returncode:
        raise OSError(
            f"python {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()[-200:]}"
        )
    return sum(after[2:4]) - sum(before[2:4]), done.stdout


def measure(models: list[str], rounds: int) -> list[dict]:
    """Median times over rounds. Every command runs once per round, so that a slow period affects
    all alike.

    Parameters
    ----------
    models : list of str
        Model names.
    rounds : int
        How often each command runs.

    Returns
    -------
    list of dict
        Per command: CPU ``seconds``, ``ratio`` to the import of the libraries, ``allowed`` ratio,
        and whether it is ``within``. The cost of torch in ``verify.gradients``, and of the numbers
        themselves for models in `WITH_NUMBERS`, is subtracted first and given in ``without``.
    """
    tasks: dict[str, tuple[list[str], float]] = {
        LIBRARIES: (["-c", LIBRARIES], 1.0),
        TORCH: (["-c", TORCH], np.inf),
    }
    for model in models:
        tasks |= commands(model)
    spent = {name: np.empty(rounds) for name in tasks}
    numbers = {model: np.empty(rounds) for model in models if model in WITH_NUMBERS}
    for n in progress.each(range(rounds), "rounds"):
        for name, (words, _) in tasks.items():
            spent[name][n] = seconds(words)[0]
        for model, timed in numbers.items():
            timed[n] = float(seconds(["-c", AGAIN.format(model)])[1])
    base = spent[LIBRARIES]
    torch = spent.pop(TORCH) - base
    less: dict[str, tuple[Any, str]] = {
        f"verify.gradients {model}": (torch, "import torch") for model in models
    }
    for model, timed in numbers.items():
        less[f"theory.onset {model} --json"] = timed, "its numbers themselves"
    rows = []
    for name, every in spent.items():
        off, without = less.get(name, (0.0, ""))
        ratio = float(np.median((every - off) / base))
        allowed = tasks[name][1]
        rows.append(
            {
                "command": name,
                "seconds": float(np.median(every)),
                "ratio": ratio,
                "allowed": allowed,
                "within": ratio <= allowed,
                "without": without,
            }
        )
    return rows


def main(argv: list[str] | None = None) -> int:
    """Command line. Exit code 1 if a command costs more than allowed."""
    parser = cli.parser(
        "verify.start",
        "CPU time of first answers, as a multiple of importing the libraries.",
        "json",
        model="all",
    )
    parser.add_argument(
        "--rounds", type=cli.count, default=5, metavar="N", help="how often each command runs (5)"
    )
    args = parser.parse_args(argv)
    begun = time.monotonic()
    with progress.bar("verify.start"):
        rows = measure([args.model.name] if args.model else list(registry.MODELS), args.rounds)
    head = ("command", "CPU s", "ratio", "allowed", "within", "ratio leaves out")
    cells = [
        (
            r["command"],
            f"{r['seconds']:.2f}",
            f"{r['ratio']:.2f}",
            f"{r['allowed']:.1f}",
            "yes" if r["within"] else "NO",
            r["without"],
        )
        for r in rows
    ]
    took = f"medians of {args.rounds} fresh processes each, {time.monotonic() - begun:.0f} s in all"
    text = f"{output.table(head, cells)}\n{took}"
    print(output.to_json({"rounds": args.rounds, "rows": rows}) if args.json else text)
    return 0 if all(r["within"] for r in rows) else 1


if __name__ == "__main__":
    cli.run(main)
