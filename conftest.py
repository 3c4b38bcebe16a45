"""Examples are taken from their folders where they are not installed."""

import importlib.util
import sys
from pathlib import Path

for project in sorted(Path(__file__).parent.glob("examples/*/pyproject.toml")):
    folder = project.parent
    if importlib.util.find_spec(folder.name) is None:
        sys.path.insert(0, str(folder))
