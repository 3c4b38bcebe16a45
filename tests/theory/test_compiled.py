"""Generated machine code kept between runs."""

from theory.numbers import compiled

SOURCE = "x = 1\n"


def test_only_the_source_itself_is_taken_from_the_cache(tmp_path, monkeypatch):
    """A file of its name with other content is written anew; where nothing can be
    written, code is not kept.
    """
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_CACHE", str(tmp_path))
    first = compiled.module(SOURCE)
    (path,) = tmp_path.glob("generated_*.py")
    path.write_text("x = 2\n")
    second = compiled.module(SOURCE)
    assert (first.x, second.x) == (1, 1) and first.KEPT and second.KEPT
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_CACHE", str(path))  # no folder
    third = compiled.module(SOURCE)
    assert third.x == 1 and not third.KEPT
