"""The house: no circle of files, rooms that import only what stands above them, few
entries on top of ``theory``, few files in a folder of a model.
"""

import ast
import functools
import graphlib
import sys
from pathlib import Path

import pytest

import theory
from theory.models.registry import MODELS, OWN

ROOT = Path(__file__).parents[1]
OURS = [name for name, model in MODELS.items() if not model.package]
# In the order in which they may import one another. Commands are on top of a wing and
# may import all of it; `runtime` imports the refusal of arguments alone.
ROOMS = {
    "theory": (
        "runtime",
        "call",
        "symbols",
        "numbers",
        "equations",
        "dynamics",
        "statement",
        "state_tracking",
        "induction_heads",
        "positional_semantic",
        "associative_memory",
        "models",
        "explorer",
    ),
    "simulate": (
        "store",
        "training",
        "discover",
        "ensemble",
        "statement",
        "state_tracking",
        "induction_heads",
        "positional_semantic",
        "associative_memory",
        "systems",
    ),
    "verify": (
        "checks",
        "compare",
        "trajectories",
        "rates",
        "statement",
        "state_tracking",
        "induction_heads",
        "positional_semantic",
        "associative_memory",
    ),
}
COMMANDS = {
    "theory": ("__main__", "onset", "latex", "explore"),
    "simulate": ("__main__", "sweep"),
    "verify": (
        "__main__",
        "demo",
        "fidelity",
        "gradients",
        "laws",
        "thresholds",
        "timescales",
    ),
}
REFUSAL = "theory.call.refusal"
MOST_ENTRIES, MOST_FILES, MOST_WALKED = 14, 10, 11


@functools.cache
def texts():
    """Source of every module of the wings and of the papers, by dotted name."""
    found = {}
    for wing in (*ROOMS, "papers"):
        for file in (ROOT / wing).rglob("*.py"):
            parts = file.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            found[name] = file.read_text(encoding="utf-8")
    return found


@functools.cache
def imported(text):
    """Names that a module imports, also inside functions; not for type checkers."""
    names = set()
    todo = [ast.parse(text)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import, which this test does not read"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def arrows(sources):
    """Modules that each module imports. A name that ``theory`` exports counts as the
    module that defines it.
    """

    def module(name):
        exported = theory.PLACES.get(name.removeprefix("theory."))
        name = f"theory.{exported}" if exported else name
        while name and name not in sources:
            name = name.rpartition(".")[0]
        return name

    return {
        name: {module(x) for x in imported(text)} - {"", name}
        for name, text in sources.items()
    }


def circle(sources):
    """Modules that import each other in turn; empty if there are none."""
    try:
        graphlib.TopologicalSorter(arrows(sources)).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def room(module):
    """Wing and room of a module; the wing itself and the papers have no room."""
    wing, _, inside = module.partition(".")
    return wing, inside.partition(".")[0]


def may_import(module, other):
    """Whether an arrow goes to the same room, to one above, or comes from a command."""
    (wing, here), (theirs, there) = room(module), room(other)
    command = here in COMMANDS.get(wing, ()) or module.endswith("__main__")
    if wing != theirs or wing not in ROOMS or not here or not there or command:
        return True
    if here == "runtime" and there != "runtime":
        return other == REFUSAL
    order = ROOMS[wing]
    return there in order and order.index(there) <= order.index(here)


def upward(sources):
    """Arrows to a room that stands below, in words."""
    return [
        f"{module} -> {other}"
        for module, others in arrows(sources).items()
        for other in others
        if not may_import(module, other)
    ]


def test_no_circle_of_files():
    """In no wing, nor across them."""
    assert not circle(texts())


def test_rooms_import_only_what_stands_above_them():
    """In the order of `ROOMS`; every file is in a room or is a command."""
    assert not upward(texts())
    for wing, rooms in ROOMS.items():
        here = {room(module)[1] for module in texts() if module.startswith(f"{wing}.")}
        assert here == {*rooms, *COMMANDS[wing]}


@pytest.mark.parametrize(
    ("module", "line", "in_a_circle"),
    [
        ("theory.call.refusal", "from theory.call import parameters", True),
        ("theory.call.values", "from theory import number, Flow", True),
        (
            "theory.dynamics.prediction",
            "def late():\n    from theory.models import registry",
            True,
        ),
        ("simulate.store.runs", "import simulate.training.plan", True),
        ("theory.symbols.special", "from theory.numbers import streams", False),
        ("theory.runtime.progress", "from theory.call.grid import Grid", False),
        ("theory.equations.titles", "from theory.onset import main", False),
        ("verify.checks.verdict", "from verify.compare import exponents", True),
    ],
)
def test_a_wrong_import_is_seen(module, line, in_a_circle):
    """A line added to a module, in memory."""
    wrong = texts() | {module: f"{texts()[module]}\n{line}\n"}
    assert bool(circle(wrong)) == in_a_circle
    assert [x for x in upward(wrong) if x.startswith(f"{module} -> ")] or in_a_circle


def test_imports_for_type_checkers_are_no_arrows():
    """They are not followed when the toolkit runs."""
    line = "if TYPE_CHECKING:\n    from theory.call.parameters import BaseParameters\n"
    module = "theory.call.refusal"
    harmless = texts() | {module: f"{texts()[module]}\n{line}"}
    assert not circle(harmless) and not upward(harmless)


def test_few_entries_on_top_of_theory():
    """Rooms; beside them the commands that README names."""
    folder = ROOT / "theory"
    entries = {
        path.stem
        for path in folder.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    entries -= {"__init__", *COMMANDS["theory"]}
    assert entries == {*ROOMS["theory"]} and len(entries) <= MOST_ENTRIES
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in set(COMMANDS["theory"]) - {"__main__"}:
        assert f"-m theory.{command}" in readme


@pytest.mark.parametrize("model", OURS)
def test_few_files_in_a_folder_of_a_model(model):
    """In every wing, and in the folders inside."""
    for wing in ROOMS:
        for folder in {f.parent for f in (ROOT / wing / model).rglob("*.py")}:
            files = [f.name for f in folder.glob("*.py")]
            assert len(files) <= MOST_FILES, f"{folder}: {sorted(files)}"


def test_parameters_walk_through_few_rooms():
    """From a model's onset on: rooms of which a function is entered."""
    model = MODELS["state_tracking"]
    p, onset = model.wing("theory").Parameters(), model.wing("theory", "onset").onset
    inside, entered = f"{ROOT / 'theory'}/", set()

    def entering(frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(inside):
            entered.add(Path(file.removeprefix(inside)).parts[0])

    before = sys.getprofile()
    sys.setprofile(entering)
    try:
        onset(p)
    finally:
        sys.setprofile(before)
    assert {"call", "state_tracking"} <= entered and len(entered) <= MOST_WALKED


def test_a_name_of_a_system_is_in_one_table():
    """Of the registry: elsewhere a system names itself, or its family imports it."""
    systems = {m.name: m.name.partition(".")[2] for m in OWN if m.family}
    named = {
        (module, name)
        for module, text in texts().items()
        for name in systems
        if f'"{name}"' in text
    }
    strangers = {
        (module, name)
        for module, name in named
        if module != "theory.models.registry" and systems[name] not in module
    }
    assert not strangers
