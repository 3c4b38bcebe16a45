"""A committee of hidden units: its flow against the engine and drawn fields, published forms,
laws wrong by 5%, and a few students.
"""

from dataclasses import replace

import committee
import numpy as np
import pytest
import scipy.special
import sympy as sp
from committee import simulate
from committee.theory import Parameters, equations, flow, onset
from committee.theory import dynamics as d
from committee.verify import laws

from theory.parameters import ParameterError
from theory.statement.overlaps import Overlaps
from verify.check import failed

AT = {d.R: 0.4, d.S: 0.13, d.Q: 0.5, d.C: 0.2, d.K: 3}


def number(expr):
    """At the point above, without label noise."""
    return float(expr.subs({**AT, d.sigma: 0}))


def gram(K=3):
    """Covariance of the fields of students and teachers there."""
    same, one = np.eye(K), np.ones((K, K))
    own = AT[d.C] * one + (AT[d.Q] - AT[d.C]) * same
    to = AT[d.S] * one + (AT[d.R] - AT[d.S]) * same
    return np.block([[own, to], [to.T, same]])


def test_rates_are_the_engines():
    """Loss and rates to first order in eta, of every overlap of three units."""
    made = Overlaps(3, 3)
    loss, every = made.squared_loss("erf"), gram()
    values = {
        made.overlap(x, y): every[i, j]
        for i, x in enumerate(made.units)
        for j, y in enumerate(made.units)
    }
    assert float(loss.subs(values)) == pytest.approx(number(d.loss()), rel=1e-12)
    found = {x: float(r.subs(values)) for x, r in made.rates(loss).items()}
    for x, rate in found.items():
        same = x.name[2] == x.name[3]
        own = {"R": (d.R, d.S), "Q": (d.Q, d.C)}[x.name[0]][not same]
        assert rate == pytest.approx(number(d.drift()[own]), rel=1e-12)


def test_noise_of_examples():
    """Means of delta_i delta_k on drawn fields: z < 4, at a resolution of 1%."""
    fields = np.random.default_rng(0).multivariate_normal(np.zeros(6), gram(), size=400_000)
    out = scipy.special.erf(fields / 2**0.5)
    error = out[:, 3:].sum(1) - out[:, :3].sum(1)
    delta = (2 / np.pi) ** 0.5 * np.exp(-(fields[:, :3] ** 2) / 2) * error[:, None]
    for k in (0, 1):
        each, told = delta[:, 0] * delta[:, k], number(d.noise(1, k + 1))
        assert abs(each.mean() - told) < 4 * each.std() / len(each) ** 0.5 < 0.01 * told


def test_published_forms():
    """Plateau, its error, escape rate, noise."""
    K, known = d.K, equations()
    forms = {
        "plateau_R": 1 / sp.sqrt(K * (2 * K - 1)),
        "plateau_Q": 1 / (2 * K - 1),
        "plateau_error": K / sp.pi * (sp.pi / 6 - K * sp.asin(1 / (2 * K))),
        "escape_rate": 2
        * d.eta
        * K
        / (sp.pi * sp.sqrt(2 * K - 1) * (2 * K + 1) ** sp.Rational(3, 2)),
        "error_noise": d.eta * d.sigma**2 * K / (2 * sp.sqrt(3) * sp.pi),
    }
    for name, form in forms.items():
        for size in (2, 3, 7):
            at = {K: size, d.eta: 0.3, d.sigma: 0.7}
            assert float(known[name].rhs.subs(at)) == pytest.approx(float(form.subs(at)), rel=1e-12)


@pytest.mark.slow
def test_largest_learning_rate():
    """For many units; below that for few."""
    of = lambda k: float(equations()["eta_max"].rhs.subs(d.K, k)) * k / (3**0.5 * np.pi)  # noqa: E731
    few, more, many = map(of, (2, 100, 10**4))
    assert few < more < many < 1
    assert many == pytest.approx(1, abs=1e-4)


LAWS = {
    laws.laws: ("plateau_error", "escape_rate", "plateau_R", "plateau_Q", "error_noise"),
    laws.stability: ("eta_max",),
}


@pytest.mark.slow
@pytest.mark.parametrize("group", LAWS)
def test_a_fault_in_a_law_is_caught(group, monkeypatch):
    """By a row that cites it: 5% (10% for the learning rate, which brackets by 5%)."""
    solve, kept = type(flow()).solve, {}

    def once(self, p, **more):
        key = p, str(more)
        return kept[key] if key in kept else kept.setdefault(key, solve(self, p, **more))

    monkeypatch.setattr(type(flow()), "solve", once)
    table = equations()
    assert not failed(group(table))
    for name in LAWS[group]:
        share = 1.1 if name == "eta_max" else 1.05
        faulty = table | {name: replace(table[name], rhs=share * table[name].rhs)}
        assert failed([c for c in group(faulty) if c.equation == name]), name


@pytest.mark.parametrize(
    ("many", "seeds"),
    [(range(6), range(0)), pytest.param(range(128), range(32), marks=pytest.mark.slow)],
)
def test_students(many, seeds, monkeypatch):
    """Overlaps of students; few cannot be off by much, many agree."""
    monkeypatch.setattr(laws, "MANY", many)
    monkeypatch.setattr(laws, "SEEDS", seeds)
    rows = laws.overlaps(equations()) + (laws.specialisation(equations()) if seeds else [])
    assert not failed(rows)
    if seeds:
        assert {c.verdict for c in rows} == {"agrees"}
    off = laws.EARLY.replace(eta=1.3 * laws.EARLY.eta)
    curve = flow().solve(off, at=[laws.TIME], alpha=laws.TIME)
    seen = [c for c in rows if c.name.startswith("R of")][0]
    assert abs(float(curve.R[-1]) - seen.measured) > 4 * seen.standard_error


def test_starts_and_measures():
    """Overlaps of the parameters, and their error, which the flow has, too."""
    p = Parameters(K=4, N=60, R_0=0.2, S_0=0.1, Q_0=0.4, C_0=0.05)
    found = simulate.Student(p, 0, None, None).measure()
    for name in "RSQC":
        assert found[name] == pytest.approx(getattr(p, f"{name}_0"), abs=1e-14)
    assert found["loss"] == pytest.approx(
        float(flow().solve(p, at=[0.0], alpha=1e-3).loss[0]), rel=1e-12
    )


def test_onset_and_scope():
    """The plateau lengthens as its rate tells; few dimensions are refused in one line."""
    p = Parameters(K=2, eta=0.3, R_0=0.01)
    first, second = (onset(p.replace(R_0=x)).numbers for x in (1e-3, 1e-4))
    told = np.log(10) / first["escape_rate"]
    assert second["alpha_half"] - first["alpha_half"] == pytest.approx(told, rel=0.15)  # eta
    with pytest.raises(ParameterError, match="^N = 20") as caught:
        onset(p.replace(N=20))
    assert "\n" not in str(caught.value)
    with pytest.raises(ParameterError, match="^Q_0"):
        Parameters(R_0=0.9)
    assert committee.MODEL.wing("theory").flows()["committee"].status == "exact"


def test_a_start_without_a_difference_never_specialises():
    """Rounding, blown up on the plateau, made it a time before; too large a rate is named."""
    found = onset(Parameters(K=2, R_0=0.02, S_0=0.02))
    assert np.isnan(found.numbers["alpha_half"]) and "stays symmetric" in found.notes[-1]
    assert "above eta_max" in onset(Parameters(K=2, eta=3.0)).notes[-1]
