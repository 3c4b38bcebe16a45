"""Without `make setup` examples are taken from their folders, and one test says that
linear attention is not installed.
"""

import importlib.util
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
for name in ("linear_attention",):
    if importlib.util.find_spec(name) is None:
        sys.path.insert(0, str(EXAMPLES / name))
