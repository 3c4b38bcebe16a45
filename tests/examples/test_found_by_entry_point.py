"""Models that moved out of the toolkit: every command finds them by their entry
point.
"""

import importlib
import tomllib
from pathlib import Path

import pytest

from theory.models import registry

EXAMPLES = Path(__file__).parents[2] / "examples"
QUICK = {
    "rewards": (
        "theory rewards",
        "theory.onset rewards --json",
        "verify.gradients rewards --quiet",
        "verify.laws rewards --quiet",
        "simulate rewards --set N=4 --set d_g=3 --set epochs=8 --set eval_every=4"
        " --set n_train=64 --set n_test=64 --set rollouts=64 --set pretrain=0",
    ),
    "standard_transformer": (
        "theory standard_transformer",
        "verify.timescales standard_transformer --quiet",
        "simulate standard_transformer --set epochs=4 --set eval_every=2"
        " --set n_train=256 --set n_test=64",
    ),
}
ALONE = " --seeds 2 --workers 1 --quiet --out"


def entered(folder, site):
    """Metadata of a package, as an installation writes them."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    about = site / f"{folder.name}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1\n"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {place}" for name, place in entries.items()]
    (about / "entry_points.txt").write_text("\n".join(lines))


def served(commands, store):
    """Run commands in this process."""
    registry._table.cache_clear()
    for command in commands:
        train = command.startswith("simulate ")
        module, *words = (
            f"{command}{ALONE} {store}".split() if train else command.split()
        )
        name = module if "." in module else f"{module}.__main__"
        assert importlib.import_module(name).main(words) == 0, command
    print("all served")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_every_command_serves_it(name, tmp_path, monkeypatch, forked):
    """Equations, onset, checks and students, without a line of the core about them."""
    entered(EXAMPLES / name, tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES / name)
    monkeypatch.syspath_prepend(tmp_path)
    store = tmp_path / "runs"
    done = forked(lambda: served(QUICK[name], store), seconds=500)
    assert done.returncode == 0, done.stderr[-1500:]
    assert done.stdout.rstrip().endswith("all served")
    assert [*store.rglob("*.nc")]
