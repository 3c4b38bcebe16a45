"""Evidence: what is run again, when it is stale, what it depends on."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from pathlib import Path

import pytest
from test_ledgers import models, stored

from papers import __main__ as command
from papers import evidence
from theory.call.refusal import ParameterError
from theory.models.registry import MODELS
from theory.runtime import output
from verify.checks import digests
from verify.checks.check import Check, identity
from verify.checks.report import Report

ROOT = Path(__file__).parents[2]


def _gradients_again(model, tmp_path, monkeypatch):
    monkeypatch.setattr(
        evidence, "place", lambda model: tmp_path / f"{model.paper}.json"
    )
    again = evidence.renew(model, ["gradients"], False)["gradients"]
    with monkeypatch.context() as patch:  # the same code is not run again
        patch.setattr(evidence, "collect", None)
        evidence.renew(model, ["gradients"], False)
        with pytest.raises(TypeError):
            evidence.renew(model, ["gradients"], False, anew=True)
    assert {r["id"]: r["verdict"] for r in again["checks"]} == {
        r["id"]: r["verdict"] for r in stored(model.paper)["gradients"]["checks"]
    }


@pytest.fixture(scope="module")
def fresh(forked):
    """Verdicts of the quickest command in a process of its own, and modules that it
    loaded.
    """
    script = (
        "import sys\nfrom theory.models.registry import find\nfrom verify.checks.report"
        " import Request, collect\nfound = collect(Request(find('associative_memory')),"
        " 'gradients').checks\nprint({c.id: c.verdict for c in found}, [\n    n for n,"
        " m in sys.modules.items() if not hasattr(m, '__path__')\n    and"
        " n.partition('.')[0] in ('theory', 'simulate', 'verify')], sep='\\n')"
    )
    done = forked(lambda: exec(script, {}), anew=True)
    assert done.returncode == 0, done.stderr
    return [ast.literal_eval(line) for line in done.stdout.splitlines()]


def test_evidence_run_again(fresh):
    """The quickest command gives what is stored."""
    checks = stored(MODELS["associative_memory"].paper)["gradients"]["checks"]
    assert fresh[0] == {r["id"]: r["verdict"] for r in checks}


def test_the_same_code_is_not_run_again(tmp_path, monkeypatch):
    """Unless asked; other code is."""
    model, ran = MODELS["associative_memory"], []
    monkeypatch.setattr(evidence, "place", lambda model: tmp_path / "e.json")
    monkeypatch.setattr(evidence, "collect", lambda *_: ran.append(1) or Report([]))
    monkeypatch.setattr(
        evidence, "arrays", contextlib.nullcontext
    )  # of code that takes long
    for code, anew, count in (
        ("a", False, 1),
        ("a", False, 1),
        ("a", True, 2),
        ("b", False, 3),
    ):
        monkeypatch.setattr(evidence, "sources", lambda *_, code=code: code)
        evidence.renew(model, ["gradients"], False, anew)
        assert len(ran) == count


@pytest.mark.slow
@models
def test_all_gradients_run_again(model, tmp_path, monkeypatch):
    """The same for every model."""
    _gradients_again(model, tmp_path, monkeypatch)


def test_run_stores_and_a_difference_is_exit_1(tmp_path, monkeypatch, capsys):
    """A command run again, whose checks fail: verdicts are not the expected ones."""
    model = MODELS["associative_memory"]
    monkeypatch.setattr(evidence, "sources", lambda model, what: "now")
    before = {k: {**v, "sources": "now"} for k, v in stored(model.paper).items()}
    for wrong, code in ((False, 0), (True, 1)):
        good = [
            Check(
                r["name"],
                r["equation"],
                1.0,
                1.0,
                0.0,
                1e-9 if r["verdict"] == "exact" else 0.01,
                "as stored",
            )
            for r in stored(model.paper)["gradients"]["checks"]
        ]
        bad = [
            identity(r["name"], r["equation"], 1.0, 2.0, 1e-9, "fault")
            for r in stored(model.paper)["gradients"]["checks"]
        ]
        monkeypatch.setattr(
            evidence,
            "collect",
            lambda request, what, c=bad if wrong else good: Report(c),
        )
        (tmp_path / "e.json").write_text(json.dumps(before))
        monkeypatch.setattr(evidence, "place", lambda model: tmp_path / "e.json")
        words = [model.paper, "--claims", "--run", "gradients", "--quiet", "--anew"]
        assert command.main(words) == code
        assert ("not those that the ledger expects" in capsys.readouterr().out) == wrong


def test_stale_evidence_is_exit_3(tmp_path, monkeypatch, capsys):
    """One command's sources have changed: said, and in the exit code."""
    model = MODELS["linear_attention"]
    fresh = {k: {**v, "sources": "now"} for k, v in stored(model.paper).items()}
    monkeypatch.setattr(evidence, "place", lambda model: tmp_path / "e.json")
    monkeypatch.setattr(evidence, "sources", lambda model, what: "now")
    for change, code in (
        ({}, 0),
        ({"laws": {**fresh["laws"], "sources": "before"}}, 3),
    ):
        (tmp_path / "e.json").write_text(json.dumps({**fresh, **change}))
        assert command.main([model.paper, "--claims"]) == code
        assert ("--run renews it" in capsys.readouterr().err) == (code == 3)
    assert evidence.stale(model, {"gradients": fresh["gradients"]}) == []
    assert "verify.laws: never run" in evidence.state(
        model, {"gradients": fresh["gradients"]}
    )


def test_cited_tests_are_run(tmp_path, monkeypatch):
    """Each by its address, parametrised or a whole file: one failing case is a failure,
    and so is what no test answers to.
    """
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(
        "import pytest\n\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_many(n):\n "
        "   assert n < 2\n\n\ndef test_one():\n    pass\n"
    )
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:cacheprovider")
    file = "tests/test_it.py"
    rows = evidence.tested([f"{file}::test_one", f"{file}::test_many"])
    assert [(r["id"].partition("::")[2], r["verdict"]) for r in rows] == [
        ("test_one", "tested"),
        ("test_many", "FAIL"),
    ]
    with pytest.raises(ParameterError, match="a checkout has it"):
        evidence.tested(["tests/test_other.py::test_one"])


def test_sources_of_a_command_are_what_it_imports(tmp_path, fresh):
    """A change elsewhere leaves a digest as it is; one in what is imported, however
    deep, does not. Nothing that a command loads is missed.
    """
    files = {
        "room/__init__.py": "",
        "room/near.py": "def f():\n    from . import deep\n",
        "room/deep.py": "import room.deeper as d\nfrom room import near",
        "room/deeper.py": "x = 1",
        "room/far.py": "from room import near",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = digests.imported(["room.near"], {"room": tmp_path / "room"})
    assert list(found) == ["room", "room.deep", "room.deeper", "room.near"]
    assert list(
        digests.imported(["room.near"], {"room": tmp_path / "room"}, ("room.deep",))
    ) == ["room", "room.near"]
    known = digests.modules(MODELS["associative_memory"], "gradients")
    assert set(fresh[1]) - set(digests.ASIDE) <= known.keys()
    assert not [name for name in known if "positional" in name]
    predictions = {
        "theory.dynamics.prediction",
        "theory.statement.model",
        "theory.statement.onset",
    }
    assert (
        predictions <= digests.modules(MODELS["induction_heads"], "trajectories").keys()
    )


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("def draw(result, axes):\n    axes.plot({})", False),
        ("def draw(p):\n    plotting.figure({})", False),
        ("def draw(p, rng):\n    return rng.normal({})", True),
        ("def unused():\n    return {}", False),
        ("table = Table()\n@table.entry()\ndef unused():\n    return {}", True),
        ("def helper():\n    return {}", True),
        ("def looked_up():\n    return {}", True),
        ("constant = {}", True),
        ("other = {}", False),
        ("print({})", True),
        ("class Kept:\n    def method(self):\n        return {}", True),
        ("class Kept:\n    def another(self):\n        return {}", False),
        ("class Kept(Base):\n    def another(self):\n        return {}", True),
        ("class Kept:\n    def __eq__(self, other):\n        return {}", True),
        ("def helper():\n    'Says {}.'", False),
        ("from {} import something", False),
        ("def helper(x):\n    y{0} = [k{0} for k{0} in x]\n    return y{0}", False),
        ("def helper(x{}):\n    return 1", True),
        ("def helper(x):\n    if x < {}:\n        raise ValueError", True),
        ("def helper(x):\n    y = [y for y in x]\n    return other{}(y)", True),
    ],
)
def test_what_may_be_executed_makes_results_stale(text, counts, tmp_path):
    """Code whose name is mentioned, directly or by other such code; runs count every
    statement.
    """
    root = tmp_path / "root.py"
    root.write_text(
        "from far import helper as h\ndef run():\n"
        "    return draw, h, getattr(x, 'looked_up'), constant, Kept().method()"
    )
    made, whole = [], []
    for value in (1, 2):
        path = tmp_path / f"{value}.py"
        path.write_text(
            "x = 1\n" + text.format(f"package{value}" if "from" in text else value)
        )
        made.append(digests.used([root, path], [root]))
        whole.append(output.digest([path]))
    assert (made[0] != made[1]) == counts and (whole[0] != whole[1]) == (
        "Says" not in text
    )


def test_code_moves_without_making_results_stale(tmp_path):
    """From one module to another, not to another class."""
    files = [tmp_path / name for name in ("root.py", "a.py", "b.py")]
    contents = [("f()", "def f(): return g()", "def g(): return 1")]
    contents += [("f()", "", "def g(): return 1\ndef f(): return g()")]
    contents += [("f()", "def g(): return 1", "class A:\n    def f(self): return g()")]
    found = []
    for texts in contents:
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        found.append(digests.used(files, files[:1]))
    assert found[0] == found[1] != found[2]


def test_names_change_without_making_results_stale(tmp_path):
    """What modules define may be called otherwise, everywhere at once; two names
    exchanged, a name of an argument and one of another library count.
    """
    code = (
        "import numpy as np\ndef f(x: int) -> float: return np.sin(g(x)) +"
        " h(x)\nf(SIZE)\n"
    )
    code += "SIZE = 3\ndef g(x): return x + 1\ndef h(x): return g(x) if x else f(x)"

    def digest(*changes):
        path, text = tmp_path / "code.py", code
        for old, new in changes:
            text = re.sub(rf"\b{old}\b", new, text)
        path.write_text(text)
        return digests.used([path], [path])

    same = [
        ("f", "first"),
        ("g", "second"),
        ("h", "f"),
        ("SIZE", "COUNT"),
        ("int", "float"),
    ]
    assert digest() == digest(*same) == digest(("-> float", ""))
    assert digest() == digest(("def h", "import math\ndef h"))
    others = [[("x", "y")], [("sin", "cos")], [("3", "4")], [("SIZE = 3", "")]]
    others += [[("sin\\(g", "sin(h"), ("\\(x\\)\\) \\+ h", "(x)) + g")]]
    assert digest() not in [digest(*changes) for changes in others]


def test_evidence_names_the_commit_of_what_keeps_the_ledger(tmp_path):
    """A ledger that no repository keeps carries no commit of the toolkit."""
    for model in MODELS.values():
        if model.package is None:
            path = Path(str(model.ledger().__file__))
            assert re.fullmatch(
                "[0-9a-f]{12}|not under version control", evidence.commit(path)
            )
    stray = tmp_path / "ledger.py"
    stray.write_text("")
    assert evidence.commit(stray) == "not under version control"
