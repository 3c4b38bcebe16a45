"""Kernels of pages, and the ``python -m`` commands that pages run, are forked from one process that
has loaded the libraries, so that these are imported once for the whole site instead of seventy
times. Nothing of this project is loaded there: models of tutorials are found as in a new process.

This file is also what ``python`` is within pages: ``forked.py SOCKET ARGUMENTS`` asks the server.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LIBRARIES = (
    *("sympy", "mpmath", "xarray", "netCDF4", "pandas", "numba", "torch", "tqdm", "joblib"),
    *("scipy.optimize", "scipy.integrate", "scipy.stats", "scipy.special", "filelock"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib_inline.backend_inline"),
    *("IPython", "ipykernel.ipkernel"),  # kernelapp reads the environment when it is imported
)


def start(app: Any) -> None:
    """Start the server, and lead kernels and commands to it, in a parallel build, which keeps each
    process to one core. Ordinary kernels use all cores, and serve where a fork may not work.
    """
    if sys.platform != "linux" or app.parallel == 1:
        return
    folder = Path(tempfile.mkdtemp())
    python, kernel = folder / "python", folder / "kernels" / "python3" / "kernel.json"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" {folder}/socket "$@"\n')
    python.chmod(0o755)
    kernel.parent.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"]
    kernel.write_text(json.dumps({"argv": argv, "display_name": "Python", "language": "python"}))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(f"{folder}/socket")
        listening.listen(64)
        server = subprocess.Popen(
            [sys.executable, __file__, str(listening.fileno())],
            stdin=subprocess.PIPE,  # closed when this process ends, however it does
            pass_fds=[listening.fileno()],
            env={**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline"},
        )
    atexit.register(server.communicate)
    os.environ["JUPYTER_PATH"] = str(folder)
    os.environ["PATH"] = os.pathsep.join((str(folder), os.environ["PATH"]))


def serve(server: socket.socket) -> None:
    """Load the libraries, and fork a process per request, until the build has ended."""
    # Libraries that see one core start no threads when they are loaded. A fork would lose them.
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    for name in LIBRARIES:
        importlib.import_module(name)
    if len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("a library has started threads: kernels cannot be forked from here")
    while sys.stdin not in select.select([server, sys.stdin], [], [])[0]:
        asked, _ = server.accept()
        if os.fork() == 0:
            answer(asked)
        asked.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    shutil.rmtree(Path(server.getsockname()).parent)


def answer(asked: socket.socket) -> None:
    """Run what was asked for in a process, and send its exit code, or end it with the process that
    asked, as kernels are at the end of their page; does not return.
    """
    request, files, _, _ = socket.recv_fds(asked, 2**20, 3)
    asked.send(b"taken")
    child = os.fork()
    if child == 0:
        become(json.loads(request), files)
    running = os.pidfd_open(child)
    ended, _, _ = select.select([running, asked.fileno()], [], [])
    if running not in ended:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if running in ended:
        asked.send(bytes([os.waitstatus_to_exitcode(status) % 256]))
    os._exit(0)


def become(request: dict[str, Any], files: list[int]) -> None:
    """Be the command: its files, folder, environment and cores; ends with the command."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    os.sched_setaffinity(0, request["cores"])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    added = [p for p in sys.path[1:] if p not in before]  # the first is the folder of this file
    sys.path[:] = [request["folder"], *filter(None, paths), *added]
    module, *sys.argv[1:] = request["arguments"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()


def ask(place: str, arguments: list[str]) -> int:
    """Exit code of ``python -m``, run by the server with the files of this process. The usual
    interpreter runs anything else, and all where the server could not load.
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
            with contextlib.suppress(ConnectionError):  # it ends before it has taken the request
                socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
                taken = server.recv(8)
        if taken:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Jupyter sends it to end a kernel
            return (server.recv(1) or b"\x01")[0]
    os.execv(sys.executable, [sys.executable, *arguments])


def setup(app: Any) -> dict[str, bool]:
    """Start the server before pages are read."""
    app.connect("builder-inited", start)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
    serve(socket.socket(fileno=int(sys.argv[1])))
