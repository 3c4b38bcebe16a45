"""Solvable theories of how transformers learn: symbolic results that give LaTeX and
fast numbers.

The names that a model is written with are imported from here, as in ``from theory
import Flow``. Each is loaded from its module when it is first used, so that commands do
not wait for SymPy.
"""

# ruff: noqa: F401

import importlib.util
import os
import re
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from theory.call.arguments import checked
    from theory.call.parameters import BaseParameters, Preset, Stepped, parameter
    from theory.call.refusal import Allowed, ParameterError, number
    from theory.call.scope import Limit, Scope, only
    from theory.call.sweep import by_dimension
    from theory.dynamics.flow import Flow
    from theory.dynamics.onset import Onset, of_onset, until
    from theory.dynamics.optimisers import Optimiser
    from theory.equations.equation import Chapter, Equation, Equations, table
    from theory.models.model import Model
    from theory.symbols.algebra import (
        delta_gradient,
        delta_sum,
        linear_root,
        proved,
        vanishes,
        written_as,
    )
    from theory.symbols.fractions import factored, shortest
    from theory.symbols.notation import array, function, symbol
    from theory.symbols.special import gauss_hermite, gauss_legendre

MODULES = {
    "symbols.algebra": (
        "delta_gradient delta_sum linear_root proved vanishes written_as"
    ),
    "symbols.fractions": "factored shortest",
    "call.arguments": "checked",
    "equations.equation": "Chapter Equation Equations table",
    "dynamics.flow": "Flow",
    "symbols.notation": "array function symbol",
    "dynamics.onset": "Onset of_onset until",
    "dynamics.optimisers": "Optimiser",
    "call.parameters": "BaseParameters Preset Stepped parameter",
    "call.refusal": "Allowed ParameterError number",
    "models.model": "Model",
    "call.scope": "Limit Scope only",
    "symbols.special": "gauss_hermite gauss_legendre",
    "call.sweep": "by_dimension",
}
# Settings of Numba with which kernels start, and take no hours.
NUMBA = {
    "NUMBA_DISABLE_JIT": ("0?", "0"),
    "NUMBA_NUM_THREADS": ("|0*[1-9][0-9]{0,3}", "1 or more"),
}
NEEDED = (
    "numpy",
    "scipy",
    "sympy",
    "flint",
    "xarray",
    "netCDF4",
    "h5py",
    "matplotlib",
    "numba",
    "tqdm",
    "joblib",
)
PLACES: dict[str, str] = {}  # of public names: the module that each is taken from
for _module, _names in MODULES.items():
    PLACES |= dict.fromkeys(_names.split(), _module)


def _interrupted(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Of a command, while its modules are imported; `theory.runtime.cli.run` follows
    then.
    """
    read = [name for name in os.environ if name.startswith(("SYMPY_", "TQDM_"))]
    if issubclass(kind, Exception) and read:
        _refuse(f"{error}; is a variable of the environment wrong? {', '.join(read)}")
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    print("interrupted", file=sys.stderr)
    raise SystemExit(130)


def _finished(unraised: Any) -> None:
    """Of a command that is interrupted while Python ends, when its result is out."""
    if not issubclass(unraised.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraised)


def _refuse(message: str) -> None:
    """Of a command, whose module Python has not started yet:
    one line and exit code 2.
    """
    if sys.argv[:1] != ["-m"] and sys.excepthook is not _interrupted:
        raise ImportError(message)
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


if sys.stderr is None:  # closed: modules write to it when they are imported
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115, as long as the process
if any(importlib.util.find_spec(name) is None for name in NEEDED):
    _refuse(
        f"{sys.executable} lacks packages that theory needs; type, where the toolkit is"
        " checked out, make setup, then .venv/bin/python in place of python"
    )
if sys.argv[:1] == ["-m"]:
    sys.excepthook, sys.unraisablehook = _interrupted, _finished
    for name, (pattern, allowed) in NUMBA.items():
        if not re.fullmatch(pattern, value := os.environ.get(name, "")):
            _refuse(f"{name}={value}: must be {allowed} or unset")


def __getattr__(name: str) -> Any:
    """A name of `PLACES`, from its module."""
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"theory.{PLACES[name]}"), name)
