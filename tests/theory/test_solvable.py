"""``solvable``: one screen, the same commands as ``python -m``, completion; nothing
typed twice.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simulate import __main__ as simulate
from simulate import systems
from theory import __main__ as theory
from theory import __version__
from theory.call.refusal import ParameterError
from theory.models import model, registry
from theory.models import solvable as one_command
from verify.__main__ import main as verify

ROOT = Path(__file__).parents[2]
RUN = "from theory.models import solvable; solvable.solvable()"


def solvable(*words, **environment):
    """Run in a process of its own, in another folder."""
    return subprocess.run(
        [sys.executable, "-c", RUN, *words],
        capture_output=True,
        text=True,
        cwd="/",
        env=os.environ
        | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        | environment,
    )


def complete(line, file, forked):
    """Words that the shell would offer at the end of a line."""

    def work():
        os.environ |= {
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": " ",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(file),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
        }
        sys.argv = ["solvable"]
        one_command.solvable()

    forked(work)
    return file.read_text().split()


def test_every_command_is_a_verb():
    """A module with a command has a first line from which the listing is made, and the
    reverse.
    """
    there = set()
    for wing in ("theory", "simulate", "verify", "papers"):
        for file in (ROOT / wing).rglob("*.py"):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            if '\nif __name__ == "__main__":' in file.read_text():
                there.add(name.removesuffix(".__main__"))
    models = {f"simulate.{m}" for m in registry.MODELS}  # the same as `simulate MODEL`
    assert set(one_command.verbs()) == there - models
    assert {"theory.onset", "simulate.sweep", "verify.gradients", "papers"} <= set(
        one_command.verbs()
    )


def test_one_screen(capsys):
    """Verbs, models and systems, in 80 columns and about 24 lines."""
    assert one_command.main([]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert len(lines) <= 26 and max(map(len, lines)) <= 80
    for name in one_command.verbs():
        assert re.search(rf"(^|\s){re.escape(name)}\b", shown), name
    for name in registry.TABLE:
        assert re.search(rf"\b{name.rpartition('.')[2]}\b", shown), name
    one_command.main(["--help"])
    assert capsys.readouterr().out == shown
    one_command.main(["--version"])
    assert capsys.readouterr().out.split()[1] == __version__


def test_it_answers_at_once():
    """Without torch, and without the commands it lists."""
    code = (
        "import sys\nfrom theory.models import solvable\nsys.argv[1:] ="
        " []\nsolvable.main()\nprint({'torch', 'scipy', 'numba', 'theory.onset',"
        " 'simulate'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT
    )
    assert done.stdout.endswith("\nset()\n"), done.stderr + done.stdout[-100:]


@pytest.mark.parametrize(
    ("words", "verb", "others"),
    [
        ("onset state_tracking --json", "theory.onset", 2),
        ("theory.onset", "theory.onset", 0),
        ("theory onset x", "theory.onset", 1),
        ("theory state_tracking", "theory", 1),
        ("simulate sweep --grid L=2", "simulate.sweep", 2),
        ("sweep", "simulate.sweep", 0),
        ("verify gradients", "verify.gradients", 0),
        ("papers forner2026", "papers", 1),
    ],
)
def test_verbs(words, verb, others):
    """By the name after ``python -m``, by two words, by the last of them."""
    found, remaining = one_command.resolve(words.split())
    assert found == verb and len(remaining) == others


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("onsett", "onsett: must be a verb; did you mean 'onset'?"),
        ("state_tracking", "solvable onset state_tracking"),
        ("associative_memory.k_hop", "solvable onset associative_memory.k_hop"),
        ("train", "train: must be a verb; type solvable simulate"),
        ("xyzzy", "xyzzy: must be a verb; all of them: solvable"),
    ],
)
def test_what_is_no_verb(words, message):
    """One line, with what to type."""
    with pytest.raises(ParameterError, match=re.escape(message)):
        one_command.main(words.split())
    advice = re.search(r"solvable (\w+) ", message)
    assert not advice or one_command.resolve([advice[1]])


def test_it_is_the_same_command(forked):
    """Output, errors and exit code of ``python -m``."""
    for words in (["onset", "state_tracking", "--json"], ["onset", "--set", "N=-1"]):

        def typed(words=words):
            sys.argv = ["solvable", *words]
            one_command.solvable()

        ours, theirs = forked(typed), forked(f"theory.{words[0]}", *words[1:])
        for stream in ("returncode", "stdout", "stderr"):
            assert getattr(ours, stream) == getattr(theirs, stream)
    assert theirs.returncode == 2 and theirs.stderr.count("\n") == 1


def test_a_folder_named_theory_is_no_obstacle(tmp_path):
    """Of the user, where the command is typed."""
    (tmp_path / "theory").mkdir()
    (tmp_path / "theory" / "__init__.py").write_text("raise SystemExit('mine')")
    script = tmp_path / "bin" / "solvable"
    script.parent.mkdir()
    script.write_text(RUN)
    done = subprocess.run(
        [sys.executable, script, "onset", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "offered", "missing"),
    [
        ("solvable ons", ["onset"], "papers"),
        ("solvable theory.", ["theory.onset", "theory.latex"], "onset"),
        ("solvable onset ind", ["induction_heads"], "state_tracking"),
        ("solvable verify gr", ["gradients"], "laws"),
        ("solvable onset induction_heads --pre", ["--preset"], "--set"),
        ("solvable onset induction_heads --preset ", ["emergence"], "table_1"),
        ("solvable theory onset --set N", ["N="], "L="),
        ("solvable papers ", ["forner2026", "cui2024"], "state_tracking"),
    ],
)
def test_completion(line, offered, missing, tmp_path, forked):
    """Verbs, models, flags, presets and parameters, as far as they are typed."""
    found = complete(line, tmp_path / "offered", forked)
    assert set(offered) <= set(found) and missing not in found


@pytest.mark.parametrize("shell", [[], ["bash"], ["zsh"], ["fish"]])
def test_code_for_the_shell(shell, capsys):
    """Is printed, for the shell's `eval`."""
    one_command.main(["--completion", *shell])
    assert "solvable" in capsys.readouterr().out


def test_a_bare_wing_says_what_it_can_do(capsys, monkeypatch):
    """Of theory the models, of verify the checks, of simulate the students; nothing is
    trained.
    """
    assert theory.main([]) == 0
    shown = capsys.readouterr().out
    assert all(
        re.search(rf"^{re.escape(m)} ", shown, re.MULTILINE) for m in registry.TABLE
    )
    assert len(shown.splitlines()) <= 2 * len(registry.TABLE) + 4
    assert verify([]) == 0
    shown = capsys.readouterr().out
    assert (
        all(f"\nverify.{c} " in shown for c in model.COMMANDS)
        and "theory.onset" not in shown
    )
    with pytest.raises(ParameterError, match=r"verify\.gradiens: .* 'gradients'"):
        verify(["gradiens"])
    monkeypatch.setattr(
        "simulate.training.plan.System.train", lambda *_, **__: pytest.fail("trains")
    )
    assert simulate.main([]) == 0
    shown = capsys.readouterr().out
    assert (
        all(s.rpartition(".")[2] in shown for s in systems.every())
        and "--seeds" in shown
    )
