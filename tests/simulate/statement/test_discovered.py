"""Order parameters of statements, by the engine from their trees and by discovery from
gradients of their students: the same, or fewer for a reason that is written here.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

sys.path.insert(0, str(Path(__file__).parents[2] / "theory" / "statement"))
import strangers
import systems

from simulate.discover import discover
from simulate.statement.student import Learner
from theory.associative_memory.factual_recall import dynamics
from theory.models import registry
from theory.statement import model

# of each kind one is left: tables, masks, layers, heads, facts, teachers, vectors
LONG = {
    *(
        "burstiness",
        "coinciding_values",
        "coinciding_pairs",
        "occurs_twice",
        "masked_mean",
    ),
    *(
        "two_steps",
        "more_names",
        "two_hop",
        "square_head",
        "in_context_facts",
        "modular",
    ),
    *("previous_token", "pairs", "label_mean", "few_tokens", "choices", "ridge"),
    *(),
    *("clusters",),
}
OWN = [  # of the tests, at sizes at which no two of their rates are equal by chance
    (strangers.burstiness, {}),
    (strangers.coinciding_values, dict(M=3, N=4)),
    (strangers.coinciding_pairs, dict(M=3)),
    (strangers.occurs_twice, dict(M=3)),
    (strangers.masked_mean, dict(D=3, N=4)),
    (strangers.two_steps, dict(N=3)),
    (strangers.two_teachers, dict(A=2, n=4)),
    (strangers.more_names, dict(A=2, m=4, n=2)),
    (strangers.two_hop, dict(A=2, m=4, n=4)),
    (strangers.square_head, dict(M=4, N=4, P=3)),
    (strangers.heads, dict(H=2, N=4, P=3)),
    (strangers.in_context_facts, dict(M=6, N=4, P=3)),
    (strangers.masked_copy, dict(L=3, N=4)),
    (strangers.previous_token, dict(L=3, N=4)),
    (strangers.modular, dict(n=3)),
    (strangers.pairs, dict(N=3)),
    (strangers.label_mean, dict(C=2, M=4, P=3)),
    (strangers.few_tokens, dict(N=3)),
    (strangers.choices, dict(D=3, R=4)),
    (systems.bigram, dict(N=3)),
    (systems.recall, dict(S=4, R=2, D=2, T=5, n=2, epsilon=0.3)),
    (systems.retrieval, dict(N=5, M=4, P=3)),
    (systems.induction, dict(N=3)),
    (systems.regression, dict(D=2, N=2, a=0.2)),
    (strangers.ridge, dict(D=3)),
    (dynamics.recall, dict(S=4, R=2, D=2, T=5, noise_tokens=2, epsilon=0.3)),
]
MODELS = {"induction_heads.bursty": dict(B=2, N=4)}
FEWER = [  # why fewer suffice: the flow of the engine is exact, but not the smallest
    (
        strangers.begin_token,
        dict(N=4),
        "W[i, 0] = W[i, j] for i > 0, no target, from the start",
    ),
    (
        strangers.kernel,
        dict(D=3, S=6),
        "K[i, i] = K[i, j] of one label, from the start",
    ),
    (strangers.hidden, dict(H=3, N=4), "U = V from the start"),
    (
        strangers.in_context_facts,
        dict(M=4, N=4, P=3),
        "every value has a key where M = N",
    ),
    (
        strangers.counting,
        dict(M=3, P=4),
        "conserved, with a coefficient that depends on P",
    ),
    (
        strangers.clusters,
        dict(D=3, G=2, n=4),
        "conserved, with a coefficient that depends on G",
    ),
]
NEITHER = {  # statements without order parameters of the engine, or without students
    "orthogonal": "the engine refuses it: values of two teachers meet at random",
    "tracking": "a closure over teachers",
}
FILES = {  # of statements of the toolkit and its examples
    "theory/induction_heads/bursty/emergence.py": "induction_heads.bursty",
    "theory/induction_heads/network.py": (
        "of pseudo-parameters; test_discover.py has the network"
    ),
    "theory/associative_memory/factual_recall/dynamics.py": "recall",
    "examples/linear_attention/linear_attention/statement.py": (
        "eigenvalues are no parameters, so that there are no students;"
        " systems.regression is the same with unit eigenvalues"
    ),
}


def both(stated, sizes):
    """Learner and what is discovered from it."""
    p = model.parameters(stated)().replace(**sizes, batch_size=0)
    learner = Learner(stated, p, seed=1)
    weights = {w.name: w for w in learner.weights}
    share = 0.5 if stated.gausses else 1  # a regression may start at its optimum
    found = discover(
        lambda values, data: learner.student.mean(
            {weights[k]: x for k, x in values.items()}, data
        ),
        learner.test,
        start={w.name: share * x for w, x in learner.weights.items()},
    )
    return learner, found


def outside(learner, found):
    """Largest part of what is discovered that leaves classes or conserved sums of the
    engine.
    """
    made, s = learner.made, found.subspace
    moved = s.lift[s.labels] / np.abs(s.lift).max()
    classes = np.concatenate([learner.members[w].ravel() for w in learner.weights])
    assert not moved[classes < 0].any()  # entries that no class has stay as they are
    means = np.zeros((len(made.classes), moved.shape[1]))
    for k in np.unique(classes[classes >= 0]):  # others have no entries at these sizes
        means[k] = moved[classes == k].mean(0)
    scatter = np.abs((moved - means[classes])[classes >= 0]).max()
    symbols = [c.symbol for c in made.classes]
    fixed = {x: learner.numbers[x.name] for x in made.statement.symbols}
    sums = [q.expression.xreplace(fixed) for q in made.conserved if q.kind != "scaling"]
    rows = [[float(sp.diff(q, x)) for x in symbols] for q in sums]
    return max([scatter, *(np.abs(np.array(row) @ means).max() for row in rows)])


def stated_by(source):
    """Statement of a function, or of a model of the registry."""
    if isinstance(source, str):
        return registry.find(source).wing("theory").stated
    return source(white=True) if source is systems.regression else source()


def test_every_statement_is_here():
    """Of the tests' modules by their functions, of the toolkit by its files and its
    registry.
    """
    tested = {getattr(f, "__name__", f) for f, *_ in [*OWN, *MODELS.items(), *FEWER]}
    functions = {
        name
        for module in (strangers, systems)
        for name, f in inspect.getmembers(module, inspect.isfunction)
        if f.__module__ == module.__name__
        and "return statement(" in inspect.getsource(f)
    }
    assert functions <= tested | {*NEITHER}
    root = Path(__file__).parents[3]
    files = {
        str(path.relative_to(root))
        for wing in ("theory", "examples")
        for path in (root / wing).rglob("*.py")
        if "theory/statement/" not in str(path)
        and path.name != "stated.py"  # which runs files that state a model
        and path.parent.name != "statements"  # held by tests/examples
        and re.search(r"(?<!def )\bstatement\((?!\))", path.read_text())
    }
    assert files == {*FILES}
    models = {
        name for name, m in registry._table().items() if m.stated and not m.package
    }
    assert models | {"recall"} == {x for x in FILES.values() if " " not in x} <= tested


def cases(rows):
    """Test parameters of statements and what belongs to them."""
    for row in rows:
        name = getattr(row[0], "__name__", row[0])
        yield pytest.param(*row, id=name, marks=[pytest.mark.slow] * (name in LONG))


@pytest.mark.parametrize(("stated", "sizes"), [*cases([*OWN, *MODELS.items()])])
def test_the_engine_and_discovery_agree(stated, sizes):
    learner, found = both(stated_by(stated), sizes)
    assert len(found.order_parameters) == len(learner.made.quotient.order)
    assert outside(learner, found) < 1e-9


@pytest.mark.parametrize(("stated", "sizes", "why"), [*cases(FEWER)])
def test_fewer_suffice(stated, sizes, why):
    """Inside of what the engine finds, and fewer by one."""
    learner, found = both(stated_by(stated), sizes)
    assert len(found.order_parameters) == len(learner.made.quotient.order) - 1, why
    assert outside(learner, found) < 1e-9
