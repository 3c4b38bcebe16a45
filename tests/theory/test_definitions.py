"""The statement of the model (Eqs. 1-9) written out for two states, two actions and
three positions.
"""

from __future__ import annotations

import sympy as sp

from theory import state_tracking
from theory.state_tracking.model.definitions import action, logit, output, pi, z
from theory.state_tracking.model.definitions import state as state_array
from theory.state_tracking.model.symbols import L, M, M_star, N, a, d_g, i, j, r, s, t

SIZES = {N: 2, d_g: 2, L: 3}


def unrolled(name, **at):
    """An equation with the sizes and some indices put in and all sums written out."""
    indices = {"a": a, "i": i, "j": j, "r": r, "s": s, "t": t}
    form = state_tracking.equations()[name].rhs.subs(
        {indices[k]: v for k, v in at.items()}
    )
    return form.subs(SIZES).doit()


def test_next_state():
    """(1): the t-th action acts on the state before it."""
    form = state_tracking.equations()["state"].rhs
    assert form.args == (action[t], state_array[t - 1])


def test_attention_row():
    """(4): softmax over the actions, so the row sums to one."""
    row = [unrolled("attention", i=x) for x in (1, 2, 3)]
    total = sum(sp.exp(logit[x]) for x in (1, 2, 3))
    assert all(
        sp.simplify(row[x - 1] - sp.exp(logit[x]) / total) == 0 for x in (1, 2, 3)
    )
    assert sp.simplify(sum(row)) == 1


def test_retrieved_action_and_logit():
    """(4), (6): attention on the positions of an action adds up; the logit weighs the
    matrices with it.
    """
    seen = unrolled("retrieved", i=5, a=2).subs(
        {action[1]: 2, action[2]: 1, action[3]: 2}
    )
    assert sp.expand(seen.doit() - pi[5, 1] - pi[5, 3]) == 0
    form = unrolled("logit", i=5, r=1, s=2)
    assert sp.expand(form - output[5, 1] * M[1, 1, 2] - output[5, 2] * M[2, 1, 2]) == 0


def test_training_loss():
    """(7): cross-entropy of the states that follow positions L+1..2L; the target at i +
    1 is s_{i-L}.
    """
    expected = 0
    for position, target in ((4, 1), (5, 2), (6, 3)):
        logits = [z[position + 1, x] for x in (1, 2)]
        expected += (
            sp.log(sum(sp.exp(x) for x in logits))
            - z[position + 1, state_array[target]]
        )
    assert sp.expand(unrolled("training_loss") - expected / 3) == 0


def test_order_parameters():
    """(8), (9a), (9b)."""
    assert sp.expand(unrolled("A") - (pi[4, 1] + pi[5, 2] + pi[6, 3]) / 3) == 0
    cells = [(x, y) for x in (1, 2) for y in (1, 2)]

    def overlap(teacher, student):
        return (
            sum(M_star[teacher, x, y] * M[student, x, y] for x, y in cells) / 2
        )  # Tr[M*^T M]/N

    assert sp.expand(unrolled("R") - (overlap(1, 1) + overlap(2, 2)) / 2) == 0
    assert sp.expand(unrolled("S") - (overlap(1, 2) + overlap(2, 1)) / 2) == 0
