"""Rows test the measured students: deviations in either direction fail, standard errors
agree with simulations, no sample is counted twice.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from theory.associative_memory import factual_recall as recall
from theory.associative_memory.factual_recall import timescales
from theory.models.registry import find
from theory.positional_semantic import Parameters as Sentences
from theory.state_tracking import Parameters as Tracking
from verify import trajectories
from verify.associative_memory import factual_recall as recalling
from verify.associative_memory import gradient_steps, superposition, trigger_task
from verify.associative_memory import noisy_bigram as noisy
from verify.checks.check import sampled
from verify.checks.report import Request
from verify.checks.verdict import MANY, Shape, normal_z, path, skewness
from verify.induction_heads import timescales as heads
from verify.induction_heads.all_weights import all_weights_equations
from verify.positional_semantic import extensions, minima, thresholds
from verify.state_tracking import trajectories as tracking

# module, what measures, how it is off, rows that must see it, and how many there are
OFF = {
    "value memory": (
        noisy,
        "one_step",
        lambda found: {**found, "value": 1.3 * found["value"]},
        lambda: [c for c in noisy.value_memory() if c.name.startswith("value")],
        6,
    ),
    "feed-forward path": (
        noisy,
        "one_step",
        lambda found: {
            **found,
            "feed_forward": found["feed_forward"] * (np.arange(4000) % 5 > 0),
        },
        lambda: [c for c in noisy.feed_forward() if c.name.startswith("feed")],
        2,
    ),
    "limit of the value memory": (
        noisy,
        "value_recovered",
        lambda found: 1.05 * found,
        lambda: [c for c in noisy.value_memory() if "against the limit" in c.name],
        2,
    ),
    "half load": (
        superposition,
        "_half_load",
        lambda found: 1.5 * found,
        lambda: superposition.capacity_checks()[1:],
        1,
    ),
    "recall": (
        superposition,
        "recall",
        lambda found: {**found, "accuracy": 0.65 * found["accuracy"]},
        lambda: superposition.accuracy_checks()[:-1],
        4,
    ),
}


@pytest.mark.parametrize("name", OFF)
def test_what_is_measured_off_fails(name, monkeypatch):
    """Rows agree as it is, and fail where what is measured is off: the prediction
    stays.
    """
    module, measured, off, rows, count = OFF[name]
    monkeypatch.setattr(superposition, "RECALL", superposition.RECALL[:2])
    right = getattr(module, measured)
    known = {}  # what is measured once is off twice

    def once(*given, **more):
        key = repr((given, more))
        if key not in known:
            known[key] = right(*given, **more)
        return known[key]

    monkeypatch.setattr(module, measured, once)
    assert len(found := rows()) == count and all(c.within for c in found), found
    monkeypatch.setattr(
        module, measured, lambda *given, **more: off(once(*given, **more))
    )
    assert not any(c.within for c in rows())


@pytest.mark.parametrize("sign", [1, -1])
def test_drift_of_what_is_conserved_fails_either_way(sign):
    """A tenth over 100 epochs."""
    zeta = xr.DataArray(
        [[0.0, 0.05, 0.1]], dims=("seed", "alpha"), coords={"alpha": [0.0, 1.0, 2.0]}
    )
    runs = xr.Dataset({"zeta": sign * zeta, "epoch": ("alpha", [0, 50, 100])})
    assert not tracking.conserved(runs).within
    assert tracking.conserved(runs.assign(zeta=0 * zeta)).within


@pytest.mark.parametrize(
    ("positional", "semantic", "within"), [(50, 4, True), (4, 50, False)]
)
def test_more_ends_in_the_other_minimum_fail(positional, semantic, within, monkeypatch):
    """The statement has a direction."""
    ends = [np.arange(60) < n for n in (positional, semantic, 6)]
    monkeypatch.setattr(
        extensions, "ends", lambda omega, **more: dict(zip("abc", ends, strict=True))
    )
    assert extensions.adam()[-1].within is within


def test_the_plateau_is_held_to_its_height_and_students_to_the_flow():
    """Three sides, each compared with another one, where relations and answers differ
    in number.
    """
    p = recall.Parameters.small().replace(S=6, R=2, D=3)
    end = 1.3 * recall.time_of_share(p, recalling.PARTS[1], 0.1)
    curve = recall.flow().solve(p, at=np.linspace(0, end, 400), t=end)
    runs = xr.concat([curve[["loss", "loss_relation", "loss_subject"]]] * 2, "seed")
    runs = runs.assign_coords(step=("t", np.round(runs.t.values / p.eta).astype(int)))
    rows = {c.name: c for c in recalling.emergence(p, runs)[0]}
    height, flow = (rows[f"{x} half way along the plateau"] for x in ("flow", "loss"))
    assert (
        height.predicted == pytest.approx(np.log(p.D))
        and height.measured != height.predicted
    )
    assert flow.predicted == height.measured
    for part in recalling.PARTS:
        lag = p.eta * timescales.constants(p, part)["lambda_recall"]
        held = [
            c
            for c in rows.values()
            if c.name.endswith("by the flow, students") and part.name in c.name
        ]
        assert held and all(c.tolerance == max(0.01, lag) for c in held)
    times = [
        c for c in rows.values() if "integrator" in c.name or "used elsewhere" in c.name
    ]
    assert len(times) == 12 and all(c.within for c in times)


def test_all_weights_are_followed_in_the_precision_that_they_need(monkeypatch):
    """Without noise in double, with batches in single precision."""
    asked = []
    monkeypatch.setattr(
        heads, "train", lambda p, **more: asked.append((p.trained, more["dtype"]))
    )
    for trained in ("nineteen", "all"):
        heads.train_all(4, "last", trained, [0])
    assert asked == [("nineteen", "float64"), ("all", "float32")]


def test_no_seed_is_counted_twice(monkeypatch):
    """Every value behind a standard error is of a seed of its own."""
    seen = []

    def untrained(p, seed):
        seen.append((p, seed))
        return dict.fromkeys(("A", "R", "S", "zeta", "variance_correct"), float(seed))

    monkeypatch.setattr(tracking, "untrained_statistics", untrained)
    tracking.untrained(Tracking.demo())
    assert len(set(seen)) == len(seen) == tracking.UNTRAINED + 24 + 24 + 64

    seeds, once = [], functools.cache(gradient_steps.run)

    def run(p, seed=0):
        seeds.append(seed)
        return once(p.replace(samples=100), seed % 2)

    used, made = [], gradient_steps.sampled
    monkeypatch.setattr(gradient_steps, "run", run)
    monkeypatch.setattr(
        gradient_steps,
        "sampled",
        lambda *given, **more: used.append(len(given[3])) or made(*given, **more),
    )
    gradient_steps.gradient_checks()
    assert len(set(seeds)) == len(seeds) == gradient_steps.BATCHES
    assert set(used) == {gradient_steps.BATCHES}  # none is left out


def test_no_seed_of_a_threshold_is_counted_twice(monkeypatch):
    """Blocks of seeds follow each other."""
    asked = []

    def gap(name, p, centre, seeds, options):
        asked.append((name, list(seeds)))
        raise InterruptedError

    monkeypatch.setattr(thresholds, "_gap", gap)
    monkeypatch.setattr(
        thresholds,
        "thresholds",
        lambda p: SimpleNamespace(reasons=(), alpha_c=1.5, alpha_l=1.6),
    )
    with pytest.raises(InterruptedError):
        thresholds.report(Request(find("positional_semantic"), seeds="5"))
    ((name, seeds),) = asked
    assert name == "alpha_c" and seeds == list(range(5 * thresholds.BLOCKS))


@pytest.mark.parametrize(
    ("off", "within"), [((0.03, 0.02, 0.01), True), ((0.03, 0.04, 0.01), False)]
)
def test_any_growth_of_the_error_with_d_fails(off, within, monkeypatch):
    """Of three dimensions, whichever step it is."""
    settings = superposition.RECALL[:3]
    errors = iter(off)
    monkeypatch.setattr(superposition, "RECALL", settings)
    monkeypatch.setattr(
        superposition,
        "recall",
        lambda p: {
            "accuracy": (
                superposition.sphere_recall(p.N, p.d)
                + next(errors)
                + np.array([-1e-9, 1e-9])
            )
        },
    )
    assert superposition.accuracy_checks()[-1].within is within


def test_every_query_of_all_weights_is_looked_at(monkeypatch):
    """An error in one of them, the last, fails both rows."""
    right = all_weights_equations.loss_and_gradient

    def wrong(theta, size, query, mask):
        loss, slope = right(theta, size, query, mask)
        factor = 1.05 if query == "uniform" else 1.0
        return factor * loss, factor * slope

    monkeypatch.setattr(all_weights_equations, "loss_and_gradient", wrong)
    monkeypatch.setattr(all_weights_equations, "SIZES", (2,))
    assert not any(c.within for c in all_weights_equations.running_sums({}))


def test_planted_memories_are_predicted_to_be_whole(monkeypatch):
    """Whatever is measured of them."""
    right = trigger_task.Learner.measure
    monkeypatch.setattr(
        trigger_task.Learner,
        "measure",
        lambda self: {k: 0.9 * v for k, v in right(self).items()},
    )
    monkeypatch.setattr(trigger_task, "RANDOM", 2)  # of other rows
    monkeypatch.setattr(trigger_task, "by_equation", lambda *_: 0.0)
    rows = [c for c in trigger_task.memories() if c.name.startswith("probe_W")]
    assert len(rows) == 3 and not any(c.within for c in rows[:3])


DRAWS = 150  # a mean square of normal values scatters by sqrt(2 / 150) = 12%


@pytest.mark.parametrize("drawn", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_standard_errors_of_compare_are_those_of_simulation(drawn):
    """Of few seeds, about a curve that is known, or the mean of drawn ones: the squared
    error that a row states is, on average, that of its mean.
    """
    rng, seeds, t = np.random.default_rng(drawn), 3, [0.0, 1.0]
    squares, stated = [], []
    for _ in range(DRAWS):
        runs = xr.Dataset(
            {"A": (("seed", "t"), 1 + rng.normal(size=(seeds, 1)) * [1, 1])},
            {"seed": range(seeds), "t": t},
        )
        theory = 1 + rng.normal(size=(drawn, 1)) * [1, 1] if drawn else np.ones((1, 2))
        curve = xr.Dataset({"A": (("draw", "t"), theory)}, {"t": t})
        (row,) = trajectories.compare(
            curve if drawn else curve.isel(draw=0), runs
        ).checks
        squares.append((row.measured - row.predicted) ** 2)
        stated.append(row.standard_error**2)
    true = 1 / seeds + (1 / drawn if drawn else 0)
    spread = 4 * np.sqrt(2 / DRAWS)
    assert np.mean(squares) == pytest.approx(true, rel=spread)
    assert np.mean(stated) == pytest.approx(true, rel=spread)


def test_standard_error_of_message_passing_is_that_of_simulation(monkeypatch):
    """Both parts scatter: message passing less descent on the same sentences, and
    descent.
    """
    rng = np.random.default_rng(2)

    def trained(p, seeds, alpha, **options):
        names = {n for _, _, these in minima.POINTS for n in these}
        values = (("seed", "alpha"), rng.normal(1, 0.1, (len(seeds), 1)))
        return xr.Dataset(
            dict.fromkeys(names, values), {"seed": list(seeds), "alpha": [alpha]}
        )

    def passed(p, seed):
        found = {x: rng.normal(1, 0.1) for x in ("q", "m", "theta", "V")}
        return found | {"step": 0.0, "gradient": 0.0}

    summary = dict.fromkeys(("q", "m", "theta", "V"), 1.0)
    point = SimpleNamespace(exists=True, summary=lambda: summary)
    monkeypatch.setattr(minima, "solve", lambda p, branch: point)
    monkeypatch.setattr(minima, "train", trained)
    monkeypatch.setattr(minima, "_overlaps", passed)
    monkeypatch.setattr(minima, "each", lambda f, arguments: [f(*a) for a in arguments])
    off = []
    for _ in range(30):
        p = Sentences(d=400)
        rows, _ = minima.message_passing(p, (200, 400, 800), list(range(32)), {})
        off += [(c.measured - 1) / c.standard_error for c in rows]
    # Student's t of 15 degrees of freedom has variance 15 / 13; 120 values and more.
    assert np.mean(np.square(off)) == pytest.approx(
        15 / 13, rel=4 * np.sqrt(2 / len(off))
    )


def _curves(kind, seeds, rng):
    """Scatter along 61 times: independent, or eight harmonics."""
    if kind == "independent":
        return rng.normal(size=(seeds, 61))
    angle = 2 * np.pi * np.outer(np.arange(1, 9), np.linspace(0, 1, 61))
    return rng.normal(size=(seeds, 8)) @ np.cos(angle) + rng.normal(
        size=(seeds, 8)
    ) @ np.sin(angle)


@pytest.mark.parametrize("kind", ["independent", "smooth"])
@pytest.mark.parametrize("seeds", [4, 8, 20, 64])
def test_the_largest_of_many_points_is_no_alarm(kind, seeds):
    """True curves, judged at z = 2: no more alarms than one point gives by itself
    (4.6%), and not many fewer where seeds are enough; taken for a single point, the
    largest gives five times more.
    """
    rng, z, plain = np.random.default_rng(seeds), [], []
    for _ in range(1000):
        x = _curves(kind, seeds, rng)
        mean = x.mean(0)
        k = int(np.abs(mean).argmax())
        t = mean[k] / (x[:, k].std(ddof=1) / np.sqrt(seeds))
        z.append(normal_z(t, seeds, Shape(0.0, *path(x - mean))))
        plain.append(normal_z(t, seeds))
    nominal = 0.0455
    alarms = np.mean(np.array(z) > 2)
    assert alarms < nominal + 4 * np.sqrt(nominal / 1000)
    assert alarms > nominal / 4 or seeds < 20
    assert np.mean(np.array(plain) > 2) > 5 * nominal


@pytest.mark.parametrize("seeds", [60, 300])
def test_skewed_values_are_no_alarm(seeds):
    """Exponential values, |z| > 3 in 0.27% of true means: nearly as many, where
    Student's t alone gives more than twice as many; of normal values no fewer than
    half.
    """
    rng, draws, nominal = np.random.default_rng(seeds), 8000, 0.0027
    most = nominal + 4 * np.sqrt(nominal / draws)
    alarms = {}
    for kind, x in (
        ("skewed", rng.exponential(size=(draws, seeds)) - 1),
        ("normal", rng.normal(size=(draws, seeds))),
    ):
        t = x.mean(1) / (x.std(1, ddof=1) / np.sqrt(seeds))
        far = np.abs(t) > 2  # others are not beyond 3 by either rule
        tail = zip(t[far], x[far], strict=True)
        z = np.array([normal_z(a, seeds, Shape(skewness(b))) for a, b in tail])
        plain = np.array([normal_z(a, seeds) for a in t[far]])
        alarms[kind] = (z > 3).sum() / draws, (plain > 3).sum() / draws
    assert alarms["skewed"][0] < most and alarms["skewed"][1] > 1.4 * nominal
    assert nominal / 2 - 4 * np.sqrt(nominal / draws) < alarms["normal"][0] < most


def test_skewness_costs_resolution_on_the_side_of_the_long_tail():
    """What a row says it sees holds for the harder side; of fewer values it is not
    known.
    """
    x = np.random.default_rng(0).exponential(size=200)
    symmetric = 1 + x.std() * np.random.default_rng(0).normal(size=200)
    assert (
        sampled("x", "e", 1.0, x).detectable
        > 1.05 * sampled("x", "e", 1.0, symmetric).detectable
    )
    few = x[: MANY - 1]
    same = Shape(skewness(few))
    assert normal_z(-5.0, few.size, same) == normal_z(-5.0, few.size)
    assert (
        normal_z(-5.0, 200, Shape(2.0))
        < normal_z(5.0, 200, Shape(2.0))
        == normal_z(5.0, 200)
    )
