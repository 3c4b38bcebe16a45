"""A release: wheel and source archive hold what the checkout has, and run without it.

Could see: a template, a table or a stored ensemble that is missing in the wheel, an
archive from which no wheel can be built, a version or date that differs from file to
file, a command that reads the checkout. It does not see whether the dependencies can be
installed; `make test-lowest` and `make test-newest` do.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import theory

ROOT = Path(__file__).parents[1]
WINGS = ("theory", "simulate", "verify", "papers")
BUILD = (
    "from setuptools import build_meta as b; b.build_sdist('dist');"
    " b.build_wheel('dist')"
)


def run(*words, folder, **environment):
    done = subprocess.run(
        words, cwd=folder, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def names(wheel):
    return {
        n for n in zipfile.ZipFile(wheel).namelist() if n.partition("/")[0] in WINGS
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A copy of the checkout in which both were built, as `make dist` does."""
    folder = tmp_path_factory.mktemp("release") / "copy"
    aside = shutil.ignore_patterns(
        ".*", "output", "build", "__pycache__", "*.egg-info", "docs", "tests"
    )
    shutil.copytree(ROOT, folder, ignore=aside)
    run(sys.executable, "-c", BUILD, folder=folder)
    return folder


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The wheel alone, before the checkout on the path; dependencies are those of the
    tests.
    """
    place = tmp_path_factory.mktemp("installed")
    (wheel,) = (built / "dist").glob("*.whl")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    run(*pip, "--target", str(place), str(wheel), folder=place)
    return place


def test_one_version_and_one_date():
    """In code, change log and citation."""
    newest = re.search(
        r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    cited = (ROOT / "CITATION.cff").read_text()
    assert newest.group(1) == theory.__version__
    assert f"\nversion: {theory.__version__}\n" in cited
    assert f"\ndate-released: {newest.group(2)}\n" in cited


@pytest.mark.slow
def test_the_wheel_holds_every_file(built):
    (wheel,) = (built / "dist").glob("*.whl")
    there = {
        str(f.relative_to(built))
        for w in WINGS
        for f in (built / w).rglob("*")
        if f.is_file()
    }
    assert names(wheel) == {n for n in there if "__pycache__" not in n}


@pytest.mark.slow
def test_the_archive_makes_the_same_wheel(built, tmp_path):
    (archive,), (wheel,) = (
        (built / "dist").glob("*.tar.gz"),
        (built / "dist").glob("*.whl"),
    )
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    run(sys.executable, "-c", BUILD, folder=folder)
    (again,) = (folder / "dist").glob("*.whl")
    assert names(again) == names(wheel)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "state_tracking"),
        ("--version", f"solvable-transformers {theory.__version__}"),
        ("onset state_tracking --preset demo", "4.242"),
        ("latex state_tracking --fragment --equation 15", r"\frac"),
        ("explore state_tracking --out page.html", "page.html"),
        ("gradients associative_memory", "0 FAIL"),
        (
            (
                "simulate associative_memory --preset small --seeds 1 --until 1 --out"
                " runs.nc"
            ),
            "runs.nc",
        ),
        ("papers forner2026 --figure onset --out figures", "figures"),
    ],
)
def test_commands_of_the_wheel(installed, tmp_path, words, said):
    """In a folder of the user, with nothing from the checkout."""
    path = {
        "PYTHONPATH": str(installed),
        "SOLVABLE_TRANSFORMERS_CACHE": str(tmp_path / "cache"),
    }
    where = run(
        sys.executable,
        "-c",
        "import theory; print(theory.__file__)",
        folder=tmp_path,
        **path,
    )
    assert Path(where.strip()).is_relative_to(installed)
    script = str(installed / "bin" / "solvable")
    assert said in run(sys.executable, script, *words.split(), folder=tmp_path, **path)
