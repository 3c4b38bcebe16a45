"""Kept derivations that a failing disk or somebody else has changed: derived anew,
never executed.

Could see: a changed sign that is printed as exact, a text that reaches SymPy's parser,
a traceback.
"""

import json
import random

import pytest

from tests.damage import damaged, exchanged
from tests.theory.statement import systems
from theory.statement.derivation import derivation_store

HOSTILE = "__import__('os').mkdir('done')"
HEADS = (
    "exp",
    "log",
    "Sum",
    "Tuple",
    "Add",
    "Rational",
    "Symbol",
    "IndexedBase",
    "Weight",
)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A kept derivation, in a folder in which nothing else is."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    equations()
    (kept_file,) = tmp_path.glob("statement_*.json")
    return kept_file


def equations():
    derivation_store.derived.cache_clear()
    made = derivation_store.derived(systems.bigram()).equations()
    return {k: (e.lhs, e.rhs, e.status) for k, e in made.items()}


def test_what_is_damaged_is_derived_anew(file):
    """Bits, ends, and parts of another type."""
    truth, raw, rng = equations(), file.read_bytes(), random.Random(0)
    for _ in range(50):
        file.write_bytes(damaged(raw, rng))
        assert equations() == truth
        file.write_text(json.dumps(exchanged(json.loads(raw), rng)))
        assert equations() == truth


def sealed(content):
    content.pop("seal", None)
    return json.dumps({"seal": derivation_store._seal(content), **content})


@pytest.mark.parametrize("head", HEADS)
def test_no_text_is_executed(head, file):
    """Not even with a seal."""
    truth, content = equations(), json.loads(file.read_text())
    for part in range(len(content["moving"])):
        moving = [*content["moving"]]
        moving[part] = [head, HOSTILE, ["Tuple", 1, 2, 3]][: 2 if head == "exp" else 3]
        file.write_text(sealed({**content, "moving": moving}))
        assert equations() == truth and not (file.parent / "done").exists()


def test_parts_of_another_type_are_no_traceback(file):
    """With a seal: a miss."""
    truth = equations()
    content, rng = json.loads(file.read_text()), random.Random(1)
    for _ in range(80):
        other = exchanged(content, rng)
        file.write_text(sealed(other) if isinstance(other, dict) else json.dumps(other))
        assert equations() == truth


def renamed(content):
    """Another name for every symbol of the rates."""
    return json.loads(json.dumps(content).replace('"Symbol", "', '"Symbol", "other_'))


def doubled(content):
    moving = [["Mul", ["Rational", 2, 1], rate] for rate in content["moving"]]
    return {**content, "moving": moving}


def endless(content):
    """A power whose digits do not fit into memory."""
    power = ["Pow", ["Rational", 10, 1], ["Rational", 10**9, 1]]
    return {**content, "moving": [power for _ in content["moving"]]}


def endless_sum(content):
    k = ["Symbol", "k", {}]
    limits = ["Tuple", k, ["Rational", 1, 1], ["Rational", 10**12, 1]]
    return {**content, "moving": [["Sum", k, limits] for _ in content["moving"]]}


@pytest.mark.parametrize("changed", [renamed, doubled, endless, endless_sum])
def test_what_is_read_is_compared(changed, file):
    """With a seal, which needs no key: other equations are not printed as exact."""
    truth, content = equations(), json.loads(file.read_text())
    file.write_text(sealed(changed(content)))
    assert equations() == truth
