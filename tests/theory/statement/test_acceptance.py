"""What statements derive against the hand-derived theories: the same numbers to
rounding.
"""

from __future__ import annotations

import functools
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

sys.path.insert(0, str(Path(__file__).parent))
import strangers
import systems

from theory.call.refusal import ParameterError
from theory.induction_heads import dynamics as induction_dynamics
from theory.induction_heads import network
from theory.state_tracking import dynamics as tracking_dynamics
from theory.statement import (
    cross_entropy,
    draw,
    eq,
    sizes,
    sort,
    statement,
    teacher,
    weight,
)
from theory.statement.derivation import check, remedies, symmetry
from theory.statement.derivation.derived import derive
from theory.statement.evaluation import arrays
from theory.symbols import fractions

ROUNDING = 1e-12  # relative: some hundred operations in double precision
POINTS = 20


@functools.cache
def derived(name: str, *arguments: object):
    """One derivation for all tests of it; every one has compared gradients of all
    weights.
    """
    return derive(getattr(systems, name)(*arguments))


def size_of(made, name):
    """Entries of a class."""
    return next(c.size for c in made.classes if c.symbol.name == name)


def numbers_of(expressions, values):
    """Expressions as numbers, by names of symbols."""
    return [
        float(sp.sympify(e).subs({s: values[s.name] for s in e.free_symbols}))
        for e in expressions
    ]


def function_of(expressions):
    """Expressions as a function of numbers by name."""
    expressions = [sp.sympify(e).doit() for e in expressions]
    free = sorted(set().union(*(e.free_symbols for e in expressions)), key=str)
    made = sp.lambdify(free, expressions, "math", cse=True)
    return lambda values: np.array(made(*(values[s.name] for s in free)))


def agree(mine, hand, names, points, scale=1.0):
    """Rates against hand-derived ones, order parameters translated, at many points."""
    mine, hand = ({x.name: rate for x, rate in r.items()} for r in (mine, hand))
    here, there = (
        function_of(mine[x] for x in names),
        function_of(hand[y] for y in names.values()),
    )
    for values in points:
        assert scale * here(values) == pytest.approx(
            there(values), rel=ROUNDING, abs=1e-15
        )


def random_points(names, seed, **fixed):
    """Random order parameters under both names, beside fixed numbers."""
    rng = np.random.default_rng(seed)
    for _ in range(POINTS):
        point = dict(zip(names, rng.normal(size=len(names)), strict=True))
        yield {**fixed, **point, **{names[k]: v for k, v in point.items()}}


def test_bigram():
    """Sizes N and N(N - 1), one rate."""
    made, N = derived("bigram"), systems.sizes("N")
    assert [c.size for c in made.classes] == [N, N * (N - 1)]
    ((x, rate),) = made.flow.rhs.items()
    assert rate == 1 / (N + sp.exp(x) - 1)
    assert made.status == "exact"


@pytest.mark.parametrize("sure", [True, False])
def test_what_is_conserved_in_numbers_alone_says_so(sure, monkeypatch):
    """A loss that is too long for the proof."""
    if not sure:
        monkeypatch.setattr(fractions, "MOST_TERMS", 1)
    equations = derive(systems.recall(), confirmed=False).equations()
    kept = [e for name, e in equations.items() if name.startswith("scaling")]
    assert len(kept) == 2
    assert all(any("not proved" in a for a in e.assumptions) is not sure for e in kept)


def test_recall():
    """Sizes, what is frozen, a conserved quantity, growth."""
    made = derived("recall")
    S, R, D = systems.sizes("S R D")
    found = {c.symbol.name: sp.expand(c.size) for c in made.classes}
    wanted = {
        "V_s_1": R * S,
        "V_s_0": R * S * (D - 1),
        "V_r_1": D * R,
        "V_r_0": D * R * (R - 1),
    }
    assert {k: sp.expand(v) for k, v in wanted.items()}.items() <= found.items()
    frozen = {str(q.expression) for q in made.conserved if q.kind == "frozen"}
    assert frozen == {"w_n", "w_e", "V_n", "V_e"}
    assert all(q.proved for q in made.conserved)
    assert sum(q.kind == "scaling" for q in made.conserved) == 2
    w, delta = (
        next(x for x in made.flow.state if x.name == n) for n in ("w_r", "delta_V_r")
    )
    kept = w**2 - delta**2 * D * (R - 1) / R
    moved = sum(sp.diff(kept, x) * made.flow.rhs[x] for x in (w, delta))
    assert sp.simplify(moved) == 0
    assert any(sp.expand(found - kept) == 0 for _, found in made.invariants)
    growth = sp.sqrt((R - 1) / (R * D)) / R
    assert any(sp.simplify(rate / growth) == 1 for rate in made.growth)


def test_unbalanced_facts_fail():
    """The classes do not close for a teacher that favours a value:
    the check says so.
    """
    made = derived("recall")
    numbers = {"S": 4, "R": 3, "D": 2, "T": 5, "n": 2, "epsilon": 0.3}
    data = arrays.every_input(made.statement, numbers, np.random.default_rng(2))
    (f,) = (f for f in made.statement.functions if f.kept)
    data.tables[f] = np.broadcast_to((np.arange(4) > 0)[:, None], (4, 3)).astype(int)
    off = check.compare(made, data)
    assert max(off.values()) > 1e-3


def test_retrieval():
    """The rate at zero in closed form; 432 listed inputs at N, M, P = 3, 4, 3."""
    made = derived("retrieval")
    N, M, P = systems.sizes("N M P")
    delta = next(x for x in made.flow.state if x.name == "delta_V")
    at_zero = made.flow.rhs[delta].subs(dict.fromkeys(made.flow.state, 0))
    assert sp.simplify(at_zero - (M - P) / (M * P * (M - 1))) == 0
    data = arrays.every_input(
        made.statement, {"N": 3, "M": 4, "P": 3}, np.random.default_rng(0)
    )
    assert data.chances.size == 432
    assert max(check.compare(made, data).values()) < ROUNDING


def test_retrieval_of_independent_items():
    """Occupancy at P = 3 equals all listed inputs; a symbolic P is refused, naming the
    sample.
    """
    made = derived("retrieval", 3, False)
    data = arrays.every_input(
        made.statement, {"N": 3, "M": 3}, np.random.default_rng(0)
    )
    assert max(check.compare(made, data).values()) < ROUNDING
    with pytest.raises(ParameterError, match="sample x: .*random"):
        derive(systems.retrieval(None, False))


def test_independent_items_declared_distinct_are_leading_order():
    """Status, and an error of the loss that falls as one over the number of keys."""
    near = derive(systems.retrieval(3, "leading order"))
    assert near.status == "leading order"
    exact = derived("retrieval", 3, False)
    off = []
    for size in (10**2, 10**3):
        values = {"K_1": 1.0, "K_0": 0.0, "V_1": 2.0, "V_0": 0.0, "N": size, "M": size}
        one, other = numbers_of([near.loss, exact.loss], values)
        off.append(abs(one - other))
    assert off[1] < off[0] / 8 < 0.1


def test_regression():
    """White data in printed form; a spectrum against the hand-derived flow; b and c
    vanish.
    """
    made = derived("regression", True)
    D, N = systems.sizes("D N")
    U, v = (next(c.symbol for c in made.classes if c.symbol.name == n) for n in "Uv")
    wanted = D * ((D + N + 1) * U**2 * v**2 - 2 * N * U * v + N) / (2 * N)
    assert sp.expand(made.loss - wanted) == 0
    (kept,) = made.conserved
    assert sp.expand(kept.expression) in (v**2 - D * U**2, D * U**2 - v**2)
    off = check.confirm(derived("regression"))
    assert off["gradient of b"] < ROUNDING and off["gradient of c"] < ROUNDING
    merged = pytest.importorskip("linear_attention.merged")
    hand, flow = merged.flow(2), derived("regression").at(D=2).flow
    value = next(x.name for x in hand.state if not x.name.startswith("u"))
    names = {"U_1": "u_1", "U_2": "u_2", "v": value}
    lam = {"lambda_1": 1.4, "lambda_2": 0.6}
    a = {f"a_{k[-1]}": x**2 * (1 + 1 / 7) + x * 2.0 / 7 for k, x in lam.items()}
    points = random_points(names, 3, D=2, N=7, P_0=0.1, **lam, **a)
    agree(flow.expanded, hand.expanded, names, points)


def test_state_tracking_closure():
    """R and S against the flow at given attention; the overlap of S with itself."""
    made = derived("tracking")
    N, d = systems.sizes("N d")
    R, S, mean = made.classes
    found = made.shared[S.symbol, S.symbol]
    assert sp.simplify(found - (N + d - 2) / (N**2 * d * (d - 1))) == 0
    assert made.status == "closure"
    assert [str(q.expression) for q in made.conserved] == [str(mean.symbol)]
    names = {R.symbol.name: "R", S.symbol.name: "S", mean.symbol.name: "mean"}
    points = [
        values | {"zeta": 8 * values["mean"]}
        for values in random_points(names, 4, N=8, d=5, d_g=5, L=6, eta=0.7, A=0.3)
    ]
    names.popitem()
    agree(
        made.rates, tracking_dynamics.flow().expanded, names, points, scale=0.7 * 5 * 8
    )


def test_the_closure_says_what_it_neglects_and_where_it_fails():
    """Every weight sees one argument of a table alone: its logits scatter as much as
    they differ, students stay far above the closure. Nothing of it is exact, and no
    refusal calls it a remedy.
    """
    made = derived("tracking")
    assert {e.status for e in made.equations().values()} == {"closure"}
    assert "how logits scatter" in made.assumptions[-1]
    item = sort("item", systems.sizes("N"))
    f, a, b = teacher("f", (item, item), item), draw(item), draw(item)
    U, V = weight("U", item, item), weight("V", item, item)
    loss = cross_entropy(lambda c: U[a, c] + V[b, c], over=item, target=f(a, b))
    with pytest.raises(ParameterError, match=r"closure: what is read at f\("):
        derive(statement(loss, closure="mean logits"))
    with pytest.raises(ParameterError, match="no remedy but an approximation"):
        derive(statement(loss))


def test_overlaps_of_gradients_by_listing_teachers():
    """Means of entries at N = d = 3: overlaps averaged over all 216 teachers."""
    import itertools

    made = derived("tracking")
    one = list(itertools.permutations(range(3)))
    total = np.zeros((3, 3))
    for chosen in itertools.product(one, repeat=3):
        masks = np.zeros((3, 3, 3, 3))  # mean, action, new state, state
        for a, s in itertools.product(range(3), repeat=2):
            masks[0, a, chosen[a][s], s] += 1 / 9
            for b in range(3):
                if b != a:
                    masks[1, a, chosen[b][s], s] += 1 / 18
        masks[2] = 1 / 27
        total += np.einsum("iabc,jabc->ij", masks, masks) / 216
    symbols = [c.symbol for c in made.classes]
    found = [
        [
            float(
                made.shared[x, y].subs({s: 3 for s in made.shared[x, y].free_symbols})
            )
            for y in symbols
        ]
        for x in symbols
    ]
    assert np.allclose(found, total, rtol=0, atol=ROUNDING)


def test_state_tracking_of_a_group():
    """Exact for a Latin square at attention 1/2; random permutations under it fail."""
    half = sp.Rational(1, 2)
    made = derived("tracking", half, None, True)
    data = arrays.every_input(made.statement, {"N": 5}, np.random.default_rng(0))
    assert max(check.compare(made, data).values()) < ROUNDING
    (g,) = made.statement.functions
    data.tables[g] = np.array(
        [np.random.default_rng(k).permutation(5) for k in range(5)]
    )
    assert max(check.compare(made, data).values()) > 1e-3
    with pytest.raises(ParameterError, match="teacher g: .*closure"):
        derive(systems.tracking(half, None))


@pytest.mark.parametrize("size", [3, 8])
def test_induction(size):
    """Three rates against the hand-derived flow."""
    names = {k: k for k in ("alpha", "beta", "gamma")}
    flow, hand = derived("induction").flow, induction_dynamics.flow()
    agree(flow.expanded, hand.expanded, names, random_points(names, 5, N=size))


@pytest.mark.parametrize("mask", ["strict", "inclusive"])
def test_induction_of_any_query(mask):
    """N = 6, q = 3 against the hand-derived loss, both masks."""
    made = derived("induction", 3, 6, mask == "inclusive")
    values = {"alpha": 0.7, "beta": 1.3, "gamma": 0.4, "N": 6, "q": 3}
    hand = network.loss_of_query(mask)
    hand = hand.subs(
        {s: values[s.name] for s in hand.free_symbols if s.name in values}
    ).doit()
    assert numbers_of([made.loss], values)[0] == pytest.approx(
        float(hand), rel=ROUNDING
    )


def test_recall_by_softmax_attention():
    """Five order parameters; every derivation compares gradients of all weights."""
    made = derived("recall", "softmax")
    assert len(made.flow.state) == 5
    assert max(check.confirm(made).values()) < ROUNDING


def rates_are_those_of_classes(made):
    """The flow, put in order, against slopes of the loss that were not, at a random
    point.
    """
    made, rng = check.written(made), np.random.default_rng(0)
    order, moving = made.quotient.order, made.flow.rhs
    gauge = {c: sp.sympify(g) for c, g in made.quotient.gauge.items()}
    wanted = [
        sp.Add(*(sp.diff(combined, c) * made.rates[c] for c in gauge))
        for combined in order.values()
    ]
    free = sorted(
        set().union(*(e.free_symbols for e in (*moving.values(), *wanted))), key=str
    )
    sizes = iter(range(5, 99, 3))
    at = {
        s: next(sizes) if s.is_integer else float(rng.uniform(0.2, 0.9)) for s in free
    }
    at |= {
        c: float(g.subs({x: at[x] for x in g.free_symbols})) for c, g in gauge.items()
    }
    values = [at[s] for s in free]
    one, other = (
        symmetry.compiled(e, free)(*values) for e in ([*moving.values()], wanted)
    )
    assert one == pytest.approx(
        other, rel=1e-10, abs=1e-12
    )  # rounding of some thousand terms


LONG = (strangers.label_mean,)


@pytest.mark.parametrize(
    "stated",
    [
        pytest.param(f, marks=[pytest.mark.slow] * (f in LONG))
        for f in strangers.ALL
        if f is not strangers.orthogonal
    ],
)
def test_further_systems(stated):
    """Derived, with loss and gradients of all weights equal to listed inputs at another
    seed.
    """
    made = derive(stated())
    assert max(check.confirm(made, seed=7).values()) < ROUNDING
    assert made.flow.state and set(made.equations())
    rates_are_those_of_classes(made)


def known_score():
    """A loss with e in it."""
    N = sizes("N")
    a = sort("a", N)
    W, q = weight("W", a, a), draw(a)
    return statement(
        cross_entropy(lambda v: eq(v, q) + W[q, v], over=a, target=q), name="known"
    )


@pytest.mark.parametrize(
    "stated",
    [
        known_score,
        systems.bigram,
        systems.recall,
        pytest.param(
            functools.partial(systems.recall, "softmax"), marks=pytest.mark.slow
        ),
        systems.retrieval,
        systems.regression,
        systems.tracking,
        systems.induction,
        strangers.more_names,
    ],
)
def test_quick(stated):
    """A derivation, its equations and their shortest forms take less than two
    seconds.
    """
    started = time.process_time()
    assert remedies.derived(stated()).equations()
    assert time.process_time() - started < 2
