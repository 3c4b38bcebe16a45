"""Build the site: ``forked.py OPTIONS`` is ``python -m sphinx OPTIONS`` in a process
that has first loaded the libraries and derived the equations of all models. In a
parallel build on Linux, kernels of pages and the ``python -m`` commands that pages run
are forked from it, so that this happens once for the whole site instead of seventy
times. The table of models is not made before, and packages of tutorials are found as in
a new process.

This file is also what ``python`` is within pages: ``forked.py SOCKET ARGUMENTS`` asks
the server.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
INLINE = "module://matplotlib_inline.backend_inline"  # where kernels draw
LIBRARIES = (
    *(
        "sympy",
        "mpmath",
        "xarray",
        "netCDF4",
        "pandas",
        "numba",
        "torch",
        "tqdm",
        "joblib",
    ),
    *("scipy.optimize", "scipy.integrate", "scipy.stats", "scipy.special", "filelock"),
    # The backend of kernels is not among them: it registers itself where it is first
    # imported.
    *("matplotlib.figure", "matplotlib.backends.backend_agg"),
    *(
        "IPython",
        "ipykernel.ipkernel",
    ),  # kernelapp reads the environment when it is imported
)


def build(options: list[str]) -> None:
    """Run Sphinx, beside the server; does not return. Where a fork may not work,
    kernels and commands are ordinary processes.
    """
    sys.argv = ["sphinx", *options]
    if sys.platform != "linux":
        sphinx()
    cores = os.sched_getaffinity(0)
    # Libraries that see one core start no threads when they are loaded. A fork would
    # lose them.
    keep_to([min(cores)])
    prepare()
    keep_to(cores)
    if len(os.listdir("/proc/self/task")) > 1:
        print(
            "a library has started threads: nothing is forked, which takes longer",
            file=sys.stderr,
        )
        sphinx()
    ended, building = os.pipe()
    folder = tempfile.mkdtemp()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(f"{folder}/socket")
        listening.listen(64)
        server = os.fork()
        if server == 0:
            os.close(building)
            serve(listening, ended)
            shutil.rmtree(folder)
            os._exit(0)
    os.close(ended)
    os.environ["DOCS_SERVER"] = folder
    try:
        sphinx()
    finally:
        os.close(building)
        os.waitpid(server, 0)


def sphinx() -> None:
    """Run ``python -m sphinx`` here, which draws into files, not as kernels; does not
    return.
    """
    importlib.import_module("matplotlib").use("agg")
    runpy.run_module("sphinx", run_name="__main__", alter_sys=True)


def keep_to(cores: Iterable[int]) -> None:
    """Keep this process to some cores; where a container refuses that, it has all."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cores)


def prepare() -> None:
    """Load the libraries, and derive every equation of this toolkit."""
    os.environ["MPLBACKEND"] = INLINE
    for name in LIBRARIES:
        importlib.import_module(name)
    del os.environ["MPLBACKEND"]
    gc.disable()  # a quarter of Sphinx's time; a process takes 1 GB (of stored pages)
    derive()
    gc.freeze()  # or each process would look through all this again, and so copy it


def derive() -> None:
    """Derive every equation of this toolkit."""
    sys.path.insert(0, str(ROOT))
    for model in importlib.import_module("theory.models.registry").OWN:
        for equation in model.wing("theory").equations().values():
            _ = equation.rhs  # some are derived when they are first read
    sys.path.pop(0)


def lead(app: Any) -> None:
    """Lead kernels and commands to the server in a parallel build, which keeps each
    process to one core. Ordinary kernels use all cores.
    """
    folder = Path(os.environ.get("DOCS_SERVER", ""))
    if folder == Path() or app.parallel == 1:
        return
    python, kernel = folder / "python", folder / "kernels" / "python3" / "kernel.json"
    python.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" {folder}/socket "$@"\n'
    )
    python.chmod(0o755)
    kernel.parent.mkdir(parents=True)
    argv = [
        str(python),
        "-m",
        "ipykernel_launcher",
        "-f",
        "{connection_file}",
        "--log-level=ERROR",
    ]
    kernel.write_text(
        json.dumps({"argv": argv, "display_name": "Python", "language": "python"})
    )
    os.environ["JUPYTER_PATH"] = str(folder)
    os.environ["PATH"] = os.pathsep.join((str(folder), os.environ["PATH"]))


def serve(server: socket.socket, ended: int) -> None:
    """Fork a process per request, until the build has ended, also by Ctrl-C or a
    signal: then no process has its end of a pipe any more.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.enable()
    while ended not in select.select([server.fileno(), ended], [], [])[0]:
        asked, _ = server.accept()
        if os.fork() == 0:
            answer(asked, ended)
        asked.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def answer(asked: socket.socket, ended: int) -> None:
    """Run what was asked for in a process, and send its exit code, or end it with the
    process that asked, as kernels are at the end of their page, or with the build; does
    not return.
    """
    request, files, _, _ = socket.recv_fds(asked, 2**20, 3)
    asked.send(b"taken")
    child = os.fork()
    if child == 0:
        become(json.loads(request), files)
    running = os.pidfd_open(child)
    over, _, _ = select.select([running, asked.fileno(), ended], [], [])
    if running not in over:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if running in over:
        asked.send(bytes([os.waitstatus_to_exitcode(status) % 256]))
    os._exit(0)


def become(request: dict[str, Any], files: list[int]) -> None:
    """Be the command: its files, folder, environment and cores;
    ends with the command.
    """
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files):
        os.dup2(file, number)
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    keep_to(request["cores"])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    added = [
        p for p in sys.path[1:] if p not in before
    ]  # the first is the folder of this file
    sys.path[:] = [request["folder"], *filter(None, paths), *added]
    module, *sys.argv[1:] = request["arguments"]
    if not hasattr(sys.modules.get(module), "__path__"):
        sys.modules.pop(module, None)  # or runpy warns that it has been imported
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()


def ask(place: str, arguments: list[str]) -> int:
    """Exit code of ``python -m``, run by the server with the files of this process. The
    usual interpreter runs anything else, and all where the server could not load.
    """
    request = {
        "arguments": arguments[1:],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "cores": sorted(os.sched_getaffinity(0)),
    }
    taken = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        if arguments[:1] == ["-m"] and not server.connect_ex(place):
            with contextlib.suppress(
                ConnectionError
            ):  # it ends before it has taken the request
                socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
                taken = server.recv(8)
        if taken:
            signal.signal(
                signal.SIGINT, signal.SIG_IGN
            )  # Jupyter sends it to end a kernel
            return (server.recv(1) or b"\x01")[0]
    os.execv(sys.executable, [sys.executable, *arguments])


def setup(app: Any) -> dict[str, bool]:
    """Lead pages to the server before they are read."""
    app.connect("builder-inited", lead)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    if sys.argv[1].endswith("/socket"):
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
    build(sys.argv[1:])
