"""The in-context bigram task, the three memories that solve it, and the probe that measures
them.
"""

from functools import cache

import sympy as sp

from theory import Equation, array, function, symbol, table
from theory.associative_memory.symbols import K, N, T, e, i, j, k, ref, u

position = symbol("t_position", "t", "a position", integer=True, positive=True)
transition = array("p_sequence", "p", "bigram within a sequence")
p = array("p", means="positional codes")
bigram = function(r"\pi_b", "bigram of the language")
trigger = array("q_trigger", "q", "triggers")
output = array("o_output", "o", "outputs: what follows them in this sequence")
remapped = array("e_remapped", r"\tilde{e}", "token k remapped by the first layer, W_OV^1 e_k")
value = array("v_value", r"v", "token k as a value of the second layer, W_V^2 e_k")
W_K1, W_K2, W_O2 = (
    array(f"target_{x}", f"W_{x[0]}^{x[1]}", f"memory that the {means} should become")
    for x, means in (
        ("K1", "keys of the first layer"),
        ("K2", "keys of the second layer"),
        ("O2", "outputs of the second layer"),
    )
)
probe = symbol("R_probe", "R", "recall of a memory", positive=True)
size = symbol("M_probe", "M", "tokens that are probed", integer=True, positive=True)
hit = array(
    "hit_probe", r"\mathbf{1}\{i=\arg\max_j u_j^{\top}\hat{W}e_i\}", "1 where token i is recalled"
)
first = symbol("i_state", "i", "a token", integer=True, positive=True)
last = symbol("j_state", "j", "the token behind it", integer=True, positive=True)


def transition_law() -> sp.Expr:
    """Next token of a sequence whose triggers q_1 .. q_K are followed by o_1 .. o_K."""
    follows = sp.Sum(
        sp.KroneckerDelta(first, trigger[k]) * sp.KroneckerDelta(last, output[k]), (k, 1, K)
    )
    free = 1 - sp.Sum(sp.KroneckerDelta(first, trigger[k]), (k, 1, K))
    return follows + free * bigram(last, first)


@cache
def equations() -> dict[str, Equation]:
    """Distribution of the sequences, entries of the target memories, the probe, and its chance
    level.
    """
    recall = sp.Sum(hit[i], (i, 1, size)) / size
    # By chance the largest of M candidates is uniform.
    chance = sp.simplify(size * (1 / size) / size)
    k_1 = sp.Sum(p[position, i] * p[position - 1, j], (position, 2, T))
    k_2 = sp.Sum(e[trigger[k], i] * remapped[trigger[k], j], (k, 1, K))
    heads = "slides, induction head with associative memories"
    law = "slides, p(j|i) of the bigram task"
    blind = "weights that know nothing: mean over draws"
    return table(
        ref,
        status="exact",
        trigger_transition=(transition[last, first], transition_law(), law),
        target_W_K1=(W_K1[i, j], k_1, heads),
        target_W_K2=(W_K2[i, j], k_2, heads),
        target_W_O2=(W_O2[i, j], sp.Sum(u[k, i] * value[k, j], (k, 1, N)), heads),
        probe=(probe, recall, "slides, memory recall probes"),
        probe_chance=(probe, chance, "derived here", blind),
    )
