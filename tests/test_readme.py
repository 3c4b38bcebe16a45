"""README is correct: its Python runs and prints what stands beside it, its model has
the printed flow, its commands and flags exist, and it cites what CITATION.cff does.
"""

import contextlib
import importlib
import io
import re
from pathlib import Path

import pytest

from theory.models.registry import find

README = (Path(__file__).parents[1] / "README.md").read_text()
INDEX = (Path(__file__).parents[1] / "docs/index.md").read_text()
EXAMPLE, STATEMENT = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
ROWS = [row for row in re.findall(r"^\| `(python -m .*?)\s*\|$", README, re.MULTILINE)]


def test_the_example_prints_what_it_says():
    """Every line runs; what ``print`` writes is its comment, to the last digit. So do
    the lines of the site's first page, which starts alike.
    """
    names = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(EXAMPLE, names)
    promised = re.findall(r"^print\(.*\)  # (.*)$", EXAMPLE, re.MULTILINE)
    assert len(promised) >= 2 and printed.getvalue().splitlines() == promised
    (cell,) = re.findall(r"^```{code-cell}.*\n([^`]*)", INDEX, re.MULTILINE)
    lines = [
        line for line in cell.splitlines() if line.partition("  #")[0] not in EXAMPLE
    ]
    exec("\n".join(lines), names)


def test_the_stated_model_has_the_printed_flow(monkeypatch, tmp_path):
    """In eight lines, as the file that the text names."""
    name = re.search(r"`(\w+\.py)`", README)[1]
    (tmp_path / name).write_text(STATEMENT)
    monkeypatch.chdir(tmp_path)
    (equation,) = find(name).wing("theory").derived().flow.equations().values()
    (printed,) = re.findall(r"^\$\$(.*)\$\$$", README, re.MULTILINE)
    plain = lambda text: re.sub(r"\s|\\(left|right)|[{}]", "", text).replace(
        r"\frac", ""
    )
    assert plain(equation.latex()) == plain(printed)
    assert len(STATEMENT.replace("\n\n", "\n").splitlines()) == 8


def test_the_citation():
    """Title, version and author of CITATION.cff."""
    source = (Path(__file__).parents[1] / "CITATION.cff").read_text()
    cited = dict(
        re.findall(r'^(?:  - )?(\w+(?:-\w+)?): "?([^"\n]+)', source, re.MULTILINE)[::-1]
    )
    year = cited["date-released"][:4]
    author = re.search(r"^authors:\n  - name: (.*)", source, re.MULTILINE)[1]
    for field, value in {
        "author": f"{{{author}}}",
        "title": cited["title"],
        "version": cited["version"],
        "year": year,
    }.items():
        assert f"{field} = {{{value}}}" in README, field


def test_the_first_screens():
    """Sixty lines at most before the commands."""
    assert README[: README.index("## Commands")].count("\n") <= 60


@pytest.mark.parametrize("row", ROWS, ids=[row.split("`")[0] for row in ROWS])
def test_commands(row, capsys):
    """Every command of the table answers --help, and knows the flags its row names."""
    command = row.split("`")[0]
    module = importlib.import_module(command.split()[2])
    main = (
        module.main
        if hasattr(module, "main")
        else importlib.import_module(f"{module.__name__}.__main__").main
    )
    with pytest.raises(SystemExit) as done:
        main(["--help"])
    shown = capsys.readouterr().out
    assert done.value.code == 0 and "usage: " in shown
    flags = set(re.findall(r"(?<!\w)(--[a-z-]+)", row))
    assert {flag for flag in flags if flag not in shown} == set()


def test_the_table_is_read():
    """Not an empty list of rows."""
    assert len(ROWS) > 10
