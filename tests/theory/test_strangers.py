"""Broken foreign packages and unusual environments: the broken part is named in one
line, and everything else works.

Could see: one package that takes every command with it, that passes for another model,
or that gets its own words into an answer; a command that ends in a traceback where it
cannot print or draw.
"""

import contextlib
import importlib
import io
import json
import os
import runpy
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest

from theory import __main__ as listing
from theory.call.refusal import ParameterError
from theory.models import plugins, registry
from theory.state_tracking.onset import ONE_TIME

ROOT = Path(__file__).parents[2]
HEAD = "from theory.models.registry import Model\n"
SOUND = HEAD + 'MODEL = Model("{0}", "A model", "{0}", "{0}")'
BROKEN = {  # the module that an entry point names, and what is said of it
    "raises": ("1 / 0", "ZeroDivisionError"),
    "exits": ("import sys\nsys.exit(0)", "SystemExit: 0"),
    "syntax": ("def (", "SyntaxError"),
    "lines": ("raise ValueError('one\\ntwo')", "ValueError: one"),
    "nothing": ("", "AttributeError"),
    "number": ("MODEL = 3", "TypeError"),
    "word": ("MODEL = 'model'", "not a Model with a package"),
    "empty": ("MODEL = []", "not a Model with a package"),
    "mixture": (SOUND + "\nMODEL = [MODEL, 3]", "not a Model with a package"),
    "homeless": (
        HEAD + 'MODEL = Model("{0}", "A model", "{0}")',
        "not a Model with a package",
    ),
    "numbered": (HEAD + 'MODEL = Model(7, "A model", "{0}", "{0}")', "must be a word"),
    "spelling": (
        HEAD + 'MODEL = Model("a b", "A model", "{0}", "{0}")',
        "must be one word",
    ),
    "taken": (
        HEAD + 'MODEL = Model("state_tracking", "Mine", "{0}", "{0}")',
        "is taken",
    ),
    "paper": (
        HEAD + 'MODEL = Model("{0}", "Mine", "forner2026", "{0}")',
        "forner2026 is taken",
    ),
    "twice": (SOUND + "\nMODEL = [MODEL, MODEL]", "is taken"),
    "second": (
        HEAD + 'MODEL = Model("sound", "Mine", "{0}", "{0}")',
        "the name sound is taken",
    ),
    "orphan": (
        HEAD + 'MODEL = Model("k_hop.{0}", "Mine", "{0}", "{0}")',
        "offers no family k_hop",
    ),
    "roomless": (SOUND, "has no roomless.theory"),
}
THEORY = """
    Parameters = None
    def equations(): return {}
    def sections(): return {}
"""
ROOMS = {  # a theory room that is there and does not work
    "raises": "1 / 0",
    "exits": "import sys; sys.exit(0)",
    "syntax": "def (",
    "needs": "import a_package_that_is_not_there",
    "bare": "Parameters = None",
    "underivable": (
        "Parameters = None\ndef equations(): return 1 / 0\nsections = equations"
    ),
}


def package(folder, name, module, **rooms):
    """Write a package with an entry point, as an installer would."""
    files = {f"{name}/__init__.py": module.replace("{0}", name)}
    files |= {f"{name}/{room}/__init__.py": text for room, text in rooms.items()}
    files |= {
        f"{name}-1.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1"
        ),
        f"{name}-1.dist-info/entry_points.txt": (
            f"[{plugins.GROUP}]\n{name} = {name}:MODEL"
        ),
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Make packages importable, and give the registry
    made anew with what it warns of.
    """
    before = dict(registry.TABLE)
    monkeypatch.syspath_prepend(str(tmp_path))

    def made():
        importlib.invalidate_caches()
        registry._table.cache_clear()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            new = {n: m for n, m in registry.TABLE.items() if n not in before}
        assert {n: m for n, m in registry.TABLE.items() if n in before} == before
        assert all("\n" not in str(w.message) for w in said)
        return new, [str(w.message) for w in said]

    yield made
    registry._table.cache_clear()
    for name in [n for n in sys.modules if (tmp_path / n.partition(".")[0]).is_dir()]:
        del sys.modules[name]


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_package_is_named_and_the_others_are_served(
    fault, tmp_path, installed
):
    module, said = BROKEN[fault]
    name = (
        fault if fault != "second" else "zecond"
    )  # read behind the one it is called like
    package(tmp_path, name, module)
    package(tmp_path, "sound", "print('hello')\n" + SOUND, theory=THEORY)
    if fault == "roomless":
        said = f"has no {name}.theory"
    else:
        (tmp_path / name / "theory").mkdir()
        (tmp_path / name / "theory" / "__init__.py").write_text("")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        new, lines = installed()
    assert list(new) == ["sound"] and out.getvalue() == ""
    (line,) = lines
    assert name in line and "left out" in line and said in line


def test_a_list_of_entry_points_that_cannot_be_read(tmp_path, installed):
    package(tmp_path, "sound", SOUND, theory="")
    package(tmp_path, "odd", SOUND, theory="")
    (tmp_path / "odd-1.dist-info" / "entry_points.txt").write_text(
        f"[{plugins.GROUP}]\nodd\n"
    )
    new, lines = installed()
    assert list(new) == ["sound"] and len(lines) == 1 and "odd" in lines[0]


@pytest.mark.parametrize("fault", ROOMS)
def test_a_broken_room_is_one_line(fault, tmp_path, installed, monkeypatch, capsys):
    """For who asks for it; who asks for all models gets the others."""
    own = registry.OWN[0]  # whose equations this worker derives anyway
    package(tmp_path, "broken", SOUND, theory=ROOMS[fault], verify="1 / 0", simulate="")
    new, lines = installed()
    model = new["broken"]
    assert lines == []
    monkeypatch.setattr(registry, "_models", lambda: {m.name: m for m in (model, own)})
    with pytest.warns(UserWarning, match="model broken left out") as caught:
        assert listing.main(["--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == [own.name]
    assert len({str(w.message) for w in caught}) == 1 and all(
        "\n" not in str(w.message) for w in caught
    )
    if fault != "underivable":
        with pytest.raises(
            ParameterError, match=r"^broken: broken.theory (does not load|lacks)"
        ):
            listing.main(["broken"])
    with pytest.warns(UserWarning, match="verify of model broken left out: .*Zero"):
        assert registry.offering("gradients") == [own.name]
    for wing, room in (
        ("simulate", "lacks SYSTEMS"),
        ("papers", "has no broken.papers"),
    ):
        with pytest.raises(ParameterError, match=room):
            model.wing(wing)
    with pytest.raises(ParameterError, match="broken: has no broken.papers"):
        model.ledger()


def test_a_flat_package_is_a_family(tmp_path, installed):
    """Wings as modules, commands beside them for all systems, the theory of a system
    under its name; what lacks is one line.
    """
    two = (
        HEAD
        + 'MODEL = [Model(n, "A model", "flat", "flat") for n in ("flat", "flat.one")]'
    )
    package(tmp_path, "flat", two)
    for name, text in {
        "theory": THEORY,
        "one": THEORY,
        "laws": "report = print",
    }.items():
        (tmp_path / "flat" / f"{name}.py").write_text(textwrap.dedent(text))
    for left in (
        "verify",
        "verify/one",
        "theory",
        "simulate",
    ):  # folders of an older version
        (tmp_path / "flat" / left).mkdir()
    new, lines = installed()
    family, one = new["flat"], new["flat.one"]
    assert lines == [] and family.checks == one.checks == ("laws",)
    assert family.systems == family.offering("laws") == [one]
    assert one.wing("verify", "laws") is family.wing("verify", "laws")
    assert (family.path("theory"), one.path("theory")) == ("flat.theory", "flat.one")
    assert one.wing("theory").__name__ == "flat.one"
    for call, said in (
        (lambda: one.wing("theory", "onset"), "flat.one: flat.theory lacks onset"),
        (
            lambda: one.wing("verify", "gradients"),
            "flat.one: has no flat.one.gradients",
        ),
        (family.ledger, "flat: has no flat.papers"),
    ):
        with pytest.raises(ParameterError, match=f"^{said}"):
            call()
    (tmp_path / "flat" / "theory.py").write_text(
        "Parameters = onset = equations = sections = 0"
    )
    importlib.invalidate_caches()
    del sys.modules["flat.theory"]
    assert one.wing("theory", "onset").onset == 0


def command(words, environment=(), after=""):
    """A command in a process of its own."""
    return subprocess.run(
        ["sh", "-c", f'exec "$0" -m {words} {after}', sys.executable],
        capture_output=True,
        cwd=ROOT,
        timeout=120,
        env={**os.environ, **dict(environment)},
    )


def test_a_command_beside_all_broken_packages(tmp_path):
    """Its answer on stdout, one line for each on stderr, its exit code; Greek letters
    are escaped where the encoding lacks them.
    """
    for fault, (module, _) in BROKEN.items():
        package(tmp_path, fault, "print('hello')\n" + module)
    path = os.pathsep.join(
        [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    done = command(
        "theory linear_attention", {"PYTHONPATH": path, "PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == 0 and b"\\u" in done.stdout and done.stdout.isascii()
    assert b"hello" not in done.stdout
    lines = [line for line in done.stderr.decode().splitlines() if line != "hello"]
    assert len(lines) == len(BROKEN) and all(
        line.startswith("warning: ") for line in lines
    )
    assert all(any(fault in line for line in lines) for fault in BROKEN)


def test_a_stdout_that_takes_nothing(forked):
    """One that is closed, and a full disk."""

    def full():
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        runpy.run_module("theory.onset", run_name="__main__", alter_sys=True)

    closed, found = command("theory.onset", after=">&-"), forked(full)
    assert (
        closed.returncode == found.returncode == 2
        and not closed.stdout + found.stdout.encode()
    )
    for said in (closed.stderr.decode(), found.stderr):
        (error,) = (line for line in said.splitlines() if line != f"note: {ONE_TIME}")
        assert error.startswith("error: ")


def test_a_closed_stderr_leaves_stdout_alone():
    done = command("theory.onset --json --set R_0=1e4", after="2>&-")
    assert done.returncode == 0 and json.loads(done.stdout)["alpha_half"] is None


# One place reads the name, when matplotlib is imported, and one when a figure is first
# made.
@pytest.mark.parametrize(
    ("words", "backend"),
    [
        ("papers forner2026 --figure onset", "nonsense"),
        ("theory.onset --plot", "module://nonsense"),
    ],
)
def test_a_backend_that_is_not_there(words, backend, tmp_path):
    figure = tmp_path / "figure.png"
    where = str(figure) if "onset --plot" in words else f"--out={tmp_path}"
    done = command(f"{words} {where}", {"MPLBACKEND": backend})
    assert done.returncode == 2 and not list(tmp_path.iterdir())
    lines = done.stderr.decode().splitlines()
    (error,) = (line for line in lines if line != f"note: {ONE_TIME}")
    assert error.startswith(f"error: MPLBACKEND = {backend}")
