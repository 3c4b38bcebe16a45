"""Laws of training: memory of momentum from impulses, entries by arrivals against the
fixed-disorder theory, the balance of loss and decay.
"""

from dataclasses import replace

import numpy as np
import pytest
import sympy as sp
from later import Later
from test_fixed_disorder import by_rows

from theory import clocks
from theory.optimisers import Optimiser, Steps
from theory.parameters import ParameterError
from theory.state_tracking import Parameters, arrivals, decay, task
from theory.state_tracking.arrivals import Arrivals, Kinds, _forms, emergence_steps
from theory.state_tracking.batches import batch_times
from theory.state_tracking.fixed_disorder import FixedDisorder
from theory.state_tracking.integrate import half_times
from theory.state_tracking.mean_field import pi_i
from theory.state_tracking.realisation import Realisation, Start
from theory.state_tracking.symbols import N, d_g
from theory.state_tracking.trained import system

CLOCKS, DECAY = Later(clocks.equations), Later(decay.equations)
BALLS = [Optimiser(momentum=0.7), Optimiser(momentum=0.7, nesterov=True)]


@pytest.mark.parametrize("end", [0.9, 0.2])
def test_steps_delay(end):
    """Of dx/dt = x (1 - x): descent by steps of h arrives later than by steps of h / 2, by half the
    delay, to order h^2.
    """
    x, h, begun = sp.Symbol("x"), 0.01, 0.05
    shift = float(clocks.delay(x * (1 - x), x, begun, end).subs(clocks.eta, h))
    times = []
    for step in (h, h / 2):
        path = [begun]
        while path[-1] < end:
            path.append(path[-1] + step * path[-1] * (1 - path[-1]))
        odds = np.log(path) - np.log1p(-np.array(path))  # almost linear in time: interpolates well
        times.append(step * np.interp(np.log(end / (1 - end)), odds, np.arange(len(path))))
    assert 2 * (times[0] - times[1]) == pytest.approx(shift, abs=h**2)


@pytest.mark.parametrize("how", BALLS, ids=["heavy ball", "Nesterov"])
def test_memory_of_momentum(how):
    """Weights of past gradients from the answer to one impulse: their sum, their mean age, and the
    clock under constant gradients.
    """
    name = "nesterov" if how.nesterov else "heavy_ball"
    answers, constant = [], []
    for kept, gradients in ((answers, [1.0] + [0.0] * 199), (constant, [1.0] * 30)):
        step, w = Steps(how, 1.0, len(gradients)), [np.zeros((1, 1))]
        for g in gradients:
            w = step(w, [np.full((1, 1), g)])
            kept.append(-w[0].item())
    weights = np.diff([0.0, *answers])
    known = {"beta": 0.7, "eta": 1.0}
    assert weights.sum() == pytest.approx(CLOCKS["rate_momentum"].evaluate(known), rel=1e-12)
    mean_age = (weights * np.arange(200)).sum() / weights.sum()
    assert mean_age == pytest.approx(CLOCKS[f"age_{name}"].evaluate(known), rel=1e-12)
    for n in (1, 2, 30):
        at = CLOCKS[f"clock_{name}"].evaluate(known | {"steps": n})
        assert constant[n - 1] == pytest.approx(at, rel=1e-12)


def test_plain_descent_of_the_same_path():
    """On a parabola the slower of both solutions of the recursion: the rate of plain descent with
    momentum's path agrees to second order, that of momentum itself to first.
    """
    gaps = []
    for eta in (4e-4, 2e-4):
        how = Optimiser(momentum=0.8)
        same = clocks.as_plain(how, eta)
        # w -> 1 + b - eta, -b: the larger root is the factor of one step.
        factor = np.roots([1, -(1 + 0.8 - eta), 0.8]).max()
        per_clock = -np.log(factor) / (same.eta / same.stretch)
        gaps.append([-np.log(1 - r) / r / per_clock - 1 for r in (same.eta, eta / 0.2)])
    with_memory, without = (np.log2(abs(a / b)) for a, b in zip(*gaps, strict=True))
    assert with_memory == pytest.approx(2, abs=0.1) and without == pytest.approx(1, abs=0.1)
    with pytest.raises(ParameterError, match="optimizer = adam: must be sgd"):
        clocks.as_plain(Optimiser(optimizer="adam"), 0.1)


def test_slopes_by_arrivals_are_mean_gradients():
    """Entries of M of one value per kind: gradients of the fixed-disorder theory, averaged over all
    entries of a kind, and its force on attention. 60 states of each of 6 draws.
    """
    p = Parameters(N=60, d_g=40, L=3, d_h=4, rope="plain", rope_theta=10.0, n_train=50, eta=1.0)
    rng = np.random.default_rng(0)
    start = Start.drawn(p, 6, rng)
    ours = Arrivals(p, start)
    law, size = ours.kinds, ours.kinds.k.size
    one = (0.3 + 0.1 * law.k, 0.2 * law.k - 0.1)  # right and wrong entries by kind
    middle = np.where(law.offset == 0, law.share, 0)
    ours.kinds = law = replace(law, share=middle / middle.sum())
    ours.many = [p.N**2 * law.share * law.k, p.N**2 * law.share * (p.d_g - law.k)]
    parts = ours.of_part.size
    ours.state[2] = np.broadcast_to(one[0], (6, size)).copy()
    ours.state[3] = np.broadcast_to(one[1][:, None], (6, size, parts)).copy()
    given = Realisation.drawn(p.replace(n_train=4), start, rng)
    own = given.one_hot().transpose(0, 1, 3, 2)  # (B, s, r, a)
    k = own.sum(3, keepdims=True)
    M = np.where(own > 0, 0.3 + 0.1 * k, 0.2 * k - 0.1)
    flat = np.full_like(given.share, 1 / given.share[0].size)
    known = replace(given, M=M.transpose(0, 3, 2, 1), share=flat, pairs=None)
    theirs = FixedDisorder(p, start, known)
    theirs.left = 0 * theirs.left  # no fluctuations within groups
    whole = theirs.gradients()[2].transpose(0, 1, 3, 2)
    slopes = ours.gradients()
    slopes[3] = slopes[3] @ ours.of_part
    kinds = {int(a): n for n, a in enumerate(law.k) if law.offset[n] == 0}
    scale = np.abs(whole[own > 0]).mean()
    for right, found in ((True, slopes[2]), (False, slopes[3])):
        for count in range(1 if right else 0, 4):
            chosen = (own > 0 if right else own == 0) & (k == count)
            mean = whole[chosen].mean()
            # The sum over 60 states in a normalisation scatters by a few per cent.
            assert found[:, kinds[count]].mean() == pytest.approx(mean, abs=0.05 * scale), count


def test_single_gradients_differ_as_they_should():
    """Exact gradients of single wrong entries to states with one arrival: slope in the entry
    itself, and variance between two training sets.
    """
    p = Parameters(N=24, L=5, d_g=16, d_h=8, n_train=2000, eta=1.0)
    rng = np.random.default_rng(0)
    start = Start.drawn(p, 1, rng)
    start.W_Q[:], start.W_K[:] = 0.5 * start.W_Q, 0.5 * start.W_K
    given = Realisation.drawn(p, start, rng)
    found = []
    for _ in range(2):
        data = task.draw_sequences(given.teachers[0], p.n_train, p.L, rng)
        found.append(by_rows(p, start, given, data.actions, data.states)["d_M"])
    own, M = given.one_hot()[0], given.M[0].transpose(2, 0, 1)
    chosen = (own == 0) & (own.sum(1, keepdims=True) == 1)
    ours, form = Arrivals(p, start), _forms()
    at = ours.attention.forward(*ours.state[:2])
    squares = (at**2).sum(2)[..., None]
    right, wrong = ours.state[2], ours.state[3] @ ours.of_part
    *_, mass = ours.kinds.slopes(np.einsum("bii->bi", at), right, wrong)
    (kind,) = np.flatnonzero((ours.kinds.k == 1) & (np.abs(ours.kinds.offset) < 1e-9))
    here = mass[..., [kind]]
    on = np.einsum("bii->bi", at)[..., None]
    counted = form["counts"](on, squares, here, 1 / p.d_g, p.N, p.d_g, p.n_train, p.L).mean()
    assert (found[0] - found[1])[chosen].var() / 2 == pytest.approx(counted, rel=0.1)
    mean = np.mean(found, 0)
    off, rest = (np.where(own > 0, np.nan, x) for x in (M, mean))
    off, rest = (x - np.nanmean(x, 1, keepdims=True) for x in (off, rest))
    slope = np.polyfit(off[chosen], rest[chosen], 1)[0]
    answer = form["answer"](squares, here, p.N, p.d_g).mean()
    assert slope == pytest.approx(answer, rel=0.15)
    # Both are in the gradients of single entries.
    single = ours.gradients()[3][0, kind]
    variance = ours.of_part @ single**2 - (ours.of_part @ single) ** 2
    start_variance = p.initial_variance * (1 - 1 / p.d_g)
    assert variance == pytest.approx(counted + answer**2 * start_variance, rel=1e-6)


def test_clipping_under_adam():
    """From the first step: the delay of emergence is that of the fixed-disorder theory, which has
    the norm of all single gradients, within a quarter.
    """
    # to just after the last seed has emerged
    p = Parameters.demo().replace(optimizer="adam", eta=0.006, unit="step", epochs=150)
    start = Start.drawn(p, 3, np.random.default_rng(2))
    given = Realisation.drawn(p, start, np.random.default_rng(3))
    times = []
    for clip in (0.01, None):
        q = p.replace(clip=clip)
        whole = half_times(system(q, start, given), q.epochs) * q.d_g * q.N
        times.append([emergence_steps(q, start).mean(), whole.mean()])
    ours, theirs = np.divide(*times) - 1
    assert theirs > 0.05 and ours == pytest.approx(theirs, rel=0.25)


def spelled(count):
    """Loss without the cost of random entries, and sum of squared probabilities, for so many kinds,
    with symbols in place of the arrays of the kinds.
    """
    a = arrivals
    eq, every = a.equations(), range(1, count + 1)
    bases = (a.share, a.arrivals, a.offset, a.right, a.wrong)
    names = [[sp.Symbol(f"{base.name}_{n}") for n in every] for base in bases]
    x = {base[n]: own[n - 1] for base, own in zip(bases, names, strict=True) for n in every}

    def whole(form):
        return form.subs(a.kinds, count).doit()

    steps = {"kind_mean": a.mean, "kind_right": a.z_right, "kind_wrong": a.z_wrong}
    for name, base in (*steps.items(), ("kind_normalisation", a.Z)):
        x |= {base[n]: whole(eq[name].rhs).subs(a.c, n).xreplace(x) for n in every}
    known, sums = (whole(eq[name].rhs.subs(a.T, 0)) for name in ("kind_loss", "kind_squares"))
    return known.xreplace(x), sums.xreplace(x), names


def test_slopes_by_kind_are_those_of_the_loss():
    """Array code against derivatives of the stated loss, for three kinds."""
    rng = np.random.default_rng(4)
    law = Kinds(np.array([0.5, 0.3, 0.2]), np.array([0.0, 1.0, 2.0]), rng.normal(size=3), 6, 5)
    own, right, wrong = rng.uniform(size=(1, 2)), *rng.normal(size=(2, 1, 3))
    loss, squares, (*known, x, y) = spelled(3)
    values = dict(zip((*x, *y), (*right[0], *wrong[0]), strict=True)) | {N: 6, d_g: 5}
    for names, array in zip(known, (law.share, law.k, law.offset), strict=True):
        values |= dict(zip(names, array, strict=True))
    by_right, by_wrong, by_own, sums, _ = law.slopes(own, right, wrong)
    for i, at in enumerate(own[0]):
        here = values | {pi_i: at}
        assert by_own[0, i] == pytest.approx(float(sp.diff(loss, pi_i).subs(here)), rel=1e-12)
        assert sums[0, i] == pytest.approx(float(squares.subs(here)), rel=1e-12)
        for names, found in ((x, by_right), (y, by_wrong)):
            slopes = [float(sp.diff(loss, name).subs(here)) for name in names]
            np.testing.assert_allclose(found[0, i], slopes, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("rate", [1e-4, 1e-3, 0.1])
def test_overlap_under_decay(rate):
    """The value of the generalised Lambert function, by its defining equation; Table 1's are those
    of the balance of flow and decay.
    """
    p = Parameters.table_1().replace(weight_decay=rate)
    R = float(decay.late_overlap(p))
    W = p.N * R / (p.N - 1)
    assert W * np.exp(W) + (p.N - 1) * W == pytest.approx(1 / (rate * p.d_g), rel=1e-10)
    assert DECAY["R_decayed"].evaluate({"W_r": W, "N": p.N}) == pytest.approx(R, rel=1e-12)
    assert decay.late_overlap(p, weight_decay=[rate, 2 * rate])[1] < R
    assert decay.late_overlap(Parameters()) == np.inf


def test_shares_of_arrivals():
    """Counted over many teachers; their number is followed up to rare ones."""
    p = Parameters(N=12, d_g=8)
    theory = Arrivals(p, Start.drawn(p, 1, np.random.default_rng(0)))
    given = [np.random.default_rng([3, n]).permutation(12)[None] for n in range(8 * 400)]
    to = np.concatenate(given).reshape(400, 8, 12)
    counts = np.array(
        [np.bincount(to[n, :, s], minlength=12) for n in range(400) for s in range(12)]
    )
    for k in range(4):
        share, size = (counts == k).mean(), counts.size
        own = theory.kinds.share[theory.kinds.k == k].sum()
        form = arrivals.equations()["arrivals"].rhs
        law = form.subs({d_g: 8, N: 12, arrivals.k: k}).doit()
        assert own == pytest.approx(float(law), abs=2e-4)
        # 4 standard errors; counts of one state are correlated, which makes them smaller.
        assert abs(share - own) < 4 * np.sqrt(own * (1 - own) / size)


def test_starts_batches_and_lengths_that_the_laws_do_not_know():
    """Each in one line: no start, one of another head, Adam's batches, a single action."""
    p = Parameters.demo()
    start = Start.drawn(p, 1, np.random.default_rng(0))
    for given, words in ((None, "must be a Start"), (start, "start: has d_h = 32, must have")):
        with pytest.raises(ParameterError, match=words):
            emergence_steps(p.replace(d_h=64), given)
    with pytest.raises(ParameterError, match="batch_size = 1: must be none or n_train"):
        emergence_steps(p.replace(optimizer="adam", batch_size=1), start)
    for field, least in (("d_g", 6), ("L", 3), ("N", 4)):
        with pytest.raises(
            ParameterError, match=f"{field} = {least - 1}: must be at least {least}"
        ):
            emergence_steps(p.replace(n_train=10**5, **{field: least - 1}), start)
    with pytest.raises(ParameterError, match="L = 1: must be at least 2"):
        batch_times(p.replace(L=1), start)
