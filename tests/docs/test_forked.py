"""Commands of pages are forked from a server, or run as usual where there is none;
figures.
"""

import html
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "docs" / "_extensions" / "forked.py"
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="pages are forked on Linux"
)
COMMAND = """
import os, signal, sys, time
print(sys.argv[1:], os.environ["WORD"], os.getcwd(), "forked" in sys.modules, flush=True)
print(os.getpid(), signal.getsignal(signal.SIGINT), flush=True)
open("started", "w").write(str(os.getpid()))
os.rename("started", "command")
time.sleep(float(sys.argv[1]))
sys.exit(7)
"""
# A module that the server has loaded is run without a warning of runpy.
SERVER = """
import forked, socket, sys
sys.modules["room.own"] = forked
forked.serve(socket.socket(fileno={}), 0)
"""


@pytest.fixture
def listening(tmp_path):
    """A socket in a folder of its own, beside a module that is run by its name."""
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "own.py").write_text(COMMAND)
    (tmp_path / "at").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
        made.bind(str(tmp_path / "at" / "socket"))
        made.listen(4)
        yield made


def ask(tmp_path: Path, seconds: float) -> subprocess.Popen:
    """``python -m room.own SECONDS``, as a page runs it."""
    return subprocess.Popen(
        [
            sys.executable,
            FILE,
            tmp_path / "at" / "socket",
            "-m",
            "room.own",
            str(seconds),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        env={**os.environ, "WORD": "given"},
        text=True,
    )


def test_a_command_is_forked(tmp_path, listening):
    """With its arguments, environment, folder, output and exit code; it ends with who
    asked, or, as the server, with the build. Ctrl-C interrupts it, though not the
    server.
    """
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER.format(listening.fileno())],
        stdin=subprocess.PIPE,
        pass_fds=[listening.fileno()],
        env={**os.environ, "PYTHONPATH": str(FILE.parent)},
    )
    one, other, last = (ask(tmp_path, seconds) for seconds in (0, 60, 60))
    said, _ = one.communicate(timeout=60)
    assert said.splitlines()[0] == f"['0'] given {tmp_path} True"
    assert "default_int_handler" in said and one.returncode == 7
    other.stdout.readline()
    command = int(other.stdout.readline().split()[0])
    other.send_signal(signal.SIGKILL)
    other.communicate()
    until = time.monotonic() + 30
    while Path(f"/proc/{command}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{command}").exists()
    last.stdout.readline()
    server.communicate(timeout=60)
    last.communicate(timeout=30)
    assert (server.returncode, last.returncode) == (0, 1)


@pytest.mark.parametrize("waits", [True, False])
def test_without_a_server_a_command_runs_as_usual(tmp_path, listening, waits):
    """Where it has ended, before the command asks or while it waits to be taken."""
    asked = ask(tmp_path, 0) if waits else None
    if waits:
        assert select.select([listening], [], [], 60)[0]
    listening.close()
    asked = asked or ask(tmp_path, 0)
    said, _ = asked.communicate(timeout=60)
    assert said.splitlines()[0] == f"['0'] given {tmp_path} False"
    assert asked.returncode == 7


PAGE = """---
file_format: mystnb
kernelspec:
  name: python3
---
# Page

```{code-cell} ipython3
import sys
print("kernel forked:", "forked" in sys.modules)
!python -m own SECONDS
```

```{code-cell} ipython3
---
mystnb:
  image:
    alt: "A line: it rises."
---
import matplotlib.pyplot as plt
plt.plot([0, 1]);
```
"""
# Nothing is derived, and little is loaded: what is tested are the processes.
BUILD = """
import forked, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of shells ignore it
forked.LIBRARIES = [x for x in forked.LIBRARIES if x.startswith(("matplotlib", "IPython", "ipyk"))]
forked.derive = prepare
forked.build(sys.argv[1:])
"""
ALONE = "prepare = int\n"
THREADS = """
import threading
prepare = threading.Thread(target=threading.Event().wait, daemon=True).start
"""
REFUSED = """
import os
def refuse(*_):
    raise PermissionError("no process may choose its cores")
os.sched_setaffinity, prepare = refuse, int
"""


@pytest.fixture
def building(tmp_path):
    """Start a build of one page, whose command takes some seconds, after statements."""
    pytest.importorskip("myst_nb", reason="myst_nb is not installed (extra docs)")
    (tmp_path / "own.py").write_text(COMMAND)
    (tmp_path / "conf.py").write_text('extensions = ["myst_nb", "forked"]')
    (tmp_path / "temporary").mkdir()
    paths = {"PYTHONPATH": f"{FILE.parent}{os.pathsep}{tmp_path}"}

    def start(first: str, seconds: int) -> subprocess.Popen:
        (tmp_path / "index.md").write_text(PAGE.replace("SECONDS", str(seconds)))
        notebooks = ("-D", "nb_execution_mode=force", "-D", "nb_execution_timeout=300")
        options = ("-j", "2", "-q", *notebooks, tmp_path, tmp_path / "html")
        return subprocess.Popen(
            [sys.executable, "-c", first + BUILD, *options],
            env={
                **os.environ,
                **paths,
                "TMPDIR": str(tmp_path / "temporary"),
                "WORD": "given",
            },
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


@pytest.mark.parametrize(
    ("first", "forks"),
    [
        (ALONE, True),
        pytest.param(REFUSED, True, marks=pytest.mark.slow),
        pytest.param(THREADS, False, marks=pytest.mark.slow),
    ],
    ids=["alone", "refused", "threads"],
)
def test_kernels_of_a_build_are_forked(tmp_path, building, first, forks):
    """And the commands of its pages, from a server that ends with it; also where cores
    may not be chosen. Where a library has started threads the build has ordinary
    kernels. Figures are shown by both.
    """
    built = building(first, 1)  # what a command prints just before it ends may be lost
    _, errors = built.communicate(timeout=300)
    assert built.returncode == 0, errors[-2000:]
    assert ("started threads" in errors) is not forks
    said = html.unescape((tmp_path / "html" / "index.html").read_text())
    assert f"kernel forked: {forks}" in said
    assert f"['1'] given {tmp_path} {forks}" in said
    assert 'alt="A line: it rises."' in said
    assert not list((tmp_path / "temporary").glob("*/socket"))


def test_beside_threads_nothing_is_forked():
    """Sphinx runs without a server, and a line says so; its pages are built in the long
    form.
    """
    ended = (
        "forked.sphinx = lambda: sys.exit('DOCS_SERVER' in"
        " os.environ)\nforked.build([])"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{THREADS}import forked, os, sys\nforked.prepare = prepare\n{ended}",
        ],
        env={**os.environ, "PYTHONPATH": str(FILE.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "started threads" in done.stderr


def test_an_interrupted_build_leaves_nothing(tmp_path, building):
    """By Ctrl-C, which all its processes receive: commands, server and folder are gone,
    and no process but Sphinx has an error to report.
    """
    built = building(ALONE, 300)
    until = time.monotonic() + 60
    while not (at := tmp_path / "command").exists() and time.monotonic() < until:
        time.sleep(0.05)
    command = int(at.read_text())
    os.killpg(built.pid, signal.SIGINT)
    _, errors = built.communicate(timeout=60)
    assert built.returncode != 0 and "Traceback" not in errors
    assert not Path(f"/proc/{command}").exists()
    assert not list((tmp_path / "temporary").glob("*/socket"))
