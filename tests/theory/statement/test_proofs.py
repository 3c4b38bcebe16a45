"""What is proved of a statement, and what is seen where it is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import sympy as sp

sys.path.insert(0, str(Path(__file__).parent))
import strangers
import systems
from test_acceptance import rates_are_those_of_classes

from theory.__main__ import main
from theory.call.refusal import ParameterError
from theory.statement import cross_entropy, draw, eq, sort, statement, teacher, weight
from theory.statement.derivation import roles
from theory.statement.derivation.derived import derive


def test_numbers_in_exponents():
    """A logit with a constant: a student that leans to what is right from the start."""
    N = systems.sizes("N")
    token = sort("token", N)
    follows, W, z = (
        teacher("follows", (token,), token, injective=True),
        weight("W", token, token),
        draw(token),
    )
    logit = lambda y: W[z, y] + 2 * eq(y, follows(z))
    made = derive(statement(cross_entropy(logit, over=token, target=follows(z))))
    (x,) = made.flow.state
    assert sp.simplify(made.flow.rhs[x] - 1 / (N - 1 + sp.exp(x + 2))) == 0
    rates_are_those_of_classes(made)


def test_two_attributes_of_one_item_are_refused():
    """How they go together differs between teachers, so that no sum over items is a
    number.
    """
    with pytest.raises(ParameterError, match="teacher g"):
        derive(strangers.orthogonal())


def test_wrong_classes_are_seen(monkeypatch):
    """A right loss with classes that are too few: gradients of all weights give it
    away.
    """
    monkeypatch.setattr(roles, "DEEPEST", 1)  # no teacher of a teacher's value
    with pytest.raises(ParameterError, match="gradient of Q off by .*lies"):
        derive(strangers.two_hop())


def test_a_teacher_that_decides_is_seen():
    """One table for all relations sees how often an answer is taken: it differs between
    teachers, but not for two entities that two relations permute.
    """
    E, R = systems.sizes("E R")
    entity, relation = sort("entity", E), sort("relation", R)
    f = teacher("f", (relation, entity), entity, injective=(entity,))
    M, B = weight("M", relation, entity, entity), weight("B", entity, entity)
    r, e = draw(relation), draw(entity)
    loss = cross_entropy(lambda y: M[r, e, y] + B[e, y], over=entity, target=f(r, e))
    with pytest.raises(ParameterError, match="gradient of B off"):
        derive(statement(loss))


def test_listed_with_what_its_symbols_are(capsys):
    """Classes of entries in words stand above the equations of a stated model."""
    assert main(["induction_heads.bursty"]) == 0
    assert " entries of " in capsys.readouterr().out
