"""Stages of standard transformers: read off curves of which they are known, judged with power, and
found in the shipped ensembles.
"""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from simulate import runs as store
from theory.state_tracking import Parameters, task
from theory.state_tracking.task import from_actions, from_state
from verify.check import Check, failed
from verify.state_tracking import standard
from verify.state_tracking import standard_ensemble as ensembles

SEEDS = 8
WAY = {"attention": 70.0, "logic": 90.0, "rollout": 115.0}  # steps half of the way


def made_up(
    setting: str, specific: float = 0.1, above: float = 1.0, allowed: float = 1.0, **way: float
) -> xr.Dataset:
    """Students whose stages are known: straight lines through half of the way, some steps apart
    from seed to seed; attention allows some answers, and from step 40 on all.
    """
    p, way = ensembles.parameters(setting), {**WAY, **way}
    epochs = np.arange(0, 301, 10.0)
    rng = np.random.default_rng(len(setting))
    curves: dict[str, list[np.ndarray]] = {n: [] for n in ("A", "logic", "rollout_accuracy", "accuracy", "R", "S", "visible")}  # fmt: skip
    for seed in range(SEEDS):
        known = from_state(task.draw_permutations(p, task.streams(seed)["task"]))
        late = rng.normal(1, 0.02)

        def rise(low, high, half, late=late):
            return low + (high - low) * np.clip(epochs / (2 * half * late), 0, 1)

        curves["A"].append(rise(1 / p.L, 1, way["attention"]))
        curves["logic"].append(rise(known, 1, way["logic"]))
        curves["rollout_accuracy"].append(rise(0, 1, way["rollout"]))
        flat = np.where(epochs < 10, 1 / p.N, above * known)
        curves["accuracy"].append(np.where(epochs < 50, flat, 1.0))
        curves["visible"].append(np.where(epochs < 40, 0.5, allowed))
        curves["R"].append(1 + 0 * epochs)
        curves["S"].append(1 - specific + 0 * epochs)
    data = {name: (("seed", "epoch"), np.array(v)) for name, v in curves.items()}
    return xr.Dataset(data, {"seed": np.arange(SEEDS), "epoch": epochs})


def test_stages_are_read_off():
    """Half-way times, seed by seed; what is known before attention; how specific logic is then."""
    found = standard.stages(ensembles.parameters("base"), made_up("base"))
    for name, half in WAY.items():
        assert found[name].mean() == pytest.approx(half, rel=0.03) and found[name].std() > 0
    np.testing.assert_allclose(found.logic / found.attention, 90 / 70, rtol=1e-9)
    np.testing.assert_allclose(found.plateau, found.known, rtol=1e-9)
    np.testing.assert_allclose([found.specific, found.early], 0.1, rtol=1e-9)
    assert (found.guess > 0).all() and (found.guess < 10).all()
    assert (found.seen == 40).all() and (found.right > 2 * 0.9 * 115).all()
    never = standard.stages(ensembles.parameters("base"), made_up("base", allowed=0.98))
    assert never.seen.isnull().all()


def test_from_when_on_a_curve_stays():
    """Not from the first time above the level, if it falls again."""
    curve = xr.DataArray([[0, 1, 0, 1, 1], [0, 0, 0, 1, 0]], dims=("seed", "epoch"))
    curve = curve.assign_coords(epoch=[0, 10, 20, 30, 40])
    np.testing.assert_array_equal(standard._lasting(curve, 1.0), [30, np.nan])


def test_a_bound_is_held_contradicted_or_undecided():
    """By the distance in standard errors: eight values see six of them nine times in ten."""
    spread = np.linspace(-1, 1, 8)
    error = spread.std(ddof=1) / np.sqrt(8)
    for off, verdict in ((6.5, "bound"), (5.0, "undecided"), (-5.0, "undecided"), (-20.0, "FAIL")):
        up = standard.above("name", 2.0, 2.0 + off * error + spread)
        down = standard.below("name", 2.0, 2.0 - off * error + spread)
        assert up.verdict == down.verdict == verdict
        assert up.detectable == pytest.approx(5.9 * error, rel=0.02)
    assert "samples would" in standard.above("name", 2.0, 2.0 + error + spread).why
    assert standard.above("name", 0.0, np.array([1.0, np.nan, 2.0])).verdict == "FAIL"


@pytest.mark.parametrize(
    ("group", "change", "name"),
    [
        (standard.order, dict(logic=69.0), "ln of time of logic by that of attention"),
        (standard.order, dict(rollout=80.0), "ln of time of rollout by that of logic"),
        (
            standard.first_stage,
            dict(above=1.4),
            "accuracy before attention by the best guess from the state",
        ),
        (standard.specificity, dict(specific=0.6), "1 - S/R"),
    ],
)
def test_rows_see_another_order(group, change, name):
    """Stages at the same time, a guess from actions, logic before attention: each fails its row."""
    p = ensembles.parameters("base")
    right = group({"base": standard.stages(p, made_up("base"))})
    wrong = group({"base": standard.stages(p, made_up("base", **change))})
    assert not failed(right)
    failing = [c.name for c in wrong if c.verdict == "FAIL"]
    assert failing == [c.name for c in right if c.name.startswith(name)] != []


def test_rows_see_other_exponents_and_a_head_that_learns():
    """Times in proportion to those of the flow decide nothing; one head as good as two fails."""
    settings = {name for names in standard.ALONG.values() for name in names}

    def found(like_flow: bool):
        out = {}
        for name in settings:
            p = ensembles.parameters(name)
            half = standard.flow_steps(p) / 4 if like_flow else 70.0
            out[name] = standard.stages(p, made_up(name, attention=half))
        return out

    same, _ = standard.exponents(found(True))
    flat, rows = standard.exponents(found(False))
    assert [c.verdict for c in same] == 3 * ["undecided"]
    assert not {c.verdict for c in flat} - {"bound", "agrees"}
    assert [row[0] for row in rows] == ["L", "N", "d_g"]

    def one_head(one, base):
        runs = {standard.ONE_HEAD: one, "base": base}
        p = ensembles.parameters("base")
        return standard.one_head({n: standard.stages(p, r) for n, r in runs.items()}, runs)

    later = one_head(made_up("base", rollout=140.0, allowed=0.9), made_up("base"))
    # It knows what it cannot see.
    assert [c.verdict == "FAIL" for c in later] == [False, True, False]
    earlier = one_head(made_up("base"), made_up("base", rollout=140.0, allowed=0.9))
    assert [c.verdict == "FAIL" for c in earlier] == [True, False, True, False]
    assert not {c.verdict for c in (*later, *earlier)} - {"FAIL", "bound", "agrees"}


def test_rotary_positions_are_expected_to_mix():
    """Logic before attention, better than by a guess from the state."""
    own = {standard.ROTARY: made_up(standard.ROTARY, specific=0.6, above=1.3, logic=60.0)}
    other = {standard.ROTARY: made_up(standard.ROTARY)}
    for runs, right in ((own, True), (other, False)):
        found = {n: standard.stages(ensembles.parameters(n), r) for n, r in runs.items()}
        rows = [
            standard.order(found)[1],
            *standard.first_stage(found),
            *standard.specificity(found),
        ]
        assert [c.verdict != "FAIL" for c in rows] == [right] * 4


def test_a_stage_that_is_not_reached():
    """In one seed: as a later stage it counts as if at the end, as an earlier one the row fails; no
    mean over the others is taken for it.
    """
    runs = made_up("base")
    runs["logic"][3] = 0.4
    found = {"base": standard.stages(ensembles.parameters("base"), runs)}
    rows = standard.order(found)
    assert np.isnan(found["base"].logic[3])
    assert [c.verdict == "FAIL" for c in rows] == [False, False, True]
    ratios = np.log(np.append(np.full(7, 90 / 70), 200 / found["base"].attention[3]))
    assert rows[1].measured == pytest.approx(ratios.mean())
    assert "(1 not)" in standard.table(found)[0][3]


def test_guesses_by_enumeration():
    """The best rule among all, for few states and actions."""
    perms = np.array([[1, 2, 0], [1, 0, 2], [0, 1, 2], [1, 2, 0]])
    rules = itertools.product(range(3), repeat=3)
    hits = [np.mean([perms[a, s] == rule[s] for a in range(4) for s in range(3)]) for rule in rules]
    assert from_state(perms) == pytest.approx(max(hits))
    actions, states = np.array([[0, 3, 2], [0, 1, 2]]), np.array([[0], [2]])
    # From 0 two of three lead to 1; from 2 they lead to 0, 2 and 2.
    assert from_actions(perms, actions, states) == pytest.approx(2 / 3)
    assert from_actions(perms, actions[:1, :1], states[:1]) == 1


def test_shipped_ensembles_are_those_of_the_settings():
    """Parameters in the file, eight seeds, all that is kept."""
    said = json.loads(store.read(ensembles.PLACE).attrs["parameters"])
    found = ensembles.shipped()
    assert list(found) == list(said) == list(ensembles.SETTINGS)
    for name, runs in found.items():
        p = ensembles.parameters(name)
        assert said[name] == p.stored() and [*runs.seed.values] == [*ensembles.seeds(name)]
        assert runs.epoch.values[-1] == p.epochs and set(runs.data_vars) == set(ensembles.KEPT)
        measured = runs if name in ensembles.FRESH else runs.drop_vars("visible")
        assert measured.to_array().notnull().all()
    assert isinstance(ensembles.parameters("solvable, Adam"), Parameters)


def test_joined_runs_come_back(tmp_path, monkeypatch):
    """Of different lengths and seeds, through a file; those that are trained again replace some."""

    def runs(seeds, n):
        data = {
            q: (("seed", "epoch"), np.full((2, n), k + n)) for k, q in enumerate(ensembles.KEPT)
        }
        return xr.Dataset(data, {"seed": seeds, "epoch": 10 * np.arange(n)})

    parts = {"base": runs([0, 1], 4), "1 head": runs([1, 5], 7)}
    monkeypatch.setattr(ensembles, "PLACE", tmp_path / "standard.nc")
    monkeypatch.setattr(ensembles, "SETTINGS", tuple(parts))
    store.write(ensembles.joined(parts), ensembles.PLACE)
    for name, part in ensembles.shipped().items():
        xr.testing.assert_equal(part, parts[name])
    monkeypatch.setattr(ensembles, "train", lambda name: runs([2, 3], 5))
    ensembles.renew("1 head")
    found = ensembles.shipped()
    assert [*found["1 head"].seed.values] == [2, 3] and found["1 head"].sizes["epoch"] == 5
    xr.testing.assert_equal(found["base"], parts["base"])


@pytest.fixture(scope="module")
def shipped():
    """Stages of the shipped ensembles."""
    runs = ensembles.shipped()
    return {name: standard.stages(ensembles.parameters(name), r) for name, r in runs.items()}


def open_in(rows):
    """Settings in which rows are undecided."""
    return {c.name.partition(", ")[2] for c in rows if c.verdict == "undecided"}


def test_standard_transformers_learn_in_stages(shipped):
    """Guess, attention, logic, rollout, in every setting that learns; attention before logic."""
    rows = standard.order(shipped)
    assert not failed(rows)
    assert open_in(rows) <= {standard.ROTARY, "N = 4", "d_g = 4"}


def test_the_first_stage_is_a_guess_from_the_state(shipped):
    """Before attention the accuracy is that of the best guess from the state alone, not that of the
    best guess from the actions of the sequence.
    """
    assert not failed(standard.first_stage(shipped))
    p = ensembles.parameters("base")
    for seed in ensembles.seeds("base"):
        stream = task.streams(seed)
        perms = task.draw_permutations(p, stream["task"])
        data = task.draw_sequences(perms, p.n_test, p.L, stream["test"])
        knowing = from_actions(perms, data.actions, data.states[:, :-1])
        assert shipped["base"].plateau.sel(seed=seed) < 0.85 * knowing


def test_logic_is_specific_first_in_the_solvable_student_alone(shipped):
    """1 - S/R before and at the time of attention: large there by both optimisers, small here."""
    rows = standard.specificity(shipped)
    assert not failed(rows)
    assert open_in(rows) <= {standard.ROTARY, "N = 4", "solvable, Adam"}


def test_the_time_of_attention_grows_more_slowly_than_by_the_flow(shipped):
    """In L and d_g; of N eight seeds do not decide it."""
    checks, _ = standard.exponents(shipped)
    assert not failed(checks)


def test_one_head_is_later(shipped):
    """Its rollouts are right later than those of two heads, and what its attention allows is what
    it knows; whether attention allows less than that of two heads eight seeds do not decide.
    """
    later, known, less, _ = standard.one_head(shipped, ensembles.shipped())
    assert (later.verdict, known.verdict, less.verdict) == ("bound", "agrees", "undecided")


def test_no_student_knows_more_than_its_attention_allows():
    """In the shipped ensembles; one that does fails."""
    runs = ensembles.shipped()
    assert not failed(standard.allowed(runs))
    runs["base"]["visible"] = runs["base"].visible - 0.02
    assert [c.verdict for c in standard.allowed(runs)].index("FAIL") == 0


def test_what_moves_first():
    """Accuracy follows what attention allows one measurement later."""
    steps = np.random.default_rng(2).normal(size=(8, 40)).cumsum(1)
    data = {"visible": steps[:, 1:], "accuracy": steps[:, :-1]}
    runs = xr.Dataset({q: (("seed", "epoch"), v) for q, v in data.items()})
    said = standard.leads(runs.assign_coords(epoch=190 + 20 * np.arange(39)))
    assert "1.00 one measurement later" in said and "1.00 at once" not in said


def test_a_failed_row_decides_against_the_picture():
    """However many hold."""
    names = [f"{standard.PICTURE[0][2]}rollouts, setting {k}" for k in range(9)]
    good = [Check(n, "", 1.0, 1.0, 0.0, 0.1, "made up") for n in names[1:]]
    for off, said in ((0.0, "extends"), (0.5, "undecided")):
        checks = [*good, Check(names[0], "", 1.0, 1 + off, off, 0.1, "made up")]
        assert standard.picture(checks)[0][1] == said


@pytest.mark.parametrize(
    ("verdicts", "suffix"),
    [
        (["agrees", "bound"], ""),
        (["agrees", "bound", "undecided"], " (most rows)"),
        (["agrees", "undecided"], None),
        (["agrees", "bound", "FAIL"], None),
        ([], None),
    ],
)
def test_a_statement_is_found_if_more_than_half_of_its_rows_hold(verdicts, suffix):
    """Half are too few, as is one that fails; without rows nothing is found."""
    _, here, start = standard.PICTURE[-1]
    rows = [SimpleNamespace(name=f"{start}, x", verdict=v, detectable=0.1) for v in verdicts]
    assert standard.picture(rows)[-1][1] == ("undecided" if suffix is None else here + suffix)


def test_report_says_what_extends():
    """Every setting is in the table of the stages; lines of the picture are decided but for one
    that is not; rows that are not decided are those of few states or actions, and of rotary
    positions.
    """
    found = standard.report()
    assert found.exit_code == 0
    first, *_, last = found.tables.values()
    assert [row[0] for row in first[1]] == list(ensembles.SETTINGS)
    assert [row[1] == "undecided" for row in last[1]] == 5 * [False] + [True]
    assert [row[1].endswith("(most rows)") for row in last[1]] == 4 * [True] + 2 * [False]
    assert all(row[4] == "" for row in last[1])  # none fails
    assert [set(filter(None, row[3].split("; "))) for row in last[1]] == [
        {standard.ROTARY, "N = 4", "d_g = 4"},
        {standard.ROTARY, "solvable, Adam"},
        {standard.ROTARY, "N = 4"},
        {"N"},
        set(),
        {"one head less two"},
    ]
