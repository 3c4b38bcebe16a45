"""The checks of the positional-semantic model detect faults and work as commands
(`test_faults` tests that they pass).
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
import sympy as sp
import xarray as xr

from theory.call.refusal import ParameterError
from theory.models import registry
from theory.positional_semantic import Parameters, Thresholds, equations, general, prox
from theory.positional_semantic.model import definitions
from verify import gradients as gradients_command
from verify import thresholds as thresholds_command
from verify import timescales as timescales_command
from verify.checks.report import Request
from verify.positional_semantic import extensions, gradients, minima, thresholds

mpl.use("Agg")


def test_a_wrong_hessian_is_noticed(monkeypatch):
    """One derivative off by five percent fails its row and no other of the envelope but
    those that use it.
    """
    right, table = definitions.derivatives(), equations()
    monkeypatch.setattr(
        definitions,
        "derivatives",
        lambda: [*right[:-1], right[-1] * sp.Rational(21, 20)],
    )
    for compiled in (prox._compiled, prox._newton):
        compiled.cache_clear()
    try:
        failed = [c.name for c in gradients.envelope(table) if not c.within]
    finally:
        for compiled in (prox._compiled, prox._newton):
            compiled.cache_clear()
    assert failed == ["its gradient and Hessian"]


def test_commands_name_each_other():
    """timescales has no meaning here, thresholds none for state tracking."""
    with pytest.raises(
        ParameterError,
        match=r"verify.timescales: not for positional_semantic.*verify.thresholds",
    ):
        timescales_command.main(["positional_semantic"])
    with pytest.raises(ParameterError, match="not for state_tracking"):
        thresholds_command.main(["state_tracking"])
    assert callable(gradients_command.main)


def test_crossing_and_its_error():
    """Root of the mean by interpolation; the jackknife of a linear gap is the standard
    error of its offset.
    """
    offsets = np.random.default_rng(0).normal(0, 0.1, 40)
    alpha = np.linspace(0.5, 1.5, 11)
    gap = xr.DataArray(
        alpha - 1 - offsets[:, None], dims=("seed", "alpha"), coords={"alpha": alpha}
    )
    root, error = minima.crossing(gap)
    assert root == pytest.approx(1 + offsets.mean(), abs=1e-12)
    assert error == pytest.approx(offsets.std(ddof=1) / np.sqrt(40), rel=1e-9)


def test_shift_of_a_crossing_and_its_error():
    """Ratio of two crossings over the same seeds: what moves both alike cancels."""
    rng = np.random.default_rng(2)
    common, own = rng.normal(0, 0.1, 40), rng.normal(0, 0.01, 40)
    alpha = np.linspace(0, 4, 41)

    def gap(centres):
        return xr.DataArray(
            alpha - centres[:, None], dims=("seed", "alpha"), coords={"alpha": alpha}
        )

    one = 1 + common
    ratio, error = minima.shift(gap(2 * one * (1 + own)), gap(one))
    assert ratio == pytest.approx(2, abs=4 * error) and error < 2 * 0.015 / np.sqrt(40)
    assert np.isnan(minima.shift(gap(one + 9), gap(one))[0])


def test_extrapolation_in_d():
    """The mean of v + c/d is v with the standard error of the extrapolated samples: z
    scatters by one.
    """
    rng = np.random.default_rng(1)
    z = []
    for _ in range(400):
        samples = np.stack(
            [rng.normal(0.3 - 5 / d, 2 / np.sqrt(d), 40) for d in (100, 200, 400)]
        )
        found = minima.at_infinity(
            xr.DataArray(samples, dims=("d", "seed"), coords={"d": [100, 200, 400]})
        )
        z.append((found.mean() - 0.3) / (found.std(ddof=1) / np.sqrt(40)))
    # 400 repetitions: the mean scatters by 0.05, the deviation by 0.035; four of them.
    assert abs(np.mean(z)) < 0.2 and abs(np.std(z) - 1) < 0.14


def test_the_selection_that_students_do_not_make_has_bands_and_theirs_has_none(
    monkeypatch,
):
    """Students that follow the local selection: it agrees or is undecided everywhere,
    and only the global one may lie in a band, where the two differ.
    """
    names = minima.POINTS[0][2] + ("m",)
    numbers = {"global": 1.0, "local": 2.0}

    def solved(p, branch):
        return SimpleNamespace(
            exists=True, summary=lambda: dict.fromkeys(names, numbers[p.prox])
        )

    def trained(p, seeds, alpha, **options):
        noise = 1 + 1e-3 * np.random.default_rng(p.d).standard_normal((len(seeds), 1))
        row = (("seed", "alpha"), numbers["local"] * noise)
        return xr.Dataset({x: row for x in names}, {"seed": seeds, "alpha": [alpha]})

    monkeypatch.setattr(minima, "solve", solved)
    monkeypatch.setattr(minima, "train", trained)
    p = minima.DEMO
    checks = minima.order_parameters(p, (50, 100, 200), list(range(8)), {})
    assert len(checks) == 24
    banded = {c.name.partition(" by ")[0] for c in checks if c.band is not None}
    apart = {
        "semantic": ("theta", "train_loss", "test_mse_half"),
        "positional": ("q", "m"),
    }
    assert banded == {
        f"{x} of the {b} branch" for b, names in apart.items() for x in names
    }
    assert all("by global prox" in c.name for c in checks if c.band is not None)
    assert all(c.verdict == "agrees" for c in checks if "by local prox" in c.name)


@pytest.mark.parametrize(
    "words", [{"omega": 0.4}, {"sigma": 0.6}, {"lam": 0.02}, {"target": "alternative"}]
)
def test_bands_belong_to_the_setting_that_was_measured(words):
    """In another one nobody knows how far off the paper's selection is."""
    assert minima.band(minima.DEMO, "q, positional") is not None
    assert minima.band(minima.DEMO.replace(**words), "q, positional") is None


def test_losses_beside_the_main_text_are_those_of_the_theory(monkeypatch):
    """Students at the predicted loss agree, at 5% more they do not."""
    more, predicted = 1.0, {"train_loss": 2.5e-3}

    def trained(p, seeds, alpha, **options):
        noise = np.random.default_rng(p.d).normal(0, 5e-3, (len(seeds), 1))
        loss = more * predicted["train_loss"] * (1 + 1 / p.d + noise)
        return xr.Dataset({"train_loss": (("seed", "alpha"), loss)}, {"alpha": alpha})

    monkeypatch.setattr(minima, "train", trained)
    monkeypatch.setattr(
        extensions, "solve", lambda p, b: SimpleNamespace(summary=lambda: predicted)
    )
    monkeypatch.setattr(
        extensions, "SLICES", {"at omega = 0.2": ({"omega": 0.2}, extensions.STARTS)}
    )
    assert [c.verdict for c in extensions.slices()] == ["agrees", "agrees"]
    more = 1.05
    assert [c.verdict for c in extensions.slices()] == ["FAIL", "FAIL"]


def test_extensions_that_move_nothing_fail(monkeypatch):
    """Transitions where students had them lie in the bands; where the main text has
    them, not.
    """
    middle = {
        name: 1 + (band.low + band.high) / 2 for name, band in extensions.BANDS.items()
    }
    seen = 1.0

    def trained(p, seeds, alpha, **more):
        centre = 1.0
        for what, (change, *_) in extensions.EXTENSIONS.items():
            if p == extensions.BASE.replace(omega=p.omega, start=p.start, **change):
                along = middle[f"alpha_c with {what} at omega = 0.3 over 0.2"]
                centre = middle.get(f"alpha_c with {what} over without", 1.0) / (
                    1.0 if p.omega == 0.3 else along
                )
        at = np.linspace(0, 4, 9)
        noise = np.random.default_rng(0).normal(0, 1e-3, (len(seeds), 1))
        loss = 4 + (p.start == "positional") * (at - centre**seen - noise)
        return xr.Dataset({"train_loss": (("seed", "alpha"), loss)}, {"alpha": at})

    monkeypatch.setattr(extensions, "train", trained)
    assert {c.verdict for c in extensions.extensions()} == {"limit"}
    seen = 0.0
    assert {c.verdict for c in extensions.extensions()} == {"FAIL"}


def test_ends_of_training_are_counted(monkeypatch):
    """Adam's ends by their loss; a mixed start of rank 2 that does as the better one
    fails.
    """
    ends, mixed = [1.0, 1.0, 2.0, 3.0, 5.0], 0.0

    def trained(p, seeds, alpha, **options):
        seeds = list(seeds)
        informed = {
            "positional": [1.0, 1.0, 1.0, 1.0, 5.0],
            "semantic": [2.0, 2.0, 2.0, 2.0, 5.0],
        }
        loss = np.resize(informed.get(p.start, ends), len(seeds))[
            :, None
        ] + 0 * np.array(alpha)
        off = mixed if p.start == "mixed" else 0.0
        means = [
            (b.low + b.high) / 2
            for n, b in extensions.BANDS.items()
            if "of rank 2" in n
        ]
        error = 1 + off * np.resize(means, len(alpha)) + 1e-3 * np.sin(seeds)[:, None]
        error = error + 0.5 * (
            p.start == "positional"
        )  # the semantic start is the better one
        variables = {"train_loss": loss, "test_mse_half": error}
        return xr.Dataset(
            {name: (("seed", "alpha"), v) for name, v in variables.items()},
            {"seed": seeds, "alpha": alpha},
        )

    monkeypatch.setattr(extensions, "train", trained)
    # Of 24 and 12 runs four standard errors are as many as the difference and more.
    assert [c.measured for c in extensions.adam()] == [24, 12, 12, 12 - 4 * 6]
    assert [c.verdict for c in extensions.adam()] == ["bound"] * 3 + ["FAIL"]
    assert {c.verdict for c in extensions.rank_two()} == {"FAIL"}
    mixed = 1.0
    assert {c.verdict for c in extensions.rank_two()} == {"limit"}
    ends = [1.0, 1.0, 1.0, 1.0, 5.0]
    assert [c.verdict for c in extensions.adam()] == ["bound", "FAIL", "FAIL", "bound"]


def test_message_passing_is_compared_beside_descent(monkeypatch):
    """What sentences do to both cancels: an error of 5% is seen on 16 seeds that
    scatter by 20%.
    """
    off = 0.0

    def state(seed, d):
        return 1 + np.random.default_rng([seed, d]).normal(0, 4 / d**0.5)

    def trained(p, seeds, alpha, **options):
        values = [[state(s, p.d) * (1 + 1 / p.d)] for s in seeds]
        names = {n for _, _, these in minima.POINTS for n in these}
        row = (("seed", "alpha"), np.array(values))
        return xr.Dataset(
            dict.fromkeys(names, row), {"seed": list(seeds), "alpha": [alpha]}
        )

    def passed(p, seed):
        value = state(seed, p.d) * (1 + off) * (1 - 1 / p.d)
        return {x: value for x in ("q", "m", "theta", "V")} | {
            "step": 0.0,
            "gradient": 0.0,
        }

    summary = dict.fromkeys(("q", "m", "theta", "V"), 1.0)
    point = SimpleNamespace(exists=True, summary=lambda: summary)
    monkeypatch.setattr(minima, "solve", lambda p, branch: point)
    monkeypatch.setattr(minima, "train", trained)
    monkeypatch.setattr(minima, "_overlaps", passed)
    monkeypatch.setattr(minima, "each", lambda f, arguments: [f(*a) for a in arguments])

    def found():
        seeds, p = list(range(4000)), Parameters(d=400)
        checks, _ = minima.message_passing(p, (200, 400, 800), seeds, {})
        return [
            (x, c.verdict) for c in checks if (x := c.name.partition(" ")[0]) != "V"
        ]

    names = ["q", "theta", "q", "m"]
    assert found() == [(x, "agrees") for x in names]
    off = 0.05
    assert found() == [(x, "FAIL") for x in names]


@pytest.mark.parametrize(("full", "sizes"), [(True, (20, 40, 80)), (False, (10, 40))])
def test_sizes_of_students(full, sizes, monkeypatch):
    """Of which every form of the command extrapolates; the theory is not asked here."""

    def stop(gaps, sizes):
        raise InterruptedError(sizes)

    monkeypatch.setattr(thresholds, "DEMO", Parameters(d=40))
    monkeypatch.setattr(thresholds, "thresholds", lambda p: Thresholds(0.3, 1.25, 1.49))
    monkeypatch.setattr(thresholds, "_gap", lambda name, p, *more: p.d)
    monkeypatch.setattr(thresholds, "over_d", stop)
    with pytest.raises(InterruptedError) as asked:
        thresholds.report(Request(registry.find("positional_semantic"), full=full))
    assert asked.value.args == (sizes,)


@pytest.mark.slow
def test_thresholds_command(tmp_path, monkeypatch, capsys):
    """A tiny ensemble: rows for both selections, intervals, figure."""
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr("simulate.training.pool.cores", lambda: 1)
    monkeypatch.setattr(
        thresholds, "DEMO", Parameters(d=40, steps=10, n_test=200, order=8)
    )
    predicted = {
        "global": Thresholds(0.3, 1.25, 1.49),
        "local": Thresholds(0.3, 1.24, 1.48),
    }  # tested with the theory
    monkeypatch.setattr(thresholds, "thresholds", lambda p: predicted[p.prox])
    monkeypatch.setattr(minima, "SOBOL", 64)
    monkeypatch.setattr(
        minima, "message_passing", lambda *given: ([], [])
    )  # tested with the students
    monkeypatch.setattr(
        thresholds, "FACTORS", {"alpha_c": (0.5, 1.0, 1.8), "alpha_l": (0.7, 1.3, 2.2)}
    )
    picture = tmp_path / "t.png"
    thresholds_command.main(
        ["--seeds", "3", "--json", "--quiet", "--full", "--plot", str(picture)]
    )
    found = json.loads(capsys.readouterr().out)
    assert {"alpha_c", "alpha_l"} == set(
        found["thresholds"]
    ) and picture.stat().st_size > 10_000
    assert [
        found["thresholds"][k][s]
        for k in ("alpha_c", "alpha_l")
        for s in ("global", "local")
    ] == [1.25, 1.24, 1.49, 1.48]
    assert any("local prox" in c["name"] for c in found["checks"]) and any(
        "95% interval" in n for n in found["notes"]
    )
    names = [c["name"] for c in found["checks"]]
    monkeypatch.setattr(minima, "untied_keys", None)  # minutes: not without --full
    thresholds_command.main(["--seeds", "3", "--json", "--quiet"])
    short = json.loads(capsys.readouterr().out)
    assert (
        [c["name"] for c in short["checks"]] == names[: len(short["checks"])] != names
    )
    assert any("not run without --full" in n for n in short["notes"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "2"], "at least 3 seeds"),
        (["--set", "alpha=1"], "must be unset"),
        (["--set", "rank=2"], "rank = 2"),
        (["--set", "polish=false"], "polish = False: must be True"),
        (["--set", "start=random"], "start = 'random': must be positional or semantic"),
    ],
)
def test_bad_input(words, message):
    """One line each."""
    with pytest.raises(ParameterError, match=message):
        thresholds_command.main(words)


@pytest.mark.parametrize("off", [None, "q", "cosine", "train_loss", "test_mse_half"])
def test_untied_keys_are_held_to_both_columns(off, monkeypatch):
    """q is the geometric mean of two columns whose scales are free; each quantity off
    by 5% fails alone.
    """
    sigma, rng = Parameters().sigma, np.random.default_rng(0)
    right = {
        "q": 6.0,
        "cosine": 1.0 / (2 * sigma),
        "train_loss": 0.1,
        "test_mse_half": 0.2,
    }
    order = SimpleNamespace(
        q=np.array([[[[4.0, 0.0], [0.0, 9.0]]]]), theta=np.ones((1, 1, 2, 1))
    )
    found = SimpleNamespace(order=order, train_loss=0.1, test_full=0.4)
    near = SimpleNamespace(state=SimpleNamespace(q=1.0, V=1.0))
    monkeypatch.setattr(minima, "solve", lambda p, branch: near)
    monkeypatch.setattr(minima, "replace", lambda system, **changes: system)
    for name in ("headline", "starting_order"):
        monkeypatch.setattr(general, name, lambda *given: None)
    monkeypatch.setattr(general, "solve", lambda *given, **more: found)

    def train(p, seeds, alpha, **options):
        assert not p.tied and p.start == "semantic"
        names = {k: v * (1.05 if k == off else 1.0) for k, v in right.items()}
        names["theta"] = names.pop("cosine") * np.sqrt(names["q"]) * p.sigma
        spread = 1 + 1e-3 * rng.normal(size=(len(seeds), 1))
        found = {k: (("seed", "alpha"), v * spread) for k, v in names.items()}
        return xr.Dataset(found, {"seed": list(seeds), "alpha": [1.0]})

    monkeypatch.setattr(minima, "train", train)
    checks = minima.untied_keys(Parameters(), (200, 400, 800), list(range(16)), {})
    assert {c.name.split()[0] for c in checks if not c.within} == {off} - {None}
