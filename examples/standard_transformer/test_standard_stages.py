"""Stages of standard transformers: read off curves of which they are known, judged with
power, and found in the students that come with the code.
"""

import itertools
import json

import numpy as np
import pytest
import xarray as xr
from standard_transformer import ensembles, timescales
from standard_transformer.ensembles import ONE_HEAD, ROTARY
from standard_transformer.interventions import MEANING
from standard_transformer.simulate import train
from standard_transformer.theory import flow_steps, guess_from_state, known_guess

from simulate.store import runs as store
from theory.state_tracking.model import task
from verify.checks.check import failed

SEEDS = 8
WAY = {"attention": 70.0, "logic": 90.0, "rollout": 115.0}  # steps half of the way


def made_up(setting, specific=0.1, above=1.0, allowed=1.0, **way):
    """Students whose stages are known: straight lines through half of the way, some
    steps apart from seed to seed; attention allows some answers.
    """
    p, way = ensembles.parameters(setting), {**WAY, **way}
    epochs = np.arange(0, 301, 10.0)
    rng = np.random.default_rng(len(setting))
    parts = []
    for seed in range(SEEDS):
        known, late = known_guess(p, seed), rng.normal(1, 0.02)

        def rise(low, half, late=late):
            return low + (1 - low) * np.clip(epochs / (2 * half * late), 0, 1)

        flat = np.where(epochs < 10, 1 / p.N, above * known)
        curves = {
            "A": rise(1 / p.L, way["attention"]),
            "logic": rise(known, way["logic"]),
            "rollout_accuracy": rise(0, way["rollout"]),
            "accuracy": np.where(epochs < 50, flat, 1.0),
            "visible": np.where(epochs < 40, 0.5, allowed),
            "R": np.ones_like(epochs),
            "S": np.full_like(epochs, 1 - specific),
        }
        data = {name: ("epoch", curve) for name, curve in curves.items()}
        parts.append(xr.Dataset(data, {"epoch": epochs}))
    return xr.concat(parts, "seed").assign_coords(seed=np.arange(SEEDS))


def stages_of(setting, **change):
    """Stages of made-up students."""
    runs = made_up(setting, **change)
    return timescales.stages(ensembles.parameters(setting), runs)


def test_stages_are_read_off():
    """Half-way times, seed by seed; what is known before attention; how specific logic
    is then.
    """
    found = stages_of("base")
    for name, half in WAY.items():
        assert found[name].mean() == pytest.approx(half, rel=0.03)
        assert found[name].std() > 0
    np.testing.assert_allclose(found.logic / found.attention, 90 / 70, rtol=1e-9)
    np.testing.assert_allclose(found.plateau, found.known, rtol=1e-9)
    np.testing.assert_allclose([found.specific, found.early], 0.1, rtol=1e-9)
    assert (found.guess > 0).all() and (found.guess < 10).all()


def test_a_bound_is_held_contradicted_or_undecided():
    """By the distance in standard errors: eight values see six of them nine times in
    ten.
    """
    spread = np.linspace(-1, 1, 8)
    error = spread.std(ddof=1) / np.sqrt(8)
    cases = ((6.5, "bound"), (5.0, "undecided"), (-5.0, "undecided"), (-20.0, "FAIL"))
    for off, verdict in cases:
        up = timescales.beyond("name", 2.0, 2.0 + off * error + spread)
        down = timescales.beyond("name", 2.0, 2.0 - off * error + spread, -1)
        assert up.verdict == down.verdict == verdict
        assert up.detectable == pytest.approx(5.9 * error, rel=0.02)
    close = timescales.beyond("name", 2.0, 2.0 + error + spread)
    assert "samples would" in close.why
    missing = timescales.beyond("name", 0.0, np.array([1.0, np.nan, 2.0]))
    assert missing.verdict == "FAIL"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "change", "name"),
    [
        (timescales.order, dict(logic=69.0), "ln of time of logic by that"),
        (timescales.order, dict(rollout=80.0), "ln of time of rollout by that"),
        (timescales.first_stage, dict(above=1.4), "accuracy before attention"),
        (timescales.specificity, dict(specific=0.6), "1 - S/R"),
    ],
    ids=str,
)
def test_rows_see_another_order(group, change, name):
    """Stages at the same time, a guess from actions, logic before attention: each fails
    its row.
    """
    right, wrong = (group({"base": stages_of("base", **x)}) for x in ({}, change))
    assert not failed(right)
    failing = [c.name for c in wrong if c.verdict == "FAIL"]
    assert failing == [c.name for c in right if c.name.startswith(name)] != []


@pytest.mark.slow
def test_rows_see_other_exponents():
    """Times in proportion to those of the flow decide nothing; constant ones do."""
    settings = {name for names in timescales.ALONG.values() for name in names}

    def exponents(half):
        found = {n: stages_of(n, attention=half(n)) for n in settings}
        return timescales.exponents(found)

    same = exponents(lambda n: flow_steps(ensembles.parameters(n)) / 4)
    flat = exponents(lambda n: 70.0)
    assert [c.verdict for c in same] == 3 * ["undecided"]
    assert not {c.verdict for c in flat} - {"bound", "agrees"}


@pytest.mark.slow
def test_rows_see_a_head_that_learns():
    """One head as good as two fails; a head that knows what it cannot see, too."""

    def rows(**runs):
        runs = {ONE_HEAD: runs["one"], "base": runs["two"]}
        p = ensembles.parameters("base")
        found = {name: timescales.stages(p, r) for name, r in runs.items()}
        return timescales.one_head(found, runs)

    blind, two = made_up("base", rollout=140.0, allowed=0.9), made_up("base")
    later, known = rows(one=blind, two=two)
    assert later.verdict in ("bound", "agrees")
    assert known.verdict == "FAIL"
    earlier, known = rows(one=two, two=blind)
    assert earlier.verdict == "FAIL"
    assert known.verdict == "agrees"


@pytest.mark.slow
def test_rotary_positions_are_expected_to_mix():
    """Logic before attention, better than by a guess from the state."""
    own = stages_of(ROTARY, specific=0.6, above=1.3, logic=60.0)
    for found, right in ((own, True), (stages_of(ROTARY), False)):
        by_setting = {ROTARY: found}
        rows = [timescales.order(by_setting)[1], *timescales.first_stage(by_setting)]
        rows += timescales.specificity(by_setting)
        assert [c.verdict != "FAIL" for c in rows] == [right] * 4


@pytest.mark.slow
def test_a_stage_that_is_not_reached():
    """In one seed: as a later stage it counts as if at the end, as an earlier one the
    row fails; no mean over the others is taken for it.
    """
    runs = made_up("base")
    runs["logic"][3] = 0.4
    found = timescales.stages(ensembles.parameters("base"), runs)
    rows = timescales.order({"base": found})
    assert np.isnan(found.logic[3])
    assert [c.verdict == "FAIL" for c in rows] == [False, False, True]
    end = ensembles.parameters("base").epochs
    ratios = np.log(np.append(np.full(7, 90 / 70), end / found.attention[3]))
    assert rows[1].measured == pytest.approx(ratios.mean())


def guess_from_actions(teachers, actions, states):
    """Accuracy of the best guess from the current state and all actions of a sequence,
    each equally likely to be the next.
    """
    images = teachers[actions[:, None, :], states[:, :, None]]  # sequence, step, place
    hits = (images[..., None] == np.arange(teachers.shape[1])).sum(2)
    return hits.max(-1).mean() / actions.shape[1]


def test_guesses_by_enumeration():
    """The best rule among all, for few states and actions."""
    teachers = np.array([[1, 2, 0], [1, 0, 2], [0, 1, 2], [1, 2, 0]])
    cells = list(itertools.product(range(4), range(3)))
    hits = []
    for rule in itertools.product(range(3), repeat=3):
        hits.append(np.mean([teachers[a, s] == rule[s] for a, s in cells]))
    assert guess_from_state(teachers) == pytest.approx(max(hits))
    actions, states = np.array([[0, 3, 2], [0, 1, 2]]), np.array([[0], [2]])
    # From 0 two of three lead to 1; from 2 they lead to 0, 2 and 2.
    assert guess_from_actions(teachers, actions, states) == pytest.approx(2 / 3)


# Students that come with the code


@pytest.fixture(scope="module")
def runs():
    """All settings."""
    return ensembles.shipped()


@pytest.fixture(scope="module")
def found(runs):
    """Their stages."""
    return timescales.all_stages(runs)


def undecided(rows):
    """Settings in which rows are undecided."""
    return {c.name.partition(", ")[2] for c in rows if c.verdict == "undecided"}


def test_they_are_those_of_the_settings(runs):
    """Parameters in the file, eight seeds, all that is measured."""
    stored = json.loads(store.read(ensembles.PLACE).attrs["parameters"])
    assert list(runs) == list(stored) == list(ensembles.SETTINGS)
    for name, part in runs.items():
        p = ensembles.parameters(name)
        # Rewards were fields of these when they were trained, and off.
        assert p.stored().items() <= stored[name].items()
        assert [*part.seed.values] == [*ensembles.seeds(name)]
        assert part.epoch.values[-1] == p.epochs
        measured = part[[*MEANING]]
        if name not in ensembles.FRESH:  # trained before it was measured
            measured = measured.drop_vars("visible")
        assert measured.to_array().notnull().all()


@pytest.mark.slow
def test_standard_transformers_learn_in_stages(found):
    """Guess, attention, logic, rollout, in every setting that learns; attention before
    logic.
    """
    rows = timescales.order(found)
    assert not failed(rows)
    assert undecided(rows) <= {ROTARY, "N = 4", "d_g = 4"}


@pytest.mark.slow
def test_the_first_stage_is_a_guess_from_the_state(found):
    """Before attention the accuracy is that of the best guess from the state alone, not
    that of the best guess from the actions of the sequence.
    """
    assert not failed(timescales.first_stage(found))
    p = ensembles.parameters("base")
    for seed in ensembles.seeds("base"):
        stream = task.streams(seed)
        teachers = task.draw_permutations(p, stream["task"])
        data = task.draw_sequences(teachers, p.n_test, p.L, stream["test"])
        knowing = guess_from_actions(teachers, data.actions, data.states[:, :-1])
        assert found["base"].plateau.sel(seed=seed) < 0.85 * knowing


@pytest.mark.slow
def test_logic_is_specific_first_in_the_solvable_student_alone(found):
    """1 - S/R before and at the time of attention: large there by both optimisers,
    small here.
    """
    rows = timescales.specificity(found)
    assert not failed(rows)
    assert undecided(rows) <= {ROTARY, "N = 4", "solvable, Adam"}


@pytest.mark.slow
def test_the_time_of_attention_grows_more_slowly_than_by_the_flow(found):
    """In L and d_g; of N eight seeds do not decide it."""
    rows = timescales.exponents(found)
    assert not failed(rows)
    assert undecided(rows) <= {"N"}


@pytest.mark.slow
def test_one_head_is_later(found, runs):
    """Its rollouts are right later than those of two heads, and what its attention
    allows is what it knows.
    """
    later, known = timescales.one_head(found, runs)
    assert (later.verdict, known.verdict) == ("bound", "agrees")


@pytest.mark.slow
def test_no_student_knows_more_than_its_attention_allows(runs):
    """One that does fails."""
    assert not failed(timescales.allowed(runs))
    base = runs["base"].assign(visible=runs["base"].visible - 0.02)
    assert failed(timescales.allowed({**runs, "base": base}))


@pytest.mark.slow
def test_a_setting_is_trained_again(tmp_path):
    """One seed of the base: the first measurements to single precision, of which
    training amplifies the rounding.
    """
    p = ensembles.parameters("base").replace(epochs=30)
    seed = ensembles.seeds("base")[0]
    ours = train(p, [seed], store=tmp_path, progress=False, workers=1, device="cpu")
    theirs = ensembles.shipped()["base"].sel(seed=[seed]).isel(epoch=slice(0, 4))
    for name in ("A", "R", "S", "loss"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-2, atol=1e-4)
