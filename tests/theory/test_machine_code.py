"""Machine code kept between runs: what is not as it was written is compiled again, and
a folder that others can write to is not used.
"""

import os
import random
from pathlib import Path

import pytest

from tests.damage import damaged
from theory.numbers import compiled
from theory.runtime import output

SOURCE = """
from theory.numbers.compiled import njit
twice = njit("f8(f8)", cache=KEPT)(lambda x: 2 * x + 1)
"""
PLANTED = "import pathlib\npathlib.Path({!r}).touch()\n"


def answer():
    """A number of compiled code, and how often it was taken from the cache."""
    made = compiled.module(SOURCE)
    hits = made.twice._cache_hits if made.KEPT else {}
    return made.twice(20.5), sum(hits.values())


def test_damaged_code_is_compiled_again(tmp_path, monkeypatch):
    """Truncated files and flipped bits end in no signal,
    no error and no other number.
    """
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_CACHE", str(tmp_path))
    rng = random.Random(0)
    assert (answer(), answer()) == ((42.0, 0), (42.0, 1))
    files = [f for f in sorted(tmp_path.rglob("*")) if f.is_file()]
    assert sorted({f.suffix for f in files}) == [".nbc", ".nbi", ".py"]
    for file in files * int(os.environ.get("FUZZ", "3")):
        file.write_bytes(damaged(file.read_bytes(), rng))
        value, hits = answer()
        assert value == 42.0 and (file.suffix == ".py" or not hits)
        assert answer() == (42.0, 1)


def test_code_of_one_function_is_not_taken_for_another(tmp_path, monkeypatch):
    """Files in each other's place are damaged, too."""
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_CACHE", str(tmp_path))
    answer()
    other = compiled.module(SOURCE.replace("2 * x", "3 * x"))
    assert other.twice(20.5) == 62.5
    one, two = sorted(tmp_path.rglob("*.nbc"))
    one.write_bytes(two.read_bytes())
    assert (
        answer()[0] == 42.0
        and compiled.module(SOURCE.replace("2 * x", "3 * x")).twice(20.5) == 62.5
    )


def test_planted_byte_code_is_not_run(tmp_path, monkeypatch):
    """Python itself would run byte code that has date and size of the source."""
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_CACHE", str(tmp_path))
    answer()
    (source,) = tmp_path.glob("generated_*.py")
    text, state = source.read_text(), source.stat()
    hostile = PLANTED.format(str(tmp_path / "done"))
    source.write_text(hostile + "#" * (len(text) - len(hostile)))
    os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))
    __import__("py_compile").compile(str(source))
    source.write_text(text)
    os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert answer()[0] == 42.0
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_shared_folder_is_not_used(mode, tmp_path, monkeypatch):
    """The user's own is used instead, and a warning says so."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_CACHE", str(shared))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.warns(
        UserWarning, match="others own it or can write to it; .* chmod 700"
    ):
        place = output.cache_folder()
    assert (
        place == tmp_path / "solvable-transformers"
        and place.stat().st_mode & 0o777 == 0o700
    )
    with pytest.warns(UserWarning, match="no cache"):
        assert answer()[0] == 42.0
    assert not list(shared.iterdir())


def test_a_folder_of_another_user_is_not_used(tmp_path, monkeypatch):
    """Nor is one's usual folder, if that is another's: code is then not kept."""
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_CACHE", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.warns(UserWarning, match="no cache"):
        made = compiled.module(SOURCE)
    assert made.twice(20.5) == 42.0 and not made.KEPT
    assert [f for f in Path(tmp_path).rglob("*") if f.is_file()] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("way", ["owner", "mode"])
def test_code_that_others_wrote_is_not_run(way, tmp_path, monkeypatch):
    """Left in a folder that was open to them once: anybody can make the digest."""
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_CACHE", str(tmp_path))
    before = os.umask(0o002)  # must not keep one's own code from being used
    try:
        assert (answer(), answer()) == ((42.0, 0), (42.0, 1))
        for file in tmp_path.rglob("*.nb?"):
            os.chown(file, 1234, -1) if way == "owner" else file.chmod(0o666)
        assert (answer(), answer()) == ((42.0, 0), (42.0, 1))
    finally:
        os.umask(before)
