"""Sphinx configuration: every page is executed, mathematics becomes MathML, nothing is
fetched.
"""

import hashlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
WINGS = ("theory", "simulate", "verify", "papers", "docs/_extensions")
sys.path.insert(0, str(HERE / "_extensions"))
sys.path.insert(0, str(ROOT))


def sources() -> str:
    """Hash of everything a page's numbers come from: a page is executed again when it
    changes.
    """
    found = hashlib.sha256()
    for wing in WINGS:
        for path in sorted((ROOT / wing).rglob("*")):
            if path.suffix in (".py", ".toml", ".json", ".nc"):
                found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()[:16]


# What the pages' kernels inherit: the same interpreter, this checkout, its store of
# trained runs.
os.environ["PATH"] = os.pathsep.join(
    (str(Path(sys.executable).parent), os.environ["PATH"])
)
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (str(ROOT), os.environ.get("PYTHONPATH", "")))
)
os.environ.setdefault("SOLVABLE_TRANSFORMERS_RUNS", str(ROOT / "output" / "runs"))
os.environ["COLUMNS"] = "100"
sources_hash = os.environ["DOCS_SOURCES"] = sources()  # names the caches

project = "solvable-transformers"
author = "the authors of solvable-transformers"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
extensions += ["mathml", "generated", "pages", "forked", "notebooks"]
exclude_patterns = ["_extensions", "_static"]
templates_path: list[str] = []
html_theme = "furo"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["filter.js"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"top_of_page_buttons": []}
pygments_style = "friendly"

myst_enable_extensions = [
    "dollarmath",
    "colon_fence",
    "deflist",
    "attrs_inline",
    "attrs_block",
]
myst_heading_anchors = 3
# Pages that train nothing, executed where the tests build the site, with
# DOCS_EXECUTION=stored.
STORED = ("glossary.md", "models/associative_memory.md")
wanted = os.environ.get("DOCS_EXECUTION", "cache")
nb_execution_mode = "force" if wanted == "stored" else wanted
nb_execution_excludepatterns = [
    f"{HERE.name}/{page}"
    for page in (path.relative_to(HERE).as_posix() for path in HERE.rglob("*.md"))
    if wanted == "stored" and page not in STORED
]
nb_execution_cache_path = str(
    ROOT / "output" / "docs-cache" / os.environ["DOCS_SOURCES"]
)
nb_execution_in_temp = True
nb_execution_timeout = -1 if os.environ.get("DOCS_TRAIN") else 600
nb_execution_show_tb = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_use_type_comments = False  # there are none, and looking for them takes seconds
autodoc_typehints = "none"  # numpydoc docstrings say types and shapes
autodoc_class_signature = "separated"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False
napoleon_use_ivar = True
default_role = "literal"
suppress_warnings = [
    "ref.python"
]  # words such as Parameters name several classes; no link is made
if wanted in ("off", "stored"):
    suppress_warnings.append("myst-nb.lexer")  # known once a cell has run
