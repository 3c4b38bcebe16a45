"""What all tests share: a process of its own without the seconds that an interpreter takes to
start, and the order in which workers derive.
"""

import contextlib
import os
import runpy
import signal
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace

import pytest


@pytest.fixture
def forked(tmp_path_factory) -> Callable:
    """Run a function, or a module as ``python -m`` does, in a forked process: returncode, stdout
    and stderr, as `subprocess.run` returns them.

    Fork shares what this process has loaded and derived; one real start per wing is kept elsewhere.
    """

    def run(work: Callable | str, *arguments: str, seconds: int = 120) -> SimpleNamespace:
        folder = tmp_path_factory.mktemp("process")
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open(folder / name, "w+")) for name in ("out", "err")]
            child = os.fork()
            if child == 0:
                _become(work, arguments, files, seconds)
            _, status = os.waitpid(child, 0)
            return SimpleNamespace(
                returncode=os.waitstatus_to_exitcode(status),
                stdout=(folder / "out").read_text(),
                stderr=(folder / "err").read_text(),
            )

    return run


def _become(work: Callable | str, arguments: tuple, files: list, seconds: int) -> None:
    """Be the process; does not return."""
    code = 1
    try:
        signal.alarm(seconds)  # one that hangs fails
        for number, file in enumerate(files, 1):
            os.dup2(file.fileno(), number)
        sys.stdout, sys.stderr = (open(k, "w", closefd=False) for k in (1, 2))  # noqa: SIM115
        warnings.simplefilter("ignore", RuntimeWarning)  # of runpy: the module is loaded
        sys.argv = [str(work), *arguments]
        if callable(work):
            work()
        else:
            runpy.run_module(work, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
