"""Students against equations and definitions, by enumeration of all cases where
possible.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import sympy as sp
import torch

from simulate.associative_memory import k_hop
from simulate.associative_memory.gradient_steps import InductionHead
from simulate.associative_memory.gradient_steps import Parameters as Steps
from simulate.induction_heads import Student as Disentangled
from simulate.induction_heads import student as pairs
from simulate.induction_heads.student import assemble, attention, squared_error
from simulate.positional_semantic import learner as measured_by
from simulate.positional_semantic import student as sentences
from simulate.positional_semantic.linear import RIDGE, fit_linear
from theory import induction_heads as ih
from theory import positional_semantic as ps
from theory.associative_memory.gradient_steps import second_gradient
from theory.associative_memory.k_hop import equations as hop_equations
from theory.associative_memory.k_hop import overlaps as hop_overlaps
from theory.call.refusal import ParameterError
from theory.induction_heads import structure
from theory.induction_heads import symbols as q

DOUBLE = torch.float64


def every_sequence(p: Steps) -> tuple[torch.Tensor, torch.Tensor]:
    """All sequences of the three-step task, equally likely, with their answers."""
    plain, rows = range(p.K, p.N), []
    for trigger, place, y in itertools.product(range(p.K), range(p.T - 2), plain):
        for others in itertools.product(plain, repeat=p.T - 3):
            rest = list(others)
            rows.append(
                [
                    (
                        trigger
                        if s in (place, p.T - 1)
                        else y
                        if s == place + 1
                        else rest.pop()
                    )
                    for s in range(p.T)
                ]
                + [y]
            )
    table = torch.tensor(rows)
    return table[:, :-1], table[:, -1]


@pytest.mark.parametrize(
    "sizes",
    [{"N": 4, "K": 1, "T": 5}, {"N": 5, "K": 2, "T": 5}, {"N": 5, "K": 2, "T": 6}],
    ids=str,
)
def test_second_gradient_by_enumeration(sizes):
    """All sequences: descent of W_2 after a first step so small that the softmax stays
    linear, per unit of that step.
    """
    p = Steps(**sizes, first_step=0.01)
    tokens, answer = every_sequence(p)
    found = []
    for step in (1e-3, 5e-4):
        model = InductionHead(p, DOUBLE)
        for name in ("W_O", "W_2"):
            weight = model.get_parameter(name)
            slope = torch.autograd.grad(
                torch.nn.functional.cross_entropy(model(tokens)[0], answer), weight
            )[0]
            if name == "W_O":
                with torch.no_grad():
                    weight.sub_(step * slope)
        block = -slope[p.N : p.N + p.K, : p.K].numpy() / step
        found.append(np.diag(block).mean())
    exact = 2 * found[1] - found[0]  # the next order in the step eliminated
    assert second_gradient(p) == pytest.approx(exact, rel=1e-6)
    # A trigger's entry in the column of another trigger is zero only beside its own:
    # smaller by far.
    if p.K > 1:
        assert abs(block[0, 1]) < 0.5 * abs(block[0, 0])


def test_second_gradient_after_a_larger_first_step_is_refused():
    """Per unit of the first step one number up to the limit, beyond it none."""
    p = Steps()
    assert p.first_step == 0.1
    assert second_gradient(p) == second_gradient(p.replace(first_step=0.01))
    with pytest.raises(
        ParameterError, match=r"first_step = 0\.11: must be at most 0\.1, where"
    ):
        second_gradient(p.replace(first_step=0.11))


def test_softmax_kernels_climb_as_the_flow_says():
    """All inputs, N = 3, two hops: rate of an overlap when the logits of kernels ascend
    the enumerated accuracy.
    """
    size, hops, m = 3, 2, 0.37
    group = np.array(list(itertools.permutations(range(size))))
    given = np.array(
        [g for g in itertools.product(group, repeat=hops) for _ in range(size)]
    )
    start = np.tile(np.arange(size), len(group) ** hops)
    hidden = np.array([[1, 2, 0], [0, 2, 1]])
    right = torch.zeros(hops, size, size, dtype=DOUBLE)
    for j, row in enumerate(hidden):
        right[j, row, np.arange(size)] = 1
    mass = (1 + (size - 1) * m) / size
    logits = (
        torch.log(torch.tensor(mass * (size - 1) / (1 - mass), dtype=DOUBLE)) * right
    ).requires_grad_()

    def overlaps(logits):
        return ((torch.softmax(logits, 1) * right).sum((1, 2)) - 1) / (size - 1)

    assert overlaps(logits).detach().numpy() == pytest.approx([m, m], rel=1e-12)
    answers = k_hop.apply(
        torch.softmax(logits, 1), torch.as_tensor(given), torch.as_tensor(start)
    )
    wanted = torch.as_tensor(k_hop.answer(hidden, given, start))
    accuracy = answers.gather(1, wanted[:, None]).mean()
    assert accuracy.item() == pytest.approx(
        1 / size + (1 - 1 / size) * m**hops, rel=1e-12
    )
    slope = torch.autograd.grad(accuracy, logits)[0]
    step = 1e-6
    rate = (overlaps(logits + step * slope) - overlaps(logits - step * slope)) / (
        2 * step
    )
    exact = hop_equations()["equal_overlaps_softmax"].evaluate(
        {"m": m, "k": hops, "N": size}
    )
    assert rate.detach().numpy() == pytest.approx(
        [float(exact)] * 2, rel=1e-6
    )  # central difference


@pytest.mark.parametrize("mixed", [False, True], ids=["all hops", "mixture of 1 to 3"])
def test_kernels_on_the_sphere_climb_as_the_flow_says(mixed):
    """All inputs, N = 3, three hops at overlaps of their own: kernels of fixed norm
    ascend the enumerated accuracy, of all hops or summed over 1, 2 and 3 of them.
    """
    size, hops, overlap = 3, 3, (0.5, 0.3, 0.2)
    group = np.array(list(itertools.permutations(range(size))))
    given = np.array(
        [g for g in itertools.product(group, repeat=hops) for _ in range(size)]
    )
    start = np.tile(np.arange(size), len(group) ** hops)
    hidden = np.array([[1, 2, 0], [0, 2, 1], [2, 1, 0]])
    right = np.eye(size)[:, hidden].transpose(1, 0, 2)  # [j, pi_j(x), x] = 1
    goal = (right - 1 / size) / np.sqrt(
        size - 1
    )  # unit vectors; rows and columns sum to zero
    rest = np.random.default_rng(0).normal(size=goal.shape)
    rest -= rest.mean(1, keepdims=True)
    rest -= rest.mean(2, keepdims=True)
    rest -= (rest * goal).sum((1, 2), keepdims=True) * goal
    rest /= np.sqrt((rest**2).sum((1, 2), keepdims=True))
    m = np.array(overlap)[:, None, None]
    unit = torch.tensor(m * goal + np.sqrt(1 - m**2) * rest, requires_grad=True)
    kernels = 1 / size + np.sqrt(size - 1) * unit
    total = torch.zeros((), dtype=DOUBLE)
    for number in range(1, hops + 1) if mixed else (hops,):
        part = given[:, :number]
        mass = k_hop.apply(
            kernels[:number], torch.as_tensor(part), torch.as_tensor(start)
        )
        wanted = torch.as_tensor(k_hop.answer(hidden[:number], part, start))
        total = total + mass.gather(1, wanted[:, None]).mean()
    slope = torch.autograd.grad(total, unit)[0].numpy() / (
        1 - 1 / size
    )  # the flow's unit of time
    n = unit.detach().numpy()
    along = slope - (slope * n).sum((1, 2), keepdims=True) * n
    system = (hop_overlaps.mixture if mixed else hop_overlaps.flow)(hops)
    at = dict(zip(system.state, overlap, strict=True))
    exact = [float(rate.subs(at)) for rate in system.rhs.values()]
    assert (along * goal).sum((1, 2)) == pytest.approx(exact, rel=1e-12)


# ---- The disentangled transformer as its equations state it, entry by entry

D, SIZE = 2, 2


@pytest.fixture(scope="module")
def spelled():
    """Numbers of one sequence and of all weights, and a function that spells the
    right-hand side of a definition out.
    """
    random = torch.Generator().manual_seed(7)
    items, labels, codes = torch.randn(3, 1, SIZE, D, generator=random, dtype=DOUBLE)
    batch = pairs.batch_of(items, labels, codes, torch.tensor([1]))
    student = Disentangled(D, "strict", DOUBLE)
    for w in student.parameters():
        w.data = torch.randn(w.shape, generator=random, dtype=DOUBLE) / 2
    eq = ih.equations()

    def arrays(*named):
        return {
            base[tuple(int(x) + 1 for x in place)]: float(value[tuple(place)])
            for base, value in named
            for place in np.ndindex(*value.shape)
        }

    data = arrays((q.a, items[0]), (q.b, labels[0]), (q.code, codes[0]))

    def form(name, at, values):
        """Right-hand side with indices and sizes as numbers, sums written out, arrays
        replaced.
        """
        found = eq[name].rhs.subs({q.D: D, q.N: SIZE, **at}).doit()
        return float(found.xreplace({k: sp.Float(v, 17) for k, v in values.items()}))

    return batch, student, eq, data, form


def test_rows_of_the_sequence(spelled):
    """Items, labels and the query with their codes, from (2)-(4), against the assembled
    sequence.
    """
    batch, _, eq, data, form = spelled
    X = batch.X[0].numpy()
    swap = {
        q.M[a + 1, b + 1]: float(eq["swap"].rhs.subs({q.D: D, q.m: a + 1, q.n: b + 1}))
        for a, b in np.ndindex(D, D)
    }
    for kind, row in (("item", lambda k: 2 * k - 1), ("label", lambda k: 2 * k)):
        for k, m in itertools.product(range(1, SIZE + 1), range(1, D + 1)):
            at = {q.k: k, q.m: m}
            assert form(f"{kind}_token", at, data) == X[row(k) - 1, m - 1]
            assert form(f"{kind}_position", at, data | swap) == X[row(k) - 1, D + m - 1]
    for m in range(1, D + 1):
        assert (
            form("query_token", {q.m: m, q.q: 2}, data) == X[-1, m - 1]
            and X[-1, D + m - 1] == 0 == eq["query_position"].rhs
        )
        assert form("target", {q.m: m, q.q: 2}, data) == float(batch.y[0, m - 1])


def test_blocks_of_the_weights(spelled):
    """Every entry of (6)-(8), and (2) in them, against the matrices that are assembled
    from the numbers that can move.
    """
    *_, eq, _, form = spelled
    values = {name: 0.5 + k for k, name in enumerate(structure.reachable())}
    W = {k: w.numpy() for k, w in assemble(values, D).items()}
    for name, block in structure.equations().items():
        *place, _, _ = block.lhs.indices
        i, j = (D * int(x - 1) for x in (*place, 1)[:2])
        numbers = {
            x: values[x.name] for x in block.rhs.free_symbols if x.name in values
        }
        for m, n in np.ndindex(D, D):
            at = {q.m: m + 1, q.n: n + 1}
            found = form(name, at, numbers | {q.M[m + 1, n + 1]: form("swap", at, {})})
            assert found == W[name[:2]][i + m, j + n]


def test_layers_entry_by_entry(spelled):
    """Scores, softmax, what is retrieved, output and loss of (1), every entry, against
    the network.
    """
    from theory.induction_heads.structure import X as rows
    from theory.induction_heads.structure import last

    batch, student, _, _, form = spelled
    X = batch.X[0]
    W1, W2, W3 = (w.detach() for w in student.parameters())
    length = 2 * SIZE + 1

    def table(base, value):
        return {
            base[tuple(x + 1 for x in place)]: float(value[place])
            for place in np.ndindex(*value.shape)
        }

    S = X @ W1 @ X.T
    T = attention(S[None], "strict")[0]
    U = torch.cat([X, T @ X], -1)
    P = U @ W2 @ U.T
    Q = attention(P[None], "strict")[0]
    V = torch.cat([U, Q @ U], -1)
    z = V[-1] @ W3
    torch.testing.assert_close(
        z[None], student(batch.X).detach(), rtol=1e-12, atol=1e-12
    )
    for a, b in ((5, 3), (3, 5), (2, 1), (4, 2)):
        at = {q.i: a, q.j: b, last: a - 1}
        assert form("scores_1", at, table(rows, X) | table(q.W1, W1)) == pytest.approx(
            float(S[a - 1, b - 1]), rel=1e-12
        )
        assert form("scores_2", at, table(q.U, U) | table(q.W2, W2)) == pytest.approx(
            float(P[a - 1, b - 1]), rel=1e-11
        )
        if b < a:
            assert form("attention_1", at, table(q.S, S)) == pytest.approx(
                float(T[a - 1, b - 1]), rel=1e-12
            )
            assert form("attention_2", at, table(q.P, P)) == pytest.approx(
                float(Q[a - 1, b - 1]), rel=1e-12
            )
    for m in (1, 2):
        at = {q.i: length, q.m: m, last: length - 1}
        assert form("retrieved_1", at, table(q.T, T) | table(rows, X)) == pytest.approx(
            float(U[-1, 2 * D + m - 1]), rel=1e-12
        )
        assert form("retrieved_2", at, table(q.Q, Q) | table(q.U, U)) == pytest.approx(
            float(V[-1, 4 * D + m - 1]), rel=1e-12
        )
        assert form("output", at, table(q.V, V) | table(q.W3, W3)) == pytest.approx(
            float(z[m - 1]), rel=1e-12
        )
    loss = form("squared_error", {}, table(q.y, batch.y[0]) | table(q.output, z))
    assert loss == pytest.approx(
        squared_error(z[None], batch.y, "sum").item(), rel=1e-12
    )


@pytest.mark.parametrize("mask", ["strict", "inclusive"])
def test_attention_of_the_equations_is_the_networks(mask):
    """B.3 on orthonormal data: each attention equation at the row and column that its
    own left-hand side names.
    """
    size, alpha = 4, 0.8
    p = ih.Parameters(N=size, D=8, data="orthonormal", query="last")
    batch = pairs.sample(p, torch.Generator().manual_seed(0), 1, DOUBLE)
    codes = batch.X[0, :, 8:]
    S = alpha * pairs.swap(codes) @ codes.T
    T = attention(S[None], mask)[0].numpy()
    eq, end = ih.equations(), "" if mask == "strict" else "_inclusive"
    for name, first in (
        ("attention_own_item", 1),
        ("attention_other_label", 2),
        ("attention_of_item", 2),
    ):
        form = eq[name + end]
        for k in range(first, size + 1):
            for l_ in range(1, k):
                at = {q.k: k, q.l: l_, q.alpha: alpha, q.d: k - l_, q.N: size}
                row, column = (int(x.subs(at)) for x in form.lhs.indices)
                assert float(form.rhs.subs(at)) == pytest.approx(
                    T[row - 1, column - 1], rel=1e-12
                ), (name, k, l_)
    for k, l_ in itertools.product(range(1, size + 1), repeat=2):
        for name in ("score_label_item", "score_item_label"):
            row, column = (int(x.subs({q.k: k, q.l: l_})) for x in eq[name].lhs.indices)
            assert float(
                eq[name].rhs.subs({q.k: k, q.l: l_, q.alpha: alpha})
            ) == pytest.approx(float(S[row - 1, column - 1]), abs=1e-12)


# ---- What is measured of the positional-semantic students


def test_test_error_is_its_definition():
    """Half of |y - f|^2/d on the same fresh sentences, with outputs and attention
    written out in NumPy.
    """
    p = ps.Parameters(d=30, alpha=1.0, n_test=500)
    teacher, _ = sentences.sample(p, 0)
    Q = 0.8 * teacher + 0.3
    measured = measured_by.test_error(
        p, {"Q": torch.tensor(Q[:, None])}, teacher, np.random.default_rng(3)
    )
    x = sentences.draw_sentences(p, p.n_test, np.random.default_rng(3))
    code = sentences.positional_encoding(p.d)

    def softmax(h):
        weight = np.exp(h[:, :, None] * h[:, None])
        return weight / weight.sum(2, keepdims=True)

    A = np.array([[0.6, 0.4], [0.4, 0.6]])
    y = ((1 - p.omega) * softmax(x @ teacher / np.sqrt(p.d)) + p.omega * A) @ x
    f = softmax((x + code) @ Q / np.sqrt(p.d)) @ (x + code)
    assert measured == pytest.approx(
        ((y - f) ** 2).sum((1, 2)).mean() / (2 * p.d), rel=1e-10
    )
    found = measured_by.measure(p, {"Q": torch.tensor(Q[:, None])}, teacher, 1.0, 1.0)
    norm = ps.equations()["norm"].evaluate({"q": found["q"], "sigma": p.sigma})
    assert norm == pytest.approx(
        (Q**2).sum() / p.d, rel=1e-13
    )  # (6): q contains sigma^2, the norm does not


def test_linear_layer_is_least_squares():
    """Weights by NumPy's least squares on the stacked tokens, and half of their error
    on the test sentences.
    """
    p = ps.Parameters(d=40, alpha=2.0, n_test=300)
    teacher, data = sentences.sample(p, 4)
    code = sentences.positional_encoding(p.d)
    x = data.tokens.numpy() - code
    y = data.target.numpy() @ x
    # Tokens of all sentences and dimensions are rows; the ridge is a
    # pseudo-observation.
    design = np.concatenate(
        [x.transpose(0, 2, 1).reshape(-1, 2) / np.sqrt(p.d), np.sqrt(RIDGE) * np.eye(2)]
    )
    W = np.stack(
        [
            np.linalg.lstsq(
                design, np.append(y[:, k].ravel() / np.sqrt(p.d), [0, 0]), rcond=None
            )[0]
            for k in range(2)
        ]
    )
    found = fit_linear(p, 4)
    assert [
        found["W_11"],
        found["W_12"],
        found["W_21"],
        found["W_22"],
    ] == pytest.approx(W.ravel(), rel=1e-8)
    fresh = sentences.draw_sentences(p, p.n_test, sentences.streams(4)["test"]).astype(
        float
    )
    target = sentences.target_attention(p, fresh, teacher)
    W = np.array([[found["W_11"], found["W_12"]], [found["W_21"], found["W_22"]]])
    half = ((target @ fresh - W @ fresh) ** 2).sum((1, 2)).mean() / (2 * p.d)
    assert found["half_test"] == pytest.approx(half, rel=1e-10)
    # A purely positional target is learned as it is, but for the ridge beside a Gram
    # matrix of 20.
    p = p.replace(omega=1.0, target="alternative")
    positional = ps.equations()["linear_positional"].evaluate(p)
    assert fit_linear(p, 4)["W_12"] == pytest.approx(positional, rel=RIDGE / 10)
