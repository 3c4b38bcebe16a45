"""State tracking with a bypass: logits are the sum of the logic of actions, which needs retrieval,
and of a table of the state alone.

From every state the ``d_g`` actions lead to different states, ``N - d_g`` are led to by none. A
state that is led to is named by the action that leads there. Attention is one trained number, the
score of the right action. Time is ``t = eta * steps``, ``eta d_g N`` times the paper's alpha.
"""

from typing import Any

from theory.state_tracking.symbols import PAPER
from theory.statement import draw, exp, log, number, sample, sizes, sort, statement, total, weight

LENGTH = 6  # actions of a sequence
N, d_g = sizes("N d_g")
b = number("b", "strength of the table of the state alone")
state, action, nobody = sort("state", N), sort("action", d_g), sort("nobody", N - d_g)
place = sort("place", LENGTH - 1)  # of the other actions of the sequence
other = sample("other", (place,), action)
now, right = draw(state), draw(action)
M, M_none = weight("M", state, action, action), weight("M_none", state, action, nobody)
U, U_none = weight("U", state, action), weight("U_none", state, nobody)
score = weight("theta")[()]
mass = exp(score) + LENGTH - 1


def logit(of: Any, alone: Any, then: Any) -> Any:
    """Logit of a state: logic of the retrieved action, plus the table of the current state."""
    others = total(lambda p: of[now, other(p), then], place)
    return (exp(score) * of[now, right, then] + others) / mass + b * alone[now, then]


every = total(lambda c: exp(logit(M, U, c)), action)
none = total(lambda n: exp(logit(M_none, U_none, n)), nobody)
stated = statement(
    log(every + none) - logit(M, U, right),
    name="bypass",
    title="State tracking with a bypass: a table of the state alone beside logic",
    paper=PAPER,
    observables={"A": exp(score) / mass, "possible": every / (every + none)},
    values=dict(N=12, d_g=6, b=1.0, eta=0.5, steps=600, eval_every=4, batch_size=256),
    bounds=dict(b=(0, 100)),
)
