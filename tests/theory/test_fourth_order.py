"""Fixed-disorder theory to fourth order: all inputs of tiny students, the Equations by finite
differences, rollouts drawn one by one.
"""

from dataclasses import replace

import numpy as np
import pytest
import test_fixed_disorder as second
from later import Later

from theory.state_tracking import Parameters, fourth_order, task
from theory.state_tracking.fourth_order import FourthOrder
from theory.state_tracking.realisation import Realisation, Start
from theory.state_tracking.rollout import rollout

FORMS = Later(lambda: second.fixed_disorder.equations() | fourth_order.equations())
P = second.P


@pytest.mark.parametrize("size", [(4, 3, 2), (3, 4, 4)], ids=str)
def test_all_inputs_to_fourth_order(size, monkeypatch):
    """Exact gradients over all inputs: what is left of the force on attention falls as the fifth
    power of the scatter of M, of the gradient by M as the fourth; to second order as the third and
    second.
    """
    monkeypatch.setattr(second, "FixedDisorder", FourthOrder)
    p = P.replace(N=size[0], d_g=size[1], L=size[2])
    left = []
    for scale in (0.2, 0.1):
        start, given = second.begin(p, 3, scale)
        flat = np.full_like(given.share, 1 / given.share[0].size)
        infinite = replace(given, share=flat, pairs=None)
        exact = second.by_rows(p, start, infinite, *second.every_input(p, given.teachers[0]))
        found = second.by_theory(p, start, infinite)
        left.append({name: np.abs(found[name] - exact[name]).max() for name in ("force", "d_M")})
    for name, power in (("force", 5), ("d_M", 4)):
        assert left[1][name] < left[0][name] / (0.85 * 2**power), name
        assert left[1][name] < 2e-7, name


def whole_loss(p: Parameters, given: Realisation, state: list[np.ndarray]) -> float:
    """Mean over groups of the Equation of the loss, all its arrays by their own Equations."""
    N, L, d = p.N, p.L, p.d_g
    system = FourthOrder(p, Start.drawn(p, 1, np.random.default_rng(0)), given)
    system.state = state
    x = {
        **{
            "N": N,
            "L": L,
            "d_g": d,
            "n_train": p.n_train,
            "pi": system.attention.parts(*system.state[:2])[0][0],
        },
        **{"nu": given.share[0], "pairs": given.pairs[0].astype(float)},
        **{"M": state[2][0].transpose(1, 2, 0), "M_star": given.one_hot()[0].transpose(1, 2, 0)},
    }

    def fill(name: str, where: dict, **axes: int) -> np.ndarray:
        out = np.empty([*axes.values()])
        for at in np.ndindex(out.shape):
            here = second.place(**dict(zip(axes, at, strict=True)))
            out[at] = FORMS[name].evaluate({**x, **where, **here})
        return out

    x["M_mean"] = fill("mean_entry", {}, s=N, r=N)
    total = 0.0
    for s, i, a in np.ndindex(N, L, d):
        at = second.place(s=s, i=i, a=a)
        O = np.zeros((N, L, d, d))
        O[s, i, a] = fill("mean_weight", at, b=d)
        z = np.zeros((N, L, d, N))
        z[s, i, a] = fill("group_logit", at | {"O": O}, r=N)
        e = np.exp(z[s, i, a])
        here = at | {"z_group": z, "p_plain": e / e.sum()}
        here["x"] = fill("moved", here, b=d, r=N)
        here["kept"] = np.array([1.0, *(FORMS[f"kept_{n}"].evaluate(x | at) for n in (2, 3, 4))])
        T = np.zeros((4, N, L, d))
        T[1:, s, i, a] = [FORMS["powers"].evaluate(x | here | {"k": n}) for n in (2, 3, 4)]
        K = np.stack([np.zeros(d), *(fill(f"cumulant_{n}", here, b=d) for n in (2, 3, 4))])
        here |= {
            "powers": T,
            "kappa_entries": K,
            "kappa_both": fill("cumulant_both", here, b=d, c=d),
        }
        total += given.share[0, s, i, a] * FORMS["loss_fourth"].evaluate(x | here)
    return total


def test_gradients_are_those_of_the_equations():
    """Along a random direction of keys, queries and M, all groups with several rows."""
    start, given = second.begin(P, 5)
    assert (given.share * P.n_train * P.L > 1.5).all()
    system = FourthOrder(P, start, given)
    slopes, rng = system.gradients(), np.random.default_rng(1)
    # More of keys and queries, whose gradient is smaller.
    along = [
        scale * rng.normal(size=w.shape)
        for scale, w in zip((20, 20, 0.1), system.state, strict=True)
    ]
    ends = [
        whole_loss(P, given, [w + h * x for w, x in zip(system.state, along, strict=True)])
        for h in (1e-5, -1e-5)
    ]
    by_weights = [(g * x).sum() for g, x in zip(slopes, along, strict=True)]
    assert min(np.abs(by_weights)) > 0.05 * max(np.abs(by_weights))
    # Counts are in single precision.
    assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(sum(by_weights), rel=1e-4)


def test_rollouts_over_states():
    """Against rollouts drawn one by one, of a student that is right beside some pairs of state and
    action and leads anywhere alike beside others. One accuracy for all pairs is off by twice the
    tolerance, and equals the formula for it.
    """
    p = Parameters(N=12, L=6, d_g=6, d_h=8, n_train=64)
    rng = np.random.default_rng(3)
    start = Start.drawn(p, 1, rng)
    given = Realisation.drawn(p, start, rng)
    system = FourthOrder(p, start, given)
    right = rng.random((p.N, p.d_g)) < np.linspace(0.5, 1, p.N)[:, None]
    first = np.broadcast_to(right, (1, p.L, p.N, p.d_g)).astype(float)
    (found,) = system._rolled(first)["rollout_accuracy"]
    data = task.draw_sequences(given.teachers[0], 200_000, p.L, rng)
    believed = data.states[:, 0]
    for t in range(p.L):
        action = data.actions[:, t]
        next_one = given.teachers[0][action, believed]
        stray = (next_one + rng.integers(1, p.N, len(action))) % p.N
        believed = np.where(right[believed, action], next_one, stray)
    measured = (believed == data.states[:, -1]).mean()
    alone = rollout(first.mean((2, 3))[0], p.N)[-1]
    assert found == pytest.approx(measured, rel=0.015)  # where from wrong states do rollouts return
    assert abs(alone / measured - 1) > 0.03
    flat = np.full_like(first, 0.8)
    assert system._rolled(flat)["rollout_accuracy"] == pytest.approx(
        rollout(np.full(p.L, 0.8), p.N)[-1], rel=1e-12
    )
