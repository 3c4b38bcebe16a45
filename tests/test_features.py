"""The feature table of CONTRIBUTING.md is that of the tree: whoever adds, drops or
grows something writes it down.
"""

import dataclasses
import re

import pytest

from tests import features
from theory.models import registry, solvable

TEXT = features.PLACE.read_text()
TABLE = features.table(TEXT)


def test_the_table_is_that_of_the_tree():
    """Every file is in a row, and no weight is off by more than a tenth; else
    ``python -m tests.features --write``.
    """
    assert features.faults(TEXT) == []
    assert len({feature.name for feature in TABLE}) == len(TABLE) > 20


def test_every_system_is_in_a_row():
    """By its name as a model."""
    named = set(re.findall(r"`([\w.]+)`", " ".join(f.name for f in TABLE)))
    assert {m.name for m in registry.TABLE.values()} <= named | {
        m.name for m in registry.TABLE.values() if m.package
    }


def test_every_command_is_in_a_row():
    """By its name after ``python -m``."""
    named = set(re.findall(r"`([\w.]+)`", " ".join(f.name for f in TABLE)))
    assert set(solvable.verbs()) <= named


def test_every_package_of_the_examples_has_a_row():
    places = {place for feature in TABLE for place in feature.where}
    folders = [x for x in (features.ROOT / "examples").iterdir() if x.is_dir()]
    tracked = [x for x in folders if [*x.rglob("*.py")]]
    assert {f"examples/{x.name}" for x in tracked} <= places


@pytest.fixture
def tree(tmp_path):
    """A small tree with its table, which has no fault."""
    for folder in features.FOLDERS:
        (tmp_path / folder / "room").mkdir(parents=True)
    (tmp_path / "theory/room/old.py").write_text("x = 1\n" * 40)
    (tmp_path / "theory/top.py").write_text("x = 1\n" * 10)
    (tmp_path / "theory/test_top.py").write_text("x = 1\n")
    rows = ("| room | `theory/room` | us | 0 |", "| top | `theory/*.py` | us | 0 |")
    page = "\n".join([features.HEAD, "|---|---|---|---|", *rows, "", "text"])
    return tmp_path, features.written(page, tmp_path)


def test_a_tree_with_its_table(tree):
    root, page = tree
    assert features.faults(page, root) == []
    assert features.written(page, root) == page
    assert [f.nodes for f in features.table(page)] == [160, 41]


def test_growth_is_noticed(tree):
    """By a fifth, not by a twentieth."""
    root, page = tree
    file = root / "theory/room/old.py"
    file.write_text("x = 1\n" * 42)
    assert features.faults(page, root) == []
    file.write_text("x = 1\n" * 48)
    assert [x.partition(":")[0] for x in features.faults(page, root)] == ["room"]
    assert features.faults(features.written(page, root), root) == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("simulate/room/new.py", "simulate/room/new.py: in no row"),
        ("theory/room/inner/new.py", "room: weighs"),
    ],
)
def test_a_new_file_is_noticed(tree, path, said):
    root, page = tree
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("x = 1\n" * 20)
    (fault,) = features.faults(page, root)
    assert fault.startswith(said)


def test_what_left_is_noticed(tree):
    root, page = tree
    (root / "theory/top.py").unlink()
    assert features.faults(page, root) == ["top: theory/*.py holds no code"]


def test_a_row_says_who_asked(tree):
    root, page = tree
    assert features.faults(page.replace("| us |", "|  |", 1), root) == [
        "room: does not say who asked"
    ]


def test_the_closest_row_owns_a_file():
    row = features.Feature("", (), "us", 0, "")
    places = ("theory", "theory/room", "theory/room/*_laws.py", "theory/room/a_laws.py")
    rows = [dataclasses.replace(row, name=x, where=(x,)) for x in places]
    owned = {
        "theory/top.py": "theory",
        "theory/room/old.py": "theory/room",
        "theory/room/b_laws.py": "theory/room/*_laws.py",
        "theory/room/a_laws.py": "theory/room/a_laws.py",
        "theory/roomy.py": "theory",
    }
    for file, name in owned.items():
        assert features.owner(rows, file).name == name
    assert features.owner(rows[1:], "theory/top.py") is None
