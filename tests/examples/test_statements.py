"""Statements of one file: each derives, solves, prints and agrees with autograd; its
loss is that of a student written by hand, and its times are known ones.

Student and theory follow from the same statement, so that only the last two see a
statement that is not the system it claims to be.
"""

import ast
import functools
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from simulate import statement as students
from simulate.statement import Student
from simulate.training.streams import keyed
from theory.models import write_up
from theory.models.registry import find
from theory.statement.evaluation import arrays
from verify.statement import gradients

FOLDER = Path(__file__).parents[2] / "examples" / "statements"
LINES, COLUMNS = 40, 88
ROUNDING = 1e-12  # relative: means of at most 3,000 losses in double precision


def softmax(scores):
    weights = np.exp(scores)
    return weights / weights.sum()


def cross_entropy(logits, target):
    return np.log(np.exp(logits).sum()) - logits[target]


def retrieval(weights, N, M, P):
    """Every order of distinct keys and values, every place that is asked for."""
    K, V = weights["K"], weights["V"]
    losses = []
    for keys in itertools.permutations(range(N), P):
        for values in itertools.permutations(range(M), P):
            for asked in range(P):
                attention = softmax(K[keys[asked], list(keys)])
                losses.append(cross_entropy(attention @ V[list(values)], values[asked]))
    return np.mean(losses)


def softmax_recall(weights, S, R, D, T, n):
    """Every subject, relation and noise. The two choices of a relation alternate."""
    losses = []
    noise = [range(n)] * (T - 3)
    for s, r, *words in itertools.product(range(S), range(R), *noise):
        tokens = [("s", s), ("r", r), ("e", ()), *(("n", word) for word in words)]
        scores = [weights[f"w_{kind}"][token] for kind, token in tokens]
        read = [weights[f"V_{kind}"][token] for kind, token in tokens]
        logits = np.tensordot(softmax(np.array(scores)), np.array(read), axes=1)
        losses.append(cross_entropy(logits.ravel(), r * D + facts(S, R)[s, r]))
    return np.mean(losses)


def facts(S, R):
    """Answers of two choices, each as often."""
    return np.add.outer(np.arange(S), np.arange(R)) % 2


def markov(weights, k, m, D, U, rho):
    """Two layers on the statistics of a long context, by transition matrices."""
    W, v, c = weights["W"], weights["v"], weights["c"]
    previous = softmax(v)[0]
    losses = []
    for symbols in itertools.permutations(range(k), m):
        for after in itertools.permutations(range(m)):
            moves = np.full((m, m), (1 - rho) / m)
            moves[range(m), after] += rho
            for now in range(m):
                attention = softmax(previous * W[symbols[now], list(symbols)])
                logits = np.zeros(k + U)
                logits[list(symbols)] = c * attention @ moves
                chances = np.zeros(k + U)
                chances[list(symbols)] = moves[now]
                losses.append(np.log(np.exp(logits).sum()) - chances @ logits)
    return np.mean(losses)


def in_weights(weights, L, C, R, B, c_0, head_decay, fading):
    """A list of pairs of item and label for every queried item, and weight decay."""
    beta, w, c, M = (weights[name] for name in ("beta", "w", "c", "M"))
    losses = []
    for answer, asked in itertools.product(range(L), range(C)):
        context = [(True, answer)] * B
        context += [(False, label) for label in range(L) for _ in range(R)]
        attention = softmax(np.array([beta * equal for equal, _ in context]))
        logits = c * M[answer, asked]
        for part, (_, label) in zip(attention, context, strict=True):
            logits = logits + w * part * np.eye(L)[label]
        losses.append(cross_entropy(logits, answer))
    head, memory = w**2 + beta**2, c**2 + (M**2).sum()
    return np.mean(losses) + head_decay / 2 * head + fading / 2 * memory


def bypass(weights, N, d_g, b):
    """Every sequence from every state. Action a leads a + 1 states further."""
    states, actions = np.arange(N), np.arange(d_g)
    to = (states[:, None] + np.arange(1, N + 1)) % N  # reached states come first
    logic, alone = np.zeros((d_g, N, N)), np.zeros((N, N))
    for s in states:
        logic[:, s, to[s, :d_g]] = weights["M"][s]
        logic[:, s, to[s, d_g:]] = weights["M_none"][s]
        alone[s, to[s, :d_g]] = weights["U"][s]
        alone[s, to[s, d_g:]] = weights["U_none"][s]
    attention = softmax(np.array([weights["theta"], 0, 0]))
    losses = []
    for sequence in itertools.product(actions, repeat=3):
        retrieved = np.tensordot(attention, logic[list(sequence)], axes=1)
        for s in states:
            logits = retrieved[s] + b * alone[s]
            losses.append(cross_entropy(logits, to[s, sequence[0]]))
    return np.mean(losses)


# Sizes of the students above. Chains have more symbols than states, and so on.
BY_HAND = {
    retrieval: dict(N=4, M=3, P=2),
    softmax_recall: dict(S=2, R=2, D=2, T=5, n=2),
    markov: dict(k=4, m=3, D=3, U=2, rho=0.6),
    in_weights: dict(L=3, C=2, R=2, B=2, c_0=0.5, head_decay=0.1, fading=0.2),
    bypass: dict(N=4, d_g=3, b=0.7),
}
NAMES = [student.__name__ for student in BY_HAND]

# Times at which an observable reaches a level, as 0.1.0 has them: from equations of
# motion that its tests type by hand, and to the digits of its pages.
TIMES = [
    ("retrieval", {}, "A", 0.5, 195.7098, 1e-6),
    ("softmax_recall", {}, "a_r", 0.5, 194.1671, 1e-6),
    ("softmax_recall", dict(S=8, T=8), "a_r", 0.5, 106.2396, 1e-6),
    ("markov", {}, "first", 0.5, 164.6, 5e-4),
    ("markov", {}, "unigrams", 0.5, 29.9, 2e-3),
    ("markov", dict(rho=0.5), "first", 0.5, 315.7, 5e-4),
    ("markov", dict(U=1000), "first", 0.5, 109.6, 5e-4),
    ("in_weights", {}, "attention", 0.5, 56.5, 1e-3),
    ("in_weights", dict(C=64), "attention", 0.5, 219701, 5e-6),
]

# What a statement says differently, so that it is another system.
FAULTS = [
    ("retrieval", "score(asked) / mass", "score(asked)", "time"),
    ("retrieval", "K[x(asked), x(p)]", "K[x(p), x(asked)]", "loss"),
    ("retrieval", "mass = total(score, place)", "mass = P", "loss"),
    ("softmax_recall", 'part("e") + words', '2 * part("e") + words', "loss"),
    ("softmax_recall", "T - 3", "T - 2", "loss"),
    ("markov", "W[x(now), x(s)]", "W[x(s), x(now)]", "loss"),
    ("markov", "score(before(s))", "score(s)", "loss"),
    ("markov", "k - m + U", "k + U", "loss"),
    ("in_weights", "mass = copies + L * R", "mass = copies + R", "time"),
    ("in_weights", "mass = copies + L * R", "mass = copies + L * (R - 1)", "loss"),
    ("in_weights", "fading / 2 * (c**2 + squares)", "fading / 2 * c**2", "loss"),
    ("bypass", "mass = exp(theta) + LENGTH - 1", "mass = exp(theta) + LENGTH", "loss"),
    ("bypass", "b * bypass[now, then]", "b**2 * bypass[now, then]", "loss"),
]


@functools.cache
def theory_of(path):
    return find(str(path)).wing("theory")


def own(name):
    return theory_of(FOLDER / f"{name}.py")


def changed(name, before, after, folder):
    """Theory of a statement whose text is changed."""
    text = (FOLDER / f"{name}.py").read_text()
    assert before in text
    path = folder / f"{name}.py"
    path.write_text(text.replace(before, after))
    return theory_of(path)


def losses(stated, by_hand):
    """Mean loss over all inputs at random weights: the statement's, and by hand."""
    sizes = BY_HAND[by_hand]
    rng = keyed(3, 0)
    teachers = [f for f in stated.functions if f.kept]
    tables = {f: facts(sizes["S"], sizes["R"]) for f in teachers}
    data = arrays.every_input(stated, sizes, rng, tables)
    weights = {w: rng.normal(size=data.shape(w.sorts)) for w in stated.weights}
    student = Student(stated)
    tensors = {w: torch.as_tensor(x) for w, x in weights.items()}
    of_statement = float(student.mean(tensors, student.taken(data)))
    return of_statement, by_hand({w.name: x for w, x in weights.items()}, **sizes)


def time_of(theory, changes, observable, level, until):
    """Time at which an observable reaches a level along the flow."""
    flow = theory.flow()
    event = {"reached": flow.observables[observable] - level}
    p = theory.Parameters(**changes)
    return float(flow.solve(p, at=[0.0], t=until, events=event)["reached"])


def test_every_file_is_tested():
    assert sorted(NAMES) == sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_statement(name):
    """A short file with a docstring; a flow, its solution, LaTeX of every rate, and
    gradients of all weights by autograd.
    """
    text = (FOLDER / f"{name}.py").read_text()
    assert ast.get_docstring(ast.parse(text))
    assert len(text.splitlines()) <= LINES
    assert max(map(len, text.splitlines())) <= COLUMNS

    theory = own(name)
    derived = theory.derived()
    assert derived.status == "exact"

    curve = theory.flow().solve(theory.Parameters(), at=[0.0, 1.0, 100.0], t=100.0)
    assert (np.diff(curve.loss) < 0).all()

    printed = write_up.fragment(theory.equations().values())
    for variable in theory.flow().state:
        assert rf"\label{{eq:d{variable.name}_dt}}" in printed

    # At one size; every derivation has compared more with listed inputs.
    checks = gradients.checks(derived, sizes=1)
    assert {c.verdict for c in checks} <= {"exact", "agrees"}
    weights = [w.name for w in derived.statement.weights]
    seen = {c.id for c in checks if c.verdict == "exact"}
    assert {"loss", "all_weights_after_5_steps"} <= seen
    assert {f"gradient_of_{w}" for w in weights} <= seen


@pytest.mark.parametrize("by_hand", BY_HAND, ids=NAMES)
def test_loss_is_that_of_a_student_written_by_hand(by_hand):
    of_statement, plain = losses(own(by_hand.__name__).statement, by_hand)
    assert of_statement == pytest.approx(plain, rel=ROUNDING)


@pytest.mark.parametrize("by_hand", BY_HAND, ids=NAMES)
def test_descent_of_all_weights_is_that_of_the_flow(by_hand, tmp_path):
    """Autograd on all inputs at once, every entry of the weights by itself, against
    equal steps of the flow; a rate that is 1% off is seen.
    """
    theory = own(by_hand.__name__)
    system = students.of(theory.statement).SYSTEMS["student"]
    training = dict(eta=0.3, steps=20, eval_every=5, batch_size=0)
    sizes = BY_HAND[by_hand]
    if by_hand is softmax_recall:  # the score of the end token rests at T - 3 = n
        sizes = sizes | dict(S=4, R=3, T=6)
    p = theory.Parameters(**sizes, **training)
    runs = system.train(p, range(1), store=tmp_path, progress=False, workers=1)
    curve = theory.predict(p, runs)
    for variable in theory.flow().state:
        trained = runs[variable.name].values.squeeze()
        predicted = curve[variable.name].values.squeeze()
        assert abs(trained).max() > 1e-4
        np.testing.assert_allclose(trained, predicted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "changes", "observable", "level", "time", "digits"), TIMES
)
def test_times_are_those_of_0_1_0(name, changes, observable, level, time, digits):
    found = time_of(own(name), changes, observable, level, 2 * time)
    assert found == pytest.approx(time, rel=digits)


@pytest.mark.slow  # LaTeX and machine code of six actions take minutes
def test_bypass_of_six_actions(tmp_path):
    """Attention does not wait for the bypass, the guess of reached states does."""
    theory = changed("bypass", "LENGTH = 3", "LENGTH = 6", tmp_path)
    by_strength = {0.0: (83.93, 294), 1.0: (84.02, 95), 3.0: (84.17, 12)}
    for b, (attention, guess) in by_strength.items():
        found = time_of(theory, dict(b=b), "A", 0.5, 200)
        assert found == pytest.approx(attention, abs=0.005)
        found = time_of(theory, dict(b=b), "possible", 0.75, 500)
        assert found == pytest.approx(guess, abs=0.5)


def test_many_pairs():
    """Time of attention 1/2 is (P - 1) (pi/2 (N - 1) (M - 1))^(1/2) for many pairs
    among many more keys and values: the next order is 4% at 100 pairs.
    """
    size = 10**9
    shares = []
    for P in (100, 10_000):
        limit = (P - 1) * np.sqrt(np.pi / 2) * (size - 1)
        sizes = dict(N=size, M=size, P=P)
        shares.append(time_of(own("retrieval"), sizes, "A", 0.5, 2 * limit) / limit)
    assert 1.03 < shares[0] < 1.05
    assert 1 < shares[1] < 1.001


def test_many_tokens():
    """Time of the relation for many tokens and many more subjects: 4% at 100 tokens."""
    R, D, n = 4, 4, 32
    shares = []
    for T in (100, 10**6):
        root = np.sqrt(D * n * R / ((R - 1) * (n + R)))
        limit = T * R * np.sqrt(np.pi / 2) * root
        sizes = dict(S=4096, R=R, D=D, T=T, n=n)
        time = time_of(own("softmax_recall"), sizes, "a_r", 0.5, 2 * limit)
        shares.append(time / limit)
    assert 1.03 < shares[0] < 1.05
    assert shares[1] == pytest.approx(1, abs=1e-4)


def test_retrieval_starts_unless_every_value_is_shown():
    """With M = P the mean of what is shown tells nothing, and nothing moves."""
    theory = own("retrieval")
    for M, moves in ((4, False), (5, True)):
        p = theory.Parameters(M=M)
        end = theory.flow().solve(p, at=[0.0, 100.0], t=100.0)
        assert (abs(float(end.delta_V[-1])) > 1e-12) is moves


@pytest.mark.parametrize(("name", "right", "wrong", "sees"), FAULTS)
def test_another_system_is_seen(name, right, wrong, sees, tmp_path):
    """By the loss of the student written by hand, or by the time of 0.1.0, although
    theory and students of a wrong statement agree with each other.
    """
    theory = changed(name, right, wrong, tmp_path)
    if sees == "loss":
        (by_hand,) = (student for student in BY_HAND if student.__name__ == name)
        of_statement, plain = losses(theory.statement, by_hand)
        assert of_statement != pytest.approx(plain, rel=1e6 * ROUNDING)
    else:
        _, changes, observable, level, time, _ = next(x for x in TIMES if x[0] == name)
        found = time_of(theory, changes, observable, level, 2 * time)
        assert found != pytest.approx(time, rel=1e-2)
