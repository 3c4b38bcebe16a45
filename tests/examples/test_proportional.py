"""The proportional limit: the forms that the paper prints, its authors' number, fits against dense
linear algebra, and every law wrong by 5% (fits: 25%, as few are drawn) fails.
"""

from dataclasses import replace

import numpy as np
import pytest
from linear_attention.proportional import Parameters, equations, laws, numbers, onset
from linear_attention.proportional import fits as students

from theory import registry
from theory.parameters import ParameterError
from theory.streams import keyed
from verify.check import failed

POINTS = [
    Parameters(alpha=a, kappa=k, tau=t, rho=r)
    for a, k, t, r in ((1, 1, 5, 0.01), (7, 0.3, 0.5, 0.2), (0.4, 2, 0.9, 1.5), (30, 0.8, 1.2, 0))
]


def stieltjes(x, kappa):
    """As printed."""
    a = x + 1 - 1 / kappa
    return 2 / (a + np.sqrt(a**2 + 4 * x / kappa))


def printed(p):
    """Result 3 of Lu et al. (IDG, ICL without a ridge), in its own symbols."""
    x = (1 + p.rho) / p.alpha
    m, mu = stieltjes(x, p.kappa), x * stieltjes(x, p.kappa / p.tau)
    tau, rho, kappa = p.tau, p.rho, p.kappa
    if tau > 1:
        k = 1 / (1 - kappa * (m / (kappa + m)) ** 2)
        first = (k - 1 / (tau - 1)) * (1 + x) * (x * m) ** 2 + (3 - 2 * tau) / (tau - 1) * x**2 * m
        rest = ((1 + rho) / (tau - 1) * m + 1) * x + rho * m / (tau - 1) + rho
        return tau * (rho + x * (1 - x * m)) / (tau - 1), first + rest
    inner = 1 - tau * (1 - mu) ** 2 - (x - rho) / x * mu
    q = (1 - tau) * x / (tau * mu)
    c = 1 / (1 - kappa / (1 + kappa * q / (1 - tau)) ** 2)
    bracket = (rho + x - 2 * x * (1 - tau) * (x / q + 1)) / (1 - tau - c * (1 - tau) ** 2)
    new = tau * (1 + x) / (1 - tau) * inner - 2 * tau * (1 - mu) + rho + 1
    return tau * ((x + q) ** 2 / q + bracket), new


@pytest.mark.parametrize("p", POINTS)
def test_printed_forms(p):
    """Both errors at points on either side of tau = 1, and the forms without xi above it."""
    trained, new = printed(p)
    assert numbers.error_trained(p) == pytest.approx(trained, rel=1e-11)
    assert numbers.error_new(p) == pytest.approx(new, rel=1e-11)
    if p.tau > 1:
        known = p.values()
        assert equations()["trained_above"].evaluate(known) == pytest.approx(trained, rel=1e-11)
        assert equations()["new_above"].evaluate(known) == pytest.approx(new, rel=1e-11)


def test_a_small_ridge_is_none():
    """The root of the effective ridge goes to that without a ridge; a large one silences the
    attention.
    """
    for p in POINTS:
        assert numbers.error_new(p, ridge=1e-9) == pytest.approx(numbers.error_new(p), rel=1e-5)
        assert numbers.error_new(p, ridge=1e3) == pytest.approx(1 + p.rho, rel=1e-2)


def test_outside_number():
    """The point named beside the authors' code."""
    assert numbers.error_new(Parameters()) == pytest.approx(0.792, abs=5e-4)


@pytest.mark.parametrize(("tau", "ridge"), [(0.5, 0.0), (2.0, 0.0), (1.0, 0.2)])
def test_fits_are_those_of_linear_algebra(tau, ridge, monkeypatch):
    """Weights by a pseudoinverse, or from the normal equations, of features written out."""
    p, seen = Parameters(d=6, tau=tau, ridge=ridge, rho=0.3), {}
    solve = students.scipy.sparse.linalg.lsqr

    def keep(features, y, damp, **more):
        seen.update(X=features @ np.eye(p.d**2), y=y)
        return solve(features, y, damp, **more)

    monkeypatch.setattr(students.scipy.sparse.linalg, "lsqr", keep)
    found = students.fit(p, 3)
    X, y = seen["X"], seen["y"]
    pool = students.tasks(p, keyed(3, 0))
    square = X.T @ X + len(y) / p.d * ridge * np.eye(p.d**2)
    weight = np.linalg.solve(square, X.T @ y) if ridge else np.linalg.pinv(X) @ y
    expected = students.errors(p, weight.reshape(p.d, p.d), pool)
    assert found == pytest.approx(expected, rel=1e-5)


def test_errors_are_those_on_prompts():
    """Of any weights, on drawn prompts of a pool and of new tasks: z < 4."""
    p, rng, n = Parameters(d=5, alpha=2.0, rho=0.4), np.random.default_rng(0), 40_000
    pool, weight = students.tasks(p, rng), 0.3 * np.eye(5) + 0.2 * rng.normal(size=(5, 5))
    for w, expected in zip(
        (pool[rng.integers(5, size=n)], rng.normal(size=(n, 5))),
        students.errors(p, weight, pool),
        strict=True,
    ):
        x = rng.normal(size=(n, 11, 5)) / 5**0.5
        y = np.einsum("snd,sd->sn", x, w) + p.rho**0.5 * rng.normal(size=(n, 11))
        beta = np.einsum("sn,snd->sd", y[:, :-1], x[:, :-1]) / 2
        off = (y[:, -1] - np.einsum("sd,de,se->s", x[:, -1], weight, beta)) ** 2
        assert abs(off.mean() - expected) < 4 * off.std() / n**0.5 < 0.1 * expected


LAWS = {
    laws.spectrum: ("mp_transform", "mp_slope"),
    laws.limits: ("error_peak", "transition"),
    laws.pools: ("new_unlimited",),
}


@pytest.mark.parametrize("group", LAWS)
def test_a_fault_in_a_law_is_caught(group):
    """By a row that cites the equation; right, none fails."""
    table = equations()
    rows = group(table)
    assert not failed(rows) and {c.verdict for c in rows} == {"agrees"}
    for name in LAWS[group]:
        faulty = table | {name: replace(table[name], rhs=1.05 * table[name].rhs)}
        assert failed([c for c in group(faulty) if c.equation == name]), name


SOME = Parameters(tau=1.0, ridge=0.5, rho=0.1, d=12, draws=24)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [({"few draws": SOME}, 1.25), pytest.param(laws.SETTINGS, 1.06, marks=pytest.mark.slow)],
)
def test_fits_see_a_wrong_error(settings, fault, monkeypatch):
    """Both errors."""
    made, kept = laws.at_infinity, {}
    monkeypatch.setattr(laws, "SETTINGS", settings)
    monkeypatch.setattr(
        laws, "at_infinity", lambda p, by: kept[p] if p in kept else kept.setdefault(p, made(p, by))
    )
    table = equations()
    assert not failed(laws.fits(table))
    for name in ("error_trained", "error_new"):
        faulty = table | {name: replace(table[name], rhs=fault * table[name].rhs)}
        rows = [c for c in laws.fits(faulty) if c.equation == name]
        assert all(not c.within for c in rows), name


def test_the_command_finds_it():
    """Its own checks, numbers and onset; beside the family, whose equations lack its symbols."""
    model = registry.find("linear_attention.proportional")
    assert model.checks == ("laws",) and not model.wing("theory").flows()
    found = model.wing("theory", "onset").onset(Parameters())
    assert found.numbers["error_new"] > found.numbers["error_unlimited"] > 0.01
    assert "error_new" not in registry.find("linear_attention").wing("theory").equations()


def test_what_is_refused():
    """In one line: the peak without a ridge, and a time."""
    for call in (
        lambda: numbers.error_new(Parameters(tau=1.0)),
        lambda: onset.onset(Parameters(), 3.0),
        lambda: Parameters(alpha=0.0),
    ):
        with pytest.raises(ParameterError) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert numbers.error_new(Parameters(tau=1.0, ridge=0.1)) > 0
