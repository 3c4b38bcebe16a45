"""Standard transformers on the state-tracking task: the architecture against torch's own layer, the
interventions where what they must give is known.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from tiny import ALONE
from torch import nn

from simulate.state_tracking import SYSTEMS, Student, standard
from simulate.state_tracking.measure import overlaps
from simulate.state_tracking.standard import Transformer, drawn, train
from theory import state_tracking as st
from theory.parameters import ParameterError
from theory.state_tracking import Parameters, task
from theory.state_tracking.parameters import StandardParameters
from verify.trajectories import compare

SMALL = StandardParameters(N=5, L=3, d_g=4, d_model=8, d_h=4, d_ff=12, heads=2)
ROUNDING = 1e-12  # of some hundred operations in double precision


def student_and_data(p: StandardParameters, seed: int = 0):
    """A student in double precision with random biases and norms, actions and states."""
    student = drawn(p, seed).double()
    with torch.no_grad():
        for w in student.parameters():
            w += 0.3 * torch.randn(w.shape, generator=torch.Generator().manual_seed(w.numel()))
    rng = np.random.default_rng(seed)
    data = task.draw_sequences(task.draw_permutations(p, rng), 40, p.L, rng)
    return student, torch.as_tensor(data.actions), torch.as_tensor(data.states)


def test_a_block_is_torch_s_own_layer():
    """``nn.TransformerEncoderLayer`` with the norm first and a causal mask, given the weights; it
    has the same heads if their widths add up to that of the stream.
    """
    p = SMALL
    student, actions, states = student_and_data(p)
    (block,) = student.blocks
    heads, mlp = block.heads, block.mlp
    layer = nn.TransformerEncoderLayer(
        p.d_model, p.heads, p.d_ff, 0.0, "gelu", batch_first=True, norm_first=True
    ).double()
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(
            torch.cat([f.weight for f in (heads.query, heads.key, heads.value)])
        )
        layer.self_attn.in_proj_bias.zero_()
        layer.self_attn.out_proj.weight.copy_(heads.out.weight)
        layer.self_attn.out_proj.bias.zero_()
    pairs = [(layer.norm1, block.norm_1), (layer.norm2, block.norm_2), (layer.linear1, mlp.up)]
    for theirs, ours in [*pairs, (layer.linear2, mlp.down)]:
        theirs.load_state_dict(ours.state_dict())
    x = student.tokens(torch.cat([actions, states[:, :-1] + p.d_g], 1)) + student.places.weight
    mask = nn.Transformer.generate_square_subsequent_mask(2 * p.L, dtype=torch.float64)
    found = student.out(student.norm(layer(x, src_mask=mask, is_causal=True)[:, p.L :]))
    torch.testing.assert_close(
        student(actions, states[:, :-1]).logits, found, rtol=0, atol=ROUNDING
    )


@pytest.mark.parametrize("change", [{}, dict(blocks=2, mlp="glu", norm=False, positions="rope")])
def test_no_state_sees_a_later_one(change):
    """Logits of the first steps do not change with what follows."""
    student, actions, states = student_and_data(SMALL.replace(**change))
    whole, part = student(actions, states[:, :-1]), student(actions, states[:, :2])
    torch.testing.assert_close(whole.logits[:, :2], part.logits, rtol=0, atol=ROUNDING)
    assert whole.attention.shape == (40, 2 * student.p.blocks, 3, 3)
    assert (whole.attention.sum(-1) + whole.itself <= 1 + ROUNDING).all()


@pytest.mark.parametrize("positions", ["rope", "learned"])
def test_the_last_block_of_states_alone(positions):
    """The stream from the first state on is the end of the whole stream."""
    student, actions, states = student_and_data(SMALL.replace(positions=positions))
    (block,) = student.blocks
    x = student.tokens(torch.cat([actions, states[:, :-1] + SMALL.d_g], 1))
    (whole, seen), (part, also) = (block(x, None, first) for first in (0, SMALL.L))
    torch.testing.assert_close(part, whole[:, SMALL.L :], rtol=0, atol=ROUNDING)
    torch.testing.assert_close(also, seen, rtol=0, atol=ROUNDING)


def test_a_gate_multiplies():
    """Without its gate's weights a gated MLP is linear, times the GELU of the gate's bias."""
    student, *_ = student_and_data(SMALL.replace(mlp="glu"))
    mlp, x = student.blocks[0].mlp, torch.randn(7, 8, dtype=torch.float64)
    nn.init.zeros_(mlp.gate.weight)
    expected = mlp.down(mlp.up(x) * nn.functional.gelu(mlp.gate.bias))
    torch.testing.assert_close(mlp(x), expected, rtol=0, atol=ROUNDING)


def test_rotary_attention_knows_distances_alone():
    """Of equal tokens: the ratio of attention on neighbouring places is the same for all queries at
    the same distance.
    """
    student, *_ = student_and_data(SMALL.replace(positions="rope", norm=False))
    actions = torch.zeros(1, 3, dtype=torch.long)
    student.tokens.weight.data[:] = student.tokens.weight[0]
    paid = student(actions, torch.zeros(1, 3, dtype=torch.long)).attention[0].log()
    ratio = paid[:, :, 1:] - paid[:, :, :-1]  # step t, places j and j + 1
    torch.testing.assert_close(ratio[:, 0, 0], ratio[:, 1, 1], rtol=0, atol=ROUNDING)
    assert (ratio[:, 0, 0] - ratio[:, 0, 1]).abs().min() > 1e-3


def test_moved_attention_is_that_on_copies():
    """A student that attends to all tokens alike, without places: spread evenly nothing changes,
    and moved to the right action it answers as if all actions were that one.
    """
    p = SMALL.replace(positions="rope")
    student, actions, states = student_and_data(p)
    nn.init.zeros_(student.blocks[0].heads.query.weight)
    now, eye = states[:, :-1], torch.eye(p.L, dtype=torch.float64)
    own = student(actions, now)
    spread = student(actions, now, torch.full((p.L, p.L), 1 / p.L, dtype=torch.float64))
    torch.testing.assert_close(own.logits, spread.logits, rtol=0, atol=ROUNDING)
    torch.testing.assert_close(own.attention, spread.attention, rtol=0, atol=0)
    moved = student(actions, now, eye).logits
    for t in range(p.L):
        copies = student(actions[:, t : t + 1].expand(-1, p.L), now).logits[:, t]
        torch.testing.assert_close(moved[:, t], copies, rtol=0, atol=ROUNDING)


def test_order_parameters_of_the_solvable_student_are_the_theory_s():
    """Of all sequences of two actions: A, R and S by intervention are those of its weights, R and S
    less zeta/N; patched accuracies are those of the attention that was patched in.
    """
    p = Parameters(N=5, L=2, d_g=4, d_h=8)
    rng = np.random.default_rng(3)
    perms = task.draw_permutations(p, rng)
    student = Student(p, task.draw_weights(p, rng), torch.float64)
    every = np.array(list(itertools.product(range(4), range(4), range(5))))
    actions = every[:, :2]
    first = perms[actions[:, 0], every[:, 2]]
    states = np.stack([every[:, 2], first, perms[actions[:, 1], first]], 1)
    actions, states = torch.as_tensor(actions), torch.as_tensor(states)

    def run(*given):
        return standard.seen(student, *given)

    found = standard.measure(run, actions, states)
    known = overlaps(student.M.detach()[None], torch.as_tensor(task.teacher_matrices(perms))[None])
    shift = float(known["zeta"]) / p.N
    assert float(found["R"]) == pytest.approx(float(known["R"]) - shift, abs=ROUNDING)
    assert float(found["S"]) == pytest.approx(float(known["S"]) - shift, abs=ROUNDING)
    attention = student.attention(actions, states[:, :-1]).detach().mean(0)
    assert float(found["A"]) == pytest.approx(float(attention.diagonal().mean()), abs=ROUNDING)
    assert float(found["retrieval"]) == pytest.approx(float(found["A"]), abs=ROUNDING)
    hits = student.M[actions, :, states[:, :-1]].argmax(-1) == states[:, 1:]
    assert float(found["logic"]) == pytest.approx(float(hits.double().mean()), abs=ROUNDING)
    both = (
        student.M[actions[:, [0]], :, states[:, :-1]]
        + student.M[actions[:, [1]], :, states[:, :-1]]
    )
    hits = both.argmax(-1) == states[:, 1:]
    assert float(found["heuristic"]) == pytest.approx(float(hits.double().mean()), abs=ROUNDING)
    assert float(found["B"]) == 0


@pytest.mark.parametrize("least", [0.0, 0.16, 0.17, 1.0])
def test_what_attention_allows(least):
    """Pairs of which no head looks at the action are guessed together, state by state: here all of
    state 0, and of state 2 the first action, which is all that is unseen there. The limit is 1/6
    at L = 3, for the best head.
    """
    perms = np.array([[1, 2, 0], [1, 0, 2], [2, 1, 0], [0, 2, 1]])
    rng = np.random.default_rng(1)
    data = task.draw_sequences(perms, 200, 3, rng)
    now = data.states[:, :-1]
    unseen = (now == 0) | ((now == 2) & (data.actions == 0))
    paid = np.where(unseen[:, None], least, 0.5) * np.array([1.0, 0.1])[:, None]
    attention = np.zeros((200, 2, 3, 3))
    attention[..., range(3), range(3)] = paid
    given = (torch.as_tensor(x) for x in (attention, data.actions, data.states))
    found = float(standard.visible(*given))
    led = np.bincount(data.states[:, 1:][now == 0], minlength=3)
    lost = led.sum() - led.max()  # the pair at state 2 leads to one state
    expected = 1.0 if least > 1 / 6 else 1 - lost / now.size
    assert found == pytest.approx(expected, abs=ROUNDING) and lost > 0


def test_rollouts_feed_back_their_own_guesses():
    """A student that always says the next number, wherever it starts."""

    def counting(actions, states, redirect=None):
        return standard.Seen(nn.functional.one_hot((states + 1) % 5, 5).double(), None, None)

    first = torch.arange(5)
    end = standard.rollout(counting, torch.zeros(5, 3, dtype=torch.long), first)
    assert end.tolist() == [3, 4, 0, 1, 2]


def test_students_of_a_seed_learn_the_same_sequences(tmp_path):
    """Teachers, training and test set are those of the solvable student of that seed."""
    p = SMALL.replace(n_train=30, n_test=10, batch_size=10, epochs=2, eval_every=1)
    ours = SYSTEMS["standard"].learner(p, [4], torch.device("cpu"), torch.float32).members[0]
    q = Parameters(N=5, L=3, d_g=4, n_train=30, n_test=10)
    theirs = SYSTEMS["student"].learner(q, [4], torch.device("cpu"), torch.float32)
    assert (ours.data[1].numpy() == theirs.train_data[0].states).all()
    assert (ours.test[0] == theirs.test_data[0][0]).all()
    assert ours.student.tokens.weight.std() > 0.5
    state = torch.random.get_rng_state()
    drawn(p, 1)
    assert (torch.random.get_rng_state() == state).all()


def test_a_student_learns_the_task(tmp_path):
    """Three states, two actions: every rollout is right, by attention on the right action."""
    p = StandardParameters(
        N=3, L=2, d_g=2, d_model=16, d_h=8, d_ff=32, n_train=256, n_test=64, batch_size=64,
        epochs=200, eval_every=100, eta=5e-3, permutations="distinct",
    )  # fmt: skip
    found = train(p, 1, store=tmp_path, **ALONE).isel(alpha=-1, seed=0)
    assert found.rollout_accuracy == 1 and found.logic > 0.85
    assert found.R - found.S > 1 and found.heuristic < 0.95


def test_theories_of_the_solvable_student_refuse_these(tmp_path):
    """In one line, which names the field; who insists gets the flow of these sizes."""
    p = StandardParameters(N=5, L=3, d_g=4, optimizer="sgd", batch_size=None, unit="epoch")
    for function in (lambda: st.flow().solve(p, alpha=1.0), lambda: st.onset(p)):
        with pytest.raises(ParameterError, match="^fix_embedding = False: must be True") as caught:
            function()
        assert "\n" not in str(caught.value)
    with pytest.warns(UserWarning, match="fix_embedding"):
        curve = st.flow().solve(p, alpha=1.0, beyond=True)
    own = st.flow().solve(Parameters(N=5, L=3, d_g=4, d_h=32, eta=p.eta, rope="plain"), alpha=1.0)
    assert float(curve.A[-1]) == pytest.approx(float(own.A[-1]), rel=1e-9)
    tiny = dict(n_train=20, n_test=4, batch_size=None, optimizer="sgd", epochs=2, eval_every=1)
    runs = train(SMALL.replace(**tiny), 1, store=tmp_path, **ALONE)
    with pytest.raises(ParameterError, match="fix_embedding = False: must be True"):
        compare(own.drop_attrs().assign_attrs(kind="theory", parameters=runs.parameters), runs)
    with pytest.raises(ParameterError, match="must be Parameters for the solvable student"):
        SYSTEMS["student"].train(p, store=tmp_path, **ALONE)


@pytest.mark.parametrize(
    "change", [dict(fix_embedding=True, d_model=1), dict(reward="step"), dict(rope="2pi")]
)
def test_fields_that_do_nothing_are_refused(change):
    """One line naming field and value."""
    with pytest.raises(ParameterError, match=f"^{next(iter(change))} = ") as caught:
        StandardParameters(**change)
    assert "\n" not in str(caught.value)
    assert isinstance(Transformer(StandardParameters.two_blocks()), nn.Module)
