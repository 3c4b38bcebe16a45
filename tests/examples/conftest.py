"""Without `make setup` the example is taken from its folder, and one test says that it is not
installed.
"""

import importlib.util
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "linear_attention"
if importlib.util.find_spec("linear_attention") is None:
    sys.path.insert(0, str(EXAMPLE))
