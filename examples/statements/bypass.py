"""State tracking with a bypass: a table of the state alone beside logic.

The d_g actions lead from each state to different states, which are named by the
action; N - d_g states are never reached. One action of a sequence is the right one.
"""

from theory.statement import *

LENGTH = 3  # actions of a sequence; the flow grows quickly with it
N, d_g = sizes("N d_g")  # states, actions
b = number("b")  # strength of the bypass
state, action, nobody = sort("state", N), sort("action", d_g), sort("nobody", N - d_g)
place = sort("place", LENGTH - 1)  # of the other actions of the sequence
other = sample("other", (place,), action)
now, right = draw(state), draw(action)
M, U = weight("M", state, action, action), weight("U", state, action)
M_none = weight("M_none", state, action, nobody)
U_none = weight("U_none", state, nobody)
theta = weight("theta")[()]  # score of the right action
mass = exp(theta) + LENGTH - 1


def logit(logic, bypass, then):
    """Logic of the attended actions, plus the table of the state."""
    others = total(lambda p: logic[now, other(p), then], place)
    attended = (exp(theta) * logic[now, right, then] + others) / mass
    return attended + b * bypass[now, then]


reached = total(lambda a: exp(logit(M, U, a)), action)
normaliser = reached + total(lambda s: exp(logit(M_none, U_none, s)), nobody)
stated = statement(
    log(normaliser) - logit(M, U, right),
    name="bypass",
    title="State tracking with a bypass",
    observables={"A": exp(theta) / mass, "possible": reached / normaliser},
    values=dict(N=12, d_g=6, b=1.0, eta=0.5, steps=600, eval_every=4, batch_size=256),
    bounds=dict(b=(0, 100)),
)
