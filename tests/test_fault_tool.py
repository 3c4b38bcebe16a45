"""The tool that injects faults one at a time into a copy: a fault counts as caught if
and only if a test fails.
"""

import ast
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.__main__ import equivalents
from tests.faults.sites import shuffled, sites

ROOT = Path(__file__).parents[1]
CODE = '''"""A room."""


def area(a: float, b: float = 2.0) -> float:
    """Of a rectangle."""
    if a < 0:
        raise ValueError(f"negative by {0 - a}")
    return a * b


def unused(a: float) -> float:
    """Nobody tests it."""
    return a - 1
'''
TESTS = """from theory.room import area, unused


def test_area():
    assert area(3.0) == 6 and area(3.0, 1) == 3


def test_nothing():
    unused(1.0)
"""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """All faults of the project's files that are listed with equivalents, in the order
    of one seed.
    """
    tree = tmp_path_factory.mktemp("listed")
    for file in {key.partition(" #")[0] for key in equivalents()}:
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tree / file)
    return shuffled(tree, 5)


def test_a_fault_is_one_change_of_one_expression(drawn):
    """Of every kind, in the project's own files: with what stood there before, the file
    is again what it was.
    """
    kinds = {f.kind: [g for g in drawn if g.kind == f.kind][:3] for f in drawn}
    assert kinds.keys() >= {"sign", "operator", "dropped", "number", "function"}
    for fault in itertools.chain(*kinds.values()):
        source = (ROOT / fault.file).read_text()
        faulty = fault.applied(source)
        lines = source.encode().splitlines(keepends=True)
        begin = len(b"".join(lines[: fault.line - 1]).decode()) + fault.column
        end = begin + len(fault.after)
        assert faulty[begin:end] == fault.after, fault
        restored = f"{faulty[:begin]}{fault.before}{faulty[end:]}"
        assert ast.unparse(ast.parse(restored)) == ast.unparse(ast.parse(source)), fault
        assert ast.unparse(ast.parse(faulty)) != ast.unparse(ast.parse(source)), fault
    with pytest.raises((ValueError, SyntaxError)):  # the file is another by now
        fault.applied("# a line more\n" * len(lines) + source)


SLIPS = '''"""A room."""


def study(p, seed, runs, streams, parts):
    """What a person may get wrong."""
    rng = keyed(seed, 1)
    test = draw(p, runs, streams["test"])
    for part in parts:
        use(part, rng, test)
    error = sum(x.var(ddof=1) for x in parts)
    lead = abs(runs.first - runs.last)
    return near("lead", "law", law(p), lead, 0.1, "why"), error, parameter(1, "size")
'''


def test_slips_of_meaning(tmp_path):
    """Each kind where it may be, as a person would make it."""
    (tmp_path / "verify").mkdir()
    (tmp_path / "verify" / "room.py").write_text(SLIPS)
    found = {(f.kind, f.before, f.after) for f in sites(tmp_path)}
    assert found >= {
        ("seed", "seed", "(seed // 2)"),
        ("stream", "1", "0"),
        ("stream", "streams['test']", "(streams['train'])"),
        ("argument", "use(part, rng, test)", "(use(rng, part, test))"),
        ("rest ignored", "parts", "(list(parts)[:2])"),
        ("first ignored", "parts", "(list(parts)[1:])"),
        ("variance", "1", "0"),
        ("direction", "runs.first - runs.last", "(abs(runs.first - runs.last))"),
        ("direction", "abs(runs.first - runs.last)", "(runs.first - runs.last)"),
        ("predicted", "law(p)", "(lead)"),
        ("field", "parameter(1, 'size')", "(parameter(1, 'size', theory_only=True))"),
    }


@pytest.fixture
def house(tmp_path):
    """A project with one file and two tests, and a bench beside it, as a script would
    use it.
    """
    root = tmp_path / "house"
    (root / "theory").mkdir(parents=True)
    (root / "theory" / "room.py").write_text(CODE)
    (root / "tests").mkdir()
    (root / "tests" / "test_room.py").write_text(TESTS)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return root


SCRIPT = """
import json, sys
from pathlib import Path
from tests.faults.sites import sites
from tests.faults.trial import Bench
root, folder = map(Path, sys.argv[1:])
bench = Bench(root, folder)
for file in bench.files:
    bench.trace(file)
calls = bench.calls("tests/test_room.py")
untouched = bench.run(None, "tests/test_room.py", set(calls.good))
found = {f.key: bench.try_(f, 60.0) for f in sites(bench.tree)}
copied = (bench.tree / "theory/room.py").read_text()
same = copied == (root / "theory/room.py").read_text()
print(json.dumps([sorted(calls.bad), untouched[0], found, same]))
"""


@pytest.mark.slow
def test_what_is_noticed_and_what_is_not(house, tmp_path):
    """The untouched copy is green, faults in what a test asserts are caught by that
    test, others survive; message and annotation hold none; the copy ends as it was.
    """
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        SCRIPT,
        str(house),
        str(tmp_path / "bench"),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    bad, failed, found, same = json.loads(done.stdout.splitlines()[-1])
    assert bad == [] and not failed and same
    states = {key.partition(": ")[2]: (f["state"], f["by"]) for key, f in found.items()}
    area = "tests/test_room.py::test_area"
    assert states == {
        "2.0 -> 2.1": ("caught", area),
        "a * b -> (a / b)": ("caught", area),
        "a * b -> (a)": ("caught", area),
        "a < 0 -> (a <= 0)": ("survived", ""),
        "0 -> 1": ("survived", ""),
        "a - 1 -> (a + 1)": ("survived", ""),
        "a - 1 -> (a)": ("survived", ""),
        "1 -> 2": ("survived", ""),
    }


@pytest.mark.slow
def test_three_faults_at_another_seed(tmp_path):
    """The command itself: definitions of state tracking against theirs."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.faults",
        "--seed",
        "3",
        "--count",
        "3",
    ]
    command += ["--among", "theory/state_tracking/model/definitions.py"]
    command += ["--tests", "tests/theory/test_definitions.py"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "bench")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 faults, 3 caught" in done.stdout


def test_equivalents_are_proved_and_drawn(drawn):
    """Every fault that is passed over exists, and says why no test could see it."""
    assert set(equivalents()) <= {f.key for f in drawn}
    assert all(len(proof) > 20 for proof in equivalents().values())
