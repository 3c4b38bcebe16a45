"""Surroundings of a stranger: settings of libraries, terminals, texts in titles,
damaged records, interrupts. One line and the right exit code, or the same result.
"""

import dataclasses
import json
import os
import random
import re
import subprocess
import sys

import pytest

from papers import __main__ as papers
from papers import claims, evidence
from tests.damage import damaged, exchanged
from theory import explorer, latex, onset
from theory.call.refusal import ParameterError
from theory.models import registry

INTERRUPT = "raise KeyboardInterrupt"


def typed(*words, **environment):
    """``python -m`` in another process: exit code and lines of stderr."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("environment", "code", "line"),
    [
        (
            {"NUMBA_DISABLE_JIT": "1"},
            2,
            "error: NUMBA_DISABLE_JIT=1: must be 0 or unset",
        ),
        (
            {"NUMBA_NUM_THREADS": "0"},
            2,
            "error: NUMBA_NUM_THREADS=0: must be 1 or more or unset",
        ),
        ({"LC_ALL": "C", "COLUMNS": "1"}, 0, None),
    ],
)
def test_environments(environment, code, line):
    """Settings with which kernels would take hours are refused, small terminals are
    served.
    """
    found = typed("theory.onset", "associative_memory", "--quiet", **environment)
    assert found == (code, [line] if line else [])


@pytest.mark.parametrize(
    "setting", ["SYMPY_DEBUG=1x", "SYMPY_USE_CACHE=maybe", "TQDM_NCOLS=x"]
)
def test_settings_of_libraries_that_end_their_import(setting):
    """One line that names the variable, not their tracebacks."""
    name, _, value = setting.partition("=")
    code, lines = typed("theory.onset", "state_tracking", **{name: value})
    assert code == 2 and len(lines) == 1 and value in lines[0]
    assert re.fullmatch(
        rf"error: .*; is a variable of the environment wrong\?.* {name}.*", lines[0]
    )


def test_an_interrupt_while_modules_are_imported(tmp_path):
    """Exit code 130 and a word, as later."""
    (tmp_path / "xarray.py").write_text(INTERRUPT)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    assert typed("theory.onset", "state_tracking", PYTHONPATH=path) == (
        130,
        ["interrupted"],
    )


def test_an_interrupt_while_python_ends(tmp_path):
    """When the pool's threads are awaited: the result is out,
    there is nothing to say.
    """
    end = (
        "import threading\n\ndef end():\n   "
        f" {INTERRUPT}\n\nthreading._register_atexit(end)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(end)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    assert typed("theory.onset", "state_tracking", "--quiet", PYTHONPATH=path) == (
        0,
        [],
    )


@pytest.mark.parametrize("field", ["N", "R_0"])
@pytest.mark.parametrize("value", ["10**5000", "9" * 5000, "1e400"])
def test_numbers_of_many_digits(field, value):
    """Beyond what Python converts; the message is short."""
    with pytest.raises(ParameterError, match=f"^{field} = ") as caught:
        onset.main(["state_tracking", "--set", f"{field}={value}"])
    assert len(str(caught.value)) < 200


def test_texts_in_a_page_are_texts():
    """Words of the template in a title, and what HTML would interpret."""
    model = registry.find("associative_memory.factual_recall")
    p = model.wing("theory").Parameters()
    plain = explorer.page(model, p)
    title = "Learning from DATA and CODE <script>alert(1)</script>"
    page = explorer.page(dataclasses.replace(model, title=title), p)
    (printed,) = set(re.findall(r"Learning from .*?(?=</)", page))
    assert (
        printed == "Learning from DATA and CODE &lt;script&gt;alert(1)&lt;/script&gt;"
    )
    assert len(page) - len(plain) < 300 and page.count("<script") == plain.count(
        "<script"
    )


@pytest.mark.parametrize("record", ["claims.toml", "evidence.json"])
def test_damaged_records(record, tmp_path, monkeypatch, capsys):
    """Named in one line, or read as what they still say."""
    model = registry.find("induction_heads")
    files = {
        place.name: place for place in (claims.place(model), evidence.place(model))
    }
    for name, place in files.items():
        (tmp_path / name).write_bytes(place.read_bytes())
    monkeypatch.setattr(claims, "place", lambda model: tmp_path / "claims.toml")
    monkeypatch.setattr(evidence, "sources", lambda model, command: "")
    raw, rng = files[record].read_bytes(), random.Random(0)
    named = 0
    for k in range(30):
        content = damaged(raw, rng)
        if record.endswith("json") and k % 2:
            content = json.dumps(exchanged(json.loads(raw), rng)).encode()
        (tmp_path / record).write_bytes(content)
        try:
            assert papers.main([model.paper, "--claims"]) in (0, 1, 3)
        except ParameterError as error:
            named += 1
            assert record in str(error) and "\n" not in str(error)
    assert named > 10
    lacking = {
        k: {**v} for k, v in json.loads(files["evidence.json"].read_text()).items()
    }
    for command in lacking.values():
        command.pop("sources", None)
    (tmp_path / "claims.toml").write_bytes(files["claims.toml"].read_bytes())
    (tmp_path / "evidence.json").write_text(json.dumps(lacking))
    assert papers.main([model.paper, "--claims"]) in (0, 3)


@pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="no device that is always full"
)
def test_results_on_a_full_disk_and_through_links(tmp_path):
    """What a link points to is replaced as a whole, or is as it was."""
    link, target = tmp_path / "a.tex", tmp_path / "b.tex"
    target.write_text("old")
    link.symlink_to(target)
    assert latex.main(["associative_memory", "--out", str(link)]) == 0
    assert link.is_symlink() and target.read_text().startswith("\\documentclass")
    full = tmp_path / "full.tex"
    full.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space"):
        latex.main(["associative_memory", "--out", str(full)])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_that_nobody_reads_is_no_place(tmp_path, forked):
    """To open it would wait for ever; one with a reader gets the result whole."""
    place = tmp_path / "a.tex"
    os.mkfifo(place)
    done = forked("theory.latex", "associative_memory", "--out", str(place), seconds=20)
    assert done.returncode == 2 and re.fullmatch(
        r"error: .*No such device.*\n", done.stderr
    )
    reader = subprocess.Popen(["cat", place], stdout=subprocess.PIPE, text=True)
    done = forked("theory.latex", "associative_memory", "--out", str(place), seconds=20)
    assert done.returncode == 0 and reader.communicate(timeout=20)[0].endswith(
        "\\end{document}\n"
    )


def test_links_in_a_circle(tmp_path, forked):
    """As targets and on the way to them: an error in one line, or a file in the link's
    place.
    """
    (tmp_path / "a").symlink_to(tmp_path / "a")
    for target in ("a", "a/b.tex"):
        done = forked(
            "theory.latex", "associative_memory", "--out", str(tmp_path / target)
        )
        assert done.returncode in (0, 2)
        assert len((done.stdout + done.stderr).splitlines()) == 1
