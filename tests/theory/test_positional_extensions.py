"""Theory of correlated tokens, trained values, two columns of queries and two heads: reductions,
and direct sums over what it averages.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.special
import sympy as sp
import xarray as xr

from theory import positional_semantic as ps
from theory.parameters import ParameterError
from theory.positional_semantic import Parameters, definitions, extensions, general, state_evolution
from theory.positional_semantic import solve as plain
from theory.positional_semantic import symbols as s
from theory.positional_semantic.extensions import layer

BOTH = Parameters(alpha=2.0, start="semantic", correlation=0.3, value=True)
VALUES = layer.Values(0.8, 0.9, 0.6)


def gram(c):
    """Correlations of two tokens, and their square root."""
    C = np.array([[1, c], [c, 1]])
    size, axes = np.linalg.eigh(C)
    return C, axes * np.sqrt(size) @ axes.T


def matrices(upper, lower):
    """Row-stochastic 2 x 2 matrices from their entries (1,2) and (2,1)."""
    rows = [np.stack([1 - upper, upper], -1), np.stack([lower, 1 - lower], -1)]
    return np.stack(rows, -2)


@pytest.mark.parametrize("rank", [1, 2])
def test_loss_and_its_derivatives(rank):
    """Softmax of the scores and inverse matrices written out; central differences."""
    p = BOTH.replace(rank=rank)
    random = np.random.default_rng(rank)
    z, Y = random.normal(size=(40, 2 * rank)), random.uniform(size=(40, 2))
    loss = layer.extended(p, 2).loss
    value, first, second = loss(z, Y, np.array(VALUES))
    C, root = gram(p.correlation)
    h = root @ z.reshape(40, 2, rank)
    S, T = scipy.special.softmax(h @ h.transpose(0, 2, 1), -1), matrices(*Y.T)
    mixed = S @ C @ T.transpose(0, 2, 1)
    K = S @ C @ S.transpose(0, 2, 1)
    M = p.sigma**2 * (T @ C @ T.transpose(0, 2, 1) + VALUES.q_W * K)
    M -= p.sigma**2 * VALUES.theta_W * (mixed + mixed.transpose(0, 2, 1))
    direct = np.trace(np.linalg.inv(np.eye(2) + VALUES.V_W * K) @ M, axis1=1, axis2=2) / 2
    np.testing.assert_allclose(value, direct, rtol=1e-12)  # rounding
    for k, shift in enumerate(1e-5 * np.eye(2 * rank)):
        (up, slope, _), (down, other, _) = (
            loss(z + e, Y, np.array(VALUES)) for e in (shift, -shift)
        )
        np.testing.assert_allclose(first[:, k], (up - down) / 2e-5, atol=1e-9)
        np.testing.assert_allclose(second[:, k], (slope - other) / 2e-5, atol=1e-9)


def test_heads_are_averaged():
    """Attention is the mean of softmax matrices, as the equations say; equal heads are one."""
    p = BOTH.replace(rank=2, heads=True, start="mixed", correlation=0.0)
    z = np.random.default_rng(1).normal(size=(30, 2, 2))
    S = scipy.special.softmax(np.einsum("nak,nbk->knab", z, z), -1).mean(0)
    found = layer.extended(p, 2).attention(z)
    np.testing.assert_allclose(found, [S[:, 0, 1], S[:, 1, 0]], rtol=1e-12)
    names = {str(layer.HEADS[i, k]): z[:, i, k] for i in (0, 1) for k in (0, 1)}
    for form, x in zip(("heads_S_12", "heads_S_21"), found, strict=True):
        np.testing.assert_allclose(layer.equations()[form].evaluate(names), x, rtol=1e-12)
    one = layer.extended(BOTH.replace(correlation=0.0), 2).attention(z[:, :, :1])
    both = layer.extended(p, 2).attention(np.repeat(z[:, :, :1], 2, 2))
    np.testing.assert_allclose(both, one, rtol=1e-12)


@pytest.mark.parametrize(("rank", "heads", "k"), [(1, False, 1), (2, True, 2)])
def test_loss_of_labels(rank, heads, k):
    """Half of |Y - S v|^2 written out; central differences; the least over the values' fields is
    the loss that a full value matrix has, with residuals of this sentence.
    """
    c, n, spread = 0.3, 40, 0.7
    p = Parameters(
        alpha=2.0,
        rank=rank,
        heads=heads,
        value_rank=k,
        correlation=c,
        start="mixed" if heads else "semantic",
    )
    random = np.random.default_rng(k)
    z, Y = random.normal(size=(n, 2 * (rank + k))), random.normal(size=(n, 2, k))
    system = layer.extended(p, 2)
    value, first, second = system.loss(z, Y, np.zeros(3))
    C, root = gram(c)
    fields = z.reshape(n, 2, rank + k)
    S = matrices(*system.attention(fields))
    v = root @ fields[..., rank:]
    np.testing.assert_allclose(value, ((Y - S @ v) ** 2).sum((1, 2)) / 2, rtol=1e-12)
    form = layer.equations()["labels_loss"]
    given = {"S_12": S[:, 0, 1], "S_21": S[:, 1, 0]}
    one = [
        form.evaluate(
            given | {f"{x}_{i + 1}": a[:, i, col] for x, a in (("v", v), ("y", Y)) for i in (0, 1)}
        )
        for col in range(k)
    ]
    np.testing.assert_allclose(value, np.sum(one, 0), rtol=1e-12)
    for i, shift in enumerate(1e-5 * np.eye(z.shape[1])):
        (up, slope, _), (down, other, _) = (
            system.loss(z + e, Y, np.zeros(3)) for e in (shift, -shift)
        )
        np.testing.assert_allclose(first[:, i], (up - down) / 2e-5, atol=1e-8)
        np.testing.assert_allclose(second[:, i], (slope - other) / 2e-5, atol=1e-8)
    # w + (V C)^(-1) in closed form: a quadratic problem per sentence and column.
    w = random.normal(size=(n, 2, k))
    inner = np.linalg.inv(spread * C) + S.transpose(0, 2, 1) @ S
    best = np.linalg.solve(inner, np.linalg.inv(spread * C) @ w + S.transpose(0, 2, 1) @ Y)
    away = np.einsum("nac,ab,nbc->n", best - w, np.linalg.inv(spread * C), best - w)
    least = (away + ((Y - S @ best) ** 2).sum((1, 2))) / 2
    r = Y - S @ w
    M, K = r @ r.transpose(0, 2, 1), S @ C @ S.transpose(0, 2, 1)
    names = {
        f"{x}_{i + 1}{j + 1}": a[:, i, j]
        for x, a in (("K", K), ("M", M))
        for i, j in ((0, 0), (0, 1), (1, 1))
    }
    wanted = layer.equations()["values_loss"].evaluate(names | {"V_W": spread})
    np.testing.assert_allclose(least, wanted, rtol=1e-10)


def test_low_rank_values_of_known_attention_are_a_regression():
    """One step of the values' order parameters: the fields of V and V* have the covariance and the
    conjugates that 40000 sentences drawn from their definition have, 3%.
    """
    p = Parameters(alpha=2.0, start="semantic", value_rank=1)
    system = layer.extended(p, 4096)
    x, _ = extensions.starting(system)
    hats, *_, test = layer.output_channel(system, x, layer.Values())
    assert abs(hats["theta"][:, 0, 1, 0]).max() < 0.05 * hats["theta"][0, 0, 1, 1]
    random, n = np.random.default_rng(0), 40000
    q, theta, rho = x.q[0, 0], x.theta[0, 0], p.sigma**2 * np.eye(2)
    joint = np.block([[q, theta], [theta.T, rho]])
    drawn = random.multivariate_normal(np.zeros(4), joint, (n, 2))
    w, h = drawn[..., :2], drawn[..., 2:]
    T = (1 - p.omega) * scipy.special.softmax(
        h[..., :1] @ h[..., :1].transpose(0, 2, 1), -1
    ) + p.omega * p.A
    S = scipy.special.softmax(w[..., :1] @ w[..., :1].transpose(0, 2, 1), -1)
    gap = T @ h[..., 1:] - S @ w[..., 1:]
    assert test == pytest.approx((gap**2).sum((1, 2)).mean() / 2, rel=0.03)


def test_without_extensions_equations_are_those_of_the_figures():
    """No correlation, and the identity for values: loss and order parameters of (7) and (15)."""
    eq = layer.equations()
    none = {layer.c: 0}
    curvature = {s.D: s.lam + s.sigma**2 * s.V_hat}
    for x in (s.q, s.m):
        form = eq[f"correlated_{x.name}"].rhs.subs(none).subs(curvature)
        assert sp.simplify(form - state_evolution.equations()[x.name].rhs) == 0
    given = {x: sp.Symbol(x.name, real=True) for x in (layer.S_12, layer.S_21)}
    short = {x: eq[x.name].rhs for x in (*layer.K.values(), *layer.M.values())}
    fixed = dict(zip(layer.SLOPES, layer.Values(), strict=True))
    loss = eq["values_loss"].rhs.subs(short).subs({**none, **fixed})
    gaps = (s.Y_12 - layer.S_12) ** 2 + (s.Y_21 - layer.S_21) ** 2
    assert sp.simplify((loss - s.sigma**2 * gaps).subs(given)) == 0
    entries = dict(
        zip((layer.S_12, layer.S_21), definitions.off_diagonal(s.z_1, s.z_2), strict=True)
    )
    wanted = definitions.equations()["sentence_loss"].rhs
    assert sp.simplify((s.sigma**2 * gaps).subs(entries) - wanted) == 0


def test_without_extensions_numbers_are_those_of_the_figures():
    """Sums over 512 points against the split quadrature: 1.5%."""
    p = Parameters(alpha=2.0, prox="local", order=12)
    found, exact = extensions.solve(p, points=512).summary(), plain(p, "semantic").summary()
    assert found["m"] == 0
    for x in ("q", "theta", "train_loss", "test_mse_half"):
        assert found[x] == pytest.approx(exact[x], rel=0.015)


def test_one_step_is_the_printed_one():
    """From conjugates to order parameters by the equations of a layer of rank one."""
    p = BOTH.replace(start="positional", value=False)
    system = layer.extended(p, 64)
    x, values = extensions.starting(system)
    new, _, point = extensions.step(system, x, values)
    hats = {k: v.sum((0, 1)).squeeze() for k, v in point.hats.items()}
    difference = point.hats["m"][0, 0, 0] - point.hats["m"][1, 0, 0]
    given = p.values() | {"correlation": p.correlation, "m_hat": difference}
    given |= {"q_hat": hats["q"], "theta_hat": 0.0, "D": p.lam + p.sigma**2 * hats["V"]}
    eq = layer.equations()
    assert new.q[0, 0, 0, 0] == pytest.approx(eq["correlated_q"].evaluate(given), rel=1e-12)
    m = new.m[0, 0, 0] * np.sqrt(1 - p.correlation)
    assert m == pytest.approx(eq["correlated_m"].evaluate(given), rel=1e-12)
    assert new.m[1] == pytest.approx(-new.m[0], rel=1e-12)


def test_channel_draws_the_fields_of_correlated_tokens():
    """Test error of given order parameters, against fields drawn from their joint covariance C
    times (q, theta; theta, rho): 2%, four standard errors of 160000 sentences.
    """
    p = BOTH.replace(start="positional", value=False)
    q, m, theta = 0.1, 0.2, 0.1
    ones = np.ones((2, 1, 1, 1))
    mean = np.array([1.0, -1.0])[:, None, None] * m / np.sqrt(1 - p.correlation)
    order = general.Order(q * ones, mean, 12.0 * ones, theta * ones)
    system = layer.extended(p, 4096)
    *_, found = layer.output_channel(system, order, layer.Values())
    C, _ = gram(p.correlation)
    covariance = np.kron(np.array([[q, theta], [theta, p.sigma**2]]), C)
    drawn = np.random.default_rng(0).multivariate_normal([m, -m, 0, 0], covariance, 160000)
    w, h = drawn[:, :2, None], drawn[:, 2:, None]
    T = (1 - p.omega) * scipy.special.softmax(h @ h.transpose(0, 2, 1), -1) + p.omega * p.A
    gap = T - scipy.special.softmax(w @ w.transpose(0, 2, 1), -1)
    errors = p.sigma**2 * np.einsum("nab,bc,nac->n", gap, C, gap) / 2
    four = 4 * errors.std() / 400
    assert four < 0.02 * errors.mean() and found == pytest.approx(errors.mean(), abs=four)


def test_values_are_those_of_a_ridge_regression():
    """At given attention W is a linear regression: overlap, norm and loss of the exact one at
    d = 160 with random attention and targets, within 2%, of correlated tokens.
    """
    c, d, alpha, lam, sigma = 0.4, 160, 1.5, 0.05, 0.5
    n = int(alpha * d)
    random = np.random.default_rng(3)
    entries = random.uniform(size=(4, n))
    S, T = matrices(*entries[:2]), matrices(*entries[2:])
    x = sigma * gram(c)[1] @ random.normal(size=(n, 2, d))
    Z, y = (S @ x).reshape(-1, d), (T @ x).reshape(-1, d)
    W = np.linalg.solve(lam * np.eye(d) + Z.T @ Z / d, Z.T @ y / d)
    risk = ((y - Z @ W) ** 2).sum() / (2 * d * d) + lam / 2 * (W**2).sum() / d
    slopes, out, into = layer.compiled()
    values = layer.Values(0.5, 0.5, 0.5)
    for _ in range(300):
        means = [np.mean(v) for v in slopes(*entries, sigma, c, *values)]
        hats = out(alpha, sigma, *means)
        values = layer.Values(*(0.5 * np.array(values) + 0.5 * np.array(into(lam, sigma, *hats))))
    assert values.theta_W == pytest.approx(W.trace() / d, rel=0.02)
    assert values.q_W == pytest.approx((W**2).sum() / d, rel=0.02)
    loss = alpha * layer.loss_of_tokens(0)(entries[:2].T, *entries[2:], sigma, c, *values)[0].mean()
    loss += -hats[0] * values.V_W / 2 + lam / 2 * values.q_W
    assert loss == pytest.approx(risk, rel=0.02)
    assert abs(values.theta_W - 1) > 0.2  # far from the identity


@pytest.mark.slow
def test_the_loss_grows_with_the_mean_envelope():
    """d(loss)/d(alpha) along a branch, by differences, for both extensions at once: 1.5%, as sums
    over points keep the identity only as far as they integrate by parts.
    """
    at = [extensions.solve(BOTH.replace(alpha=a), points=1024) for a in (1.9, 2.0, 2.1)]
    slope = (at[2].train_loss - at[0].train_loss) / 0.2
    assert slope == pytest.approx(at[1].envelope, rel=0.015)


@pytest.mark.slow
def test_correlation_moves_the_transition():
    """alpha_c without correlation is that of the split quadrature, 1.238 (1.5%); c = 0.2 moves it
    up by the factor 1.58, between 1.30 and 1.76, which students had.
    """
    one, other = (extensions.critical(Parameters(correlation=c), points=1024) for c in (0.0, 0.2))
    assert one == pytest.approx(1.238, rel=0.015)
    assert other / one == pytest.approx(1.58, abs=0.03)


def test_the_crossing_is_where_the_losses_of_solved_branches_cross():
    """Their gap, on the same Sobol points from the usual starts, changes its sign within a tenth of
    the largest last step: Newton's slope is good to a tenth on so few points.
    """
    p = Parameters(correlation=0.1)
    found = extensions.critical(p, points=128)

    def gap(alpha):
        positional, semantic = (
            extensions.solve(p.replace(alpha=alpha, start=branch), points=128).train_loss
            for branch in ("positional", "semantic")
        )
        return positional - semantic

    assert gap(found - 1e-3) < 0 < gap(found + 1e-3)


def test_two_columns_take_one_overlap_each():
    """From any informed start: column 1 the teacher, column 2 the positions, exactly."""
    p = Parameters(alpha=2.0, rank=2)
    for start in ("semantic", "positional", "mixed"):
        x, _ = extensions.starting(layer.extended(p.replace(start=start), 64))
        assert x.theta[0, 0, 1, 0] == 0 == x.m[0, 0, 0]
        assert x.theta[0, 0, 0, 0] > 0 < x.m[0, 0, 1] == -x.m[1, 0, 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"tied": False}, "tied = False: must be True"),
        ({"correlation": 1.0}, "correlation = 1.0: must be between -1 and 1"),
        ({"start": "random"}, "start = 'random': must be positional or semantic or mixed"),
        ({"polish": False}, "polish = False: must be True"),
        ({"alpha": None}, "alpha = None: must be > 0"),
        ({"rank": 2, "heads": True}, "start = 'semantic': must be mixed where columns are heads"),
    ],
)
def test_what_is_not_described_is_refused(words, message):
    """One line, naming field, value and what is allowed."""
    for function in (extensions.solve, extensions.predict):
        with pytest.raises(ParameterError, match=message):
            function(Parameters(alpha=2.0).replace(**words), points=64)


def test_two_columns_have_no_crossing():
    """Their minimum has both overlaps."""
    with pytest.raises(ParameterError, match="rank = 2: must be 1 for alpha_c"):
        extensions.critical(Parameters(rank=2))


def test_points_are_a_power_of_two():
    """As Sobol sequences need it."""
    with pytest.raises(ParameterError, match="points = 100: must be a power of two"):
        extensions.solve(Parameters(alpha=2.0), points=100)


def test_predict_sweeps_and_checks_runs():
    """Arrays of fields, and students with other parameters."""
    p = Parameters(alpha=3.0)
    found = extensions.predict(p, correlation=[-0.3, 0.3], points=64)
    assert found["theta"].shape == (2,) and found["q"][0] > found["q"][1] > 0


def test_a_branch_that_does_not_exist_is_not_predicted():
    """A target of positions alone has no semantic minimum."""
    found = extensions.predict(Parameters(alpha=2.0, omega=1.0), points=64)
    assert all(np.isnan(x) for x in found.values())


@pytest.mark.parametrize(
    "words", [{"start": "positional"}, {"rank": 2}, {"value": True}, {"value_rank": 1}]
)
def test_a_solution_of_another_branch_or_layer_is_no_start(words):
    """Descent would stay on that branch, or have columns too few."""
    near = extensions.solve(Parameters(alpha=2.0), points=64)
    name = next(iter(words))
    with pytest.raises(ParameterError, match=f"near: is for another {name}; must have"):
        extensions.solve(Parameters(alpha=2.0, **words), near, points=64)


def test_a_solution_with_two_columns_is_no_start_of_two_heads():
    """Which layer a point belongs to is read from its parameters."""
    columns = Parameters(alpha=2.0, rank=2, start="mixed")
    near = extensions.solve(Parameters(alpha=2.0), points=64)
    with pytest.raises(ParameterError, match="near: is for another heads; must have heads = True"):
        extensions.solve(columns.replace(heads=True), replace(near, p=columns), points=64)


def test_students_swept_over_alpha_have_one_prediction_each():
    """Those at single sample complexities, along the dimension of the runs."""
    p = Parameters(correlation=0.2, d=40)
    alphas = [1.5, 2.0]
    runs = xr.Dataset(
        {"theta": (("alpha", "seed"), np.zeros((2, 1)))},
        {"alpha": alphas, "seed": [0]},
        attrs={"kind": "students", "parameters": p.as_json(training_only=True)},
    )
    found = extensions.predict(p, runs, points=64)
    assert found.alpha.values.tolist() == alphas
    for alpha in alphas:
        one = extensions.predict(p.replace(alpha=alpha), points=64)
        xr.testing.assert_allclose(found.sel(alpha=alpha, drop=True), one, rtol=1e-12)


@pytest.mark.parametrize(
    "words",
    [
        {"optimizer": "adam", "eta": 0.2},
        {"optimizer": "adam", "eta": 0.1, "sigma": 0.6},
        {"eta": 2.1},
        {"eta": 0.51, "sigma": 1.0},
        {"sigma": 2.0},
    ],
)
def test_steps_that_leave_the_well_are_refused(words):
    """A minimum other than that of the initial well is not predicted."""
    p = Parameters(alpha=2.0)
    for function in (ps.predict, extensions.predict):
        with pytest.raises(ParameterError, match=r"eta = .*: must be at most 0.5 / max\(sigma"):
            function(p.replace(**words))


def test_the_longest_steps_are_answered():
    """Just below what is refused."""
    for longest in ({"optimizer": "adam", "eta": 0.1}, {"eta": 2.0}):
        assert ps.predict(Parameters(alpha=2.0).replace(**longest)).theta > 0.1
