"""Shared by all tests: separate processes without the start-up time of an interpreter,
and the distribution of tests over workers.
"""

import contextlib
import functools
import gc
import os
import runpy
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

os.environ.setdefault(
    "SYMPY_CACHE_SIZE", "50000"
)  # all models in one process, not a session's few

# A worker keeps to one core, as there is one per core: what it trains is trained in its
# process unless a test asks for others, which would import everything once more beside
# a busy core.
if (_worker := os.environ.get("PYTEST_XDIST_WORKER")) and hasattr(
    os, "sched_setaffinity"
):
    _cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_cores[int(_worker.removeprefix("gw")) % len(_cores)]})

from theory.models import registry

gc.set_threshold(
    100_000
)  # small objects of SymPy are rarely cyclic: as `theory.runtime.cli.run`
pytest_plugins = ["tests.frozen"]
ROOT = Path(__file__).parents[1]
OWN = ("theory", "simulate", "verify", "papers", "linear_attention")  # it is installed


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Instead of files, models: one worker derives what the tests of a model need."""
    from xdist.scheduler import LoadScopeScheduling

    class ByModel(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid)

    if config.getvalue("dist") != "loadfile":
        return None
    # In the order of collection, which begins with the site: last, it would run beside
    # nobody.
    config.option.loadscopereorder = False
    return ByModel(config, log)


def pytest_collection_finish() -> None:
    """What is imported stays."""
    gc.freeze()


def _scope(nodeid: str) -> str:
    """The model that a test names, or its file most often; its file where none stands
    out, and for students, who derive little. One for the site, which is built of what
    its pages have derived.
    """
    path, _, own = nodeid.partition("::")
    named = [name for name in registry.MODELS if name in own]
    if path.startswith("tests/simulate/"):
        return path
    if path.startswith("tests/docs/"):
        return "tests/docs"
    return named[0] if len(named) == 1 else _foremost(path)


@functools.cache
def _foremost(path: str) -> str:
    text = (ROOT / path).read_text()
    (first, most), (_, next_) = sorted(
        ((name, text.count(name)) for name in registry.MODELS), key=lambda x: -x[1]
    )[:2]
    return first if most > 2 * next_ else path


@pytest.fixture(scope="session")
def forked(tmp_path_factory) -> Callable:
    """Run a function, or a module as ``python -m`` does, in a forked process:
    returncode, stdout and stderr, as `subprocess.run` returns them.

    Fork shares what this process has loaded and derived; one real start per wing is
    kept elsewhere. With ``anew`` the toolkit's own modules are loaded again, as where
    nothing was loaded.
    """

    def run(
        work: Callable | str, *arguments: str, seconds: int = 120, anew: bool = False
    ) -> SimpleNamespace:
        folder = tmp_path_factory.mktemp("process")
        with contextlib.ExitStack() as stack:
            files = [
                stack.enter_context(open(folder / name, "w+"))
                for name in ("out", "err")
            ]
            child = os.fork()
            if child == 0:
                _become(work, arguments, files, seconds, anew)
            _, status = os.waitpid(child, 0)
            return SimpleNamespace(
                returncode=os.waitstatus_to_exitcode(status),
                stdout=(folder / "out").read_text(),
                stderr=(folder / "err").read_text(),
            )

    return run


def _become(
    work: Callable | str, arguments: tuple, files: list, seconds: int, anew: bool
) -> None:
    """Be the process; does not return."""
    code = 1
    gc.freeze()  # a collection would write to, so copy, all that is shared
    try:
        signal.alarm(seconds)  # one that hangs fails
        for number, file in enumerate(files, 1):
            os.dup2(file.fileno(), number)
        sys.stdout, sys.stderr = (open(k, "w", closefd=False) for k in (1, 2))  # noqa: SIM115
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # of runpy: the module is loaded
        sys.argv = [str(work), *arguments]
        for name in [x for x in sys.modules if anew and x.partition(".")[0] in OWN]:
            del sys.modules[name]
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
