"""``make`` sets up with any Python that serves, names what is wrong with others, and
takes no gigabytes for a GPU that is not there.
"""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Makes an environment whose Python writes down what pip is asked for.
PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then
  mkdir -p .venv/bin
  printf '#!/bin/sh\\necho "$*" >> pip.log\\n' > .venv/bin/python
  printf '[ "$3" != index ] || exit {there}\\n' >> .venv/bin/python
  chmod +x .venv/bin/python
else exec {python} "$@"; fi
"""


def script(file, text):
    """Make an executable file."""
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IEXEC)
    return file


@pytest.fixture
def setup(tmp_path):
    """Run the Makefile's set-up with a Python; what it prints, and what pip is asked
    for.
    """
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)

    def run(python, *more, gpu=False):
        tools = tmp_path / "tools"
        tools.mkdir(exist_ok=True)
        script(tools / "nvidia-smi", f"#!/bin/sh\nexit {0 if gpu else 9}\n")
        done = subprocess.run(
            ["make", ".venv/.ready", f"PYTHON={python}", *more],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "MAKEFLAGS": ""},
        )
        log = tmp_path / "pip.log"
        return done, log.read_text().splitlines() if log.exists() else []

    return run


def fake(tmp_path, there):
    """Python whose pip reaches the index of PyTorch's smaller builds, or does not."""
    text = PYTHON.format(python=sys.executable, there=0 if there else 1)
    return script(tmp_path / "python", text)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere PyTorch has no CUDA")
@pytest.mark.parametrize("there", [True, False])
def test_without_a_gpu(setup, tmp_path, there):
    """The CPU's build, torch alone; one short try, and pip's own index if it is out of
    reach.
    """
    done, asked = setup(fake(tmp_path, there))
    assert done.returncode == 0, done.stderr
    tries = [line for line in asked if "download.pytorch.org/whl/cpu" in line]
    assert all("--timeout 5 --retries 0" in line for line in tries)
    assert [("install" in line, "--no-deps" in line) for line in tries[1:]] == [
        (True, True)
    ] * there
    assert (
        asked[-1].endswith("-c constraints.txt -e .") and len(asked) == len(tries) + 1
    )
    assert (" 1.3 GB" if there else "up to 6 GB") in done.stdout


@pytest.mark.parametrize(
    ("more", "gpu"),
    [([], True), (["PIP=--index-url https://mirror.example/simple"], False)],
)
def test_with_a_gpu_or_an_index_of_the_user(setup, tmp_path, more, gpu):
    """PyTorch is what pip takes, with nothing tried before."""
    done, asked = setup(fake(tmp_path, True), *more, gpu=gpu)
    assert done.returncode == 0 and len(asked) == 1 and asked[0].endswith("-e .")
    assert ("6 GB" in done.stdout) == gpu


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/bin/sh\necho pyenv: not found >&2\nexit 127\n", "does not start"),
        ("#!/no/such/interpreter\n", "does not start"),
        (
            '#!/bin/sh\ncase "$*" in *version*) echo Python 3.9.1; exit 1;; esac\n',
            "is Python 3.9.1",
        ),
        ('#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\n', "has no venv module"),
        ("", "not found"),
    ],
)
def test_a_python_that_does_not_serve(setup, tmp_path, text, message):
    """One line that is true, with what to type; nothing is installed."""
    python = script(tmp_path / "python", text) if text else tmp_path / "nowhere"
    done, asked = setup(python)
    assert done.returncode == 2 and not asked and not (tmp_path / ".venv").exists()
    (line,) = [x for x in done.stderr.splitlines() if x.startswith("error: ")]
    assert message in line and "older" not in line
    assert "make PYTHON=" in line or "apt install" in line


@pytest.mark.parametrize("wing", ["simulate", "verify", "papers"])
def test_a_folder_named_theory(wing, tmp_path):
    """Of the user, in the way of the toolkit's: which one it is, and what to do."""
    (tmp_path / "theory").mkdir()
    (tmp_path / "theory" / "__init__.py").write_text("X = 1\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for words in (["-m", wing], ["-c", f"import {wing}"]):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        last = done.stderr.splitlines()[-1]
        assert (
            done.returncode
            and f"{tmp_path / 'theory'} hides the toolkit's package" in last
        )
        assert words[0] == "-c" or (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    "command", ["theory.onset", "theory", "simulate", "verify.gradients"]
)
def test_a_python_without_the_packages(command):
    """As the system's Python in a checkout: one line, for a script the last line."""
    bare = [sys.executable, "-S", "-m", command]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        bare, cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert sys.executable in done.stderr and "make setup" in done.stderr
    bare[2:] = ["-c", "from theory import state_tracking"]
    done = subprocess.run(
        bare, cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1].startswith(
        f"ImportError: {sys.executable} lacks packages"
    )
