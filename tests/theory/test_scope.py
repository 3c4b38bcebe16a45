"""Every function, flow and command rejects students that its theory does not describe,
in one line; with ``beyond=True`` the result is marked.
"""

import dataclasses
import itertools
import warnings

import numpy as np
import pytest
import xarray as xr
from test_swept_numbers import CASES, of, small

from theory import onset
from theory import state_tracking as st
from theory.call import scope
from theory.call.refusal import ParameterError
from theory.models.registry import MODELS, TABLE, find
from theory.state_tracking import quadrature
from verify.compare import same_students

FUNCTIONS = [(system, name) for system, cases in CASES.items() for name in cases]
# Teachers, a start or an optimiser of one's own: no field says so.
SEEN_IN_RUNS = {"permutations", "pretrain", "batch_size"}
BROKEN = {  # where single values do not break it
    "such that bigrams are not learnt before half of the first layer is on the"
    " previous token": {"m": 4, "k": 10, "D": 69, "U": 172, "rho": 0.113},
    "so large that unigrams take at most half the time of bigrams": {
        "m": 7,
        "k": 40,
        "D": 40,
        "U": 7,
        "rho": 1.0,
    },
    "at most 10^5 states": {"N": 10**5 + 1},
}
OTHERS = (0.0, 1, 2, 3, 7, 40, 0.01, 0.1, 0.5, 0.9, 5.0, True, False, None, "2,1")


def values_of(field):
    """What a field may be, and a few that it may not."""
    return field.metadata["allowed"].choices or OTHERS


def outside(p, limit):
    """Parameters that break one limit, by its field or those that it reads, from these
    parameters or else from a preset: what a field may be can depend on others.
    """
    if limit.words in BROKEN:
        return p.replace(**BROKEN[limit.words])
    bases = itertools.chain([p], (preset() for preset in p.presets().values()))
    return next((q for base in bases if (q := broken(base, limit)) is not None), None)


def broken(p, limit):
    """The same from these parameters alone."""
    fields = {f.name: f for f in dataclasses.fields(p)}
    for names in ([limit.field], [limit.field, *limit.reads]):
        for values in itertools.product(*(values_of(fields[n]) for n in names)):
            try:
                q = p.replace(**dict(zip(names, values, strict=True)))
            except ParameterError:
                continue
            if not limit.holds(q, None):
                return q
    return None


def scopes_of(system, name):
    """Scopes that a function asks; a family's function has those of its headline."""
    return of(system, name).scopes.values()


@pytest.mark.parametrize("system, name", FUNCTIONS)
def test_every_number_asks_its_scope(system, name):
    """Each limit of each function, broken alone: refused, naming the field."""
    for own in scopes_of(system, name):
        for limit in own.limits:
            q = outside(small(system, name), limit)
            if q is None:
                assert limit.field in SEEN_IN_RUNS, limit.field
                continue
            levels = [k for k, v in of(system, name).scopes.items() if v is own and k]
            refused(
                of(system, name),
                q,
                own,
                limit,
                **({"level": levels[0]} if levels else {}),
            )


def refused(function, q, own, limit, **named):
    """In one line: the first that is broken, and this limit is among them."""
    lines = own.applies(q)
    assert any(
        line.startswith(f"{limit.field} = ") and "must be" in line for line in lines
    )
    with pytest.raises(ParameterError) as error:
        function(q, **named)
    message = str(error.value)
    assert message in (lines[0], lines[0] + own.proposal(q))
    assert "\n" not in message and own.theory in message


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_flow_asks_its_scope(name):
    """Each limit of each flow."""
    for system in find(name).wing("theory").flows().values():
        assert system.scope is not None, system.name
        kind = find(name).wing("theory").Parameters
        for limit in system.scope.limits:
            q = outside(kind(), limit)
            if q is None:
                assert limit.field in SEEN_IN_RUNS
                continue
            refused(system.solve, q, system.scope, limit, **{system.time.name: 1.0})
            refused(system.descend, q, system.scope, limit, step=0.1, steps=1)


@pytest.mark.parametrize("system, name", FUNCTIONS)
def test_every_field_is_thought_of(system, name):
    """A field of a run is limited, enters the numbers, or is said not to matter; never
    two of them.
    """
    p = small(system, name)
    usual = p.values()
    for own in scopes_of(system, name):
        limited = own.reads
        assert not limited & set(own.free)
        for field in dataclasses.fields(p):
            if (
                field.metadata.get("theory_only")
                or field.name in limited
                or field.name in own.free
            ):
                continue
            if field.name in own.enters:
                continue
            moved, others = False, 0
            for value in values_of(field):
                try:
                    found = p.replace(**{field.name: value}).values()
                except ParameterError:
                    continue
                others += value != getattr(p, field.name)
                moved = moved or any(
                    not np.array_equal(found[n], usual.get(n), equal_nan=True)
                    for n in found
                )
            assert moved or not others, (
                f"{field.name}: neither limited by {own.theory} nor said to be free"
            )


def test_who_insists_gets_an_answer_that_says_so():
    """A warning, once; the result's attributes, an onset's notes; and nothing of it
    afterwards.
    """
    p = small("state_tracking").replace(optimizer="adam")
    with pytest.warns(scope.BeyondScope, match="optimizer = 'adam'") as seen:
        found = st.trajectory(p, 0.5, beyond=True)
    assert len(seen) == 1
    assert (
        found.attrs["status"] == "beyond its scope"
        and "sgd" in found.attrs["assumptions"]
    )
    with pytest.warns(scope.BeyondScope):
        notes = st.onset(p, beyond=True).notes
    assert any("optimizer = 'adam'" in note for note in notes)
    with pytest.warns(scope.BeyondScope):
        curve = st.flow().solve(p, alpha=0.5, beyond=True)
    assert curve.attrs["status"] == "beyond its scope"
    with pytest.raises(ParameterError):
        st.flow().solve(p, alpha=0.5)
    plain = p.replace(optimizer="sgd")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert st.trajectory(plain, 0.5, beyond=True).attrs["status"] == "closure"


@pytest.mark.parametrize(
    "lengths", [[3], [*range(3, 20)]], ids=["one by one", "together"]
)
def test_a_sweep_beyond_says_at_which_values(lengths):
    """In the result of a flow, whichever point is the broken one."""
    for decays in ([0.1, 0.0], [0.0, 0.1]):
        with pytest.warns(scope.BeyondScope):
            found = st.flow().solve(
                st.Parameters(),
                until=1,
                beyond=True,
                weight_decay=decays,
                L=np.array(lengths)[:, None],
            )
        assert found.attrs["status"] == "beyond its scope"
        assert found.attrs["assumptions"].count("weight_decay = 0.1: must be 0.0") == 1
        assert "at weight_decay = 0.0" not in found.attrs["assumptions"]


def test_a_sweep_asks_once(monkeypatch):
    """However many points; a swept field that a limit reads is looked at, value by
    value.
    """
    asked, plain = [], scope.Scope.applies
    monkeypatch.setattr(
        scope.Scope, "applies", lambda *a, **k: (asked.append(1), plain(*a, **k))[1]
    )
    p = small("state_tracking")
    quadrature.emergence_time(p, eta=np.linspace(0.1, 1, 1000))
    assert len(asked) == 1
    with pytest.raises(ParameterError, match="weight_decay = 0.1"):
        quadrature.emergence_time(p, weight_decay=[0.0, 0.1])


@pytest.mark.parametrize("name", sorted(MODELS))
def test_commands_ask(name):
    """`theory.onset` refuses what the model's onset does not describe."""
    model = find(name)
    function = model.wing("theory", "onset").onset
    usual = model.wing("theory").Parameters()
    for own in function.scopes.values():
        for limit in own.limits:
            q = outside(usual, limit)
            if q is None:
                continue
            changed = [f for f, x in q.as_dict().items() if x != getattr(usual, f)]
            said = [x for f in changed for x in ("--set", f"{f}={getattr(q, f)}")]
            refused(lambda _, said=said: onset.main([name, *said]), q, own, limit)


def curve_and_runs():
    """A curve that follows three seeds, and its students."""
    p = small("state_tracking")
    times = np.linspace(0, 1, 4)
    data = xr.Dataset(
        {"A": (("seed", "alpha"), np.outer([1.0, 2.0, 3.0], 1 + times))},
        {"seed": [0, 1, 2], "alpha": times},
        {"parameters": p.as_json(), "model": "state_tracking"},
    )
    return p, data.assign_attrs(kind="theory"), data


def test_what_is_compared_is_of_the_same_students():
    """Seeds, fields, optimiser and teachers; curves of one's own, without attributes,
    pass.
    """
    p, curve, runs = curve_and_runs()
    same_students.check_curve(curve, runs)
    same_students.check_curve(curve.drop_attrs(), runs)
    same_students.check_curve(curve.mean("seed"), runs.drop_attrs())
    adam = p.replace(optimizer="adam").as_json()
    own = '{"given_permutations": [[0]]}'
    for ours, theirs, words in [
        (
            curve.isel(seed=[0, 1]),
            runs,
            r"of seeds \[0, 1\], the runs are of \[0, 1, 2\]",
        ),
        (curve, runs.isel(seed=[0, 1]), r"of seeds \[0, 1, 2\]"),
        (curve, runs.mean("seed"), "the runs are one curve"),
        (curve.drop_vars("seed"), runs.isel(seed=[0]), "of 3 seeds, the runs are of 1"),
        (
            curve,
            runs.assign_attrs(parameters=p.replace(eta=0.1).as_json()),
            "eta = 0.5: of the",
        ),
        (
            curve.assign_attrs(parameters=adam),
            runs.assign_attrs(parameters=adam),
            "optimizer = 'adam': must be sgd",
        ),
        (
            curve,
            runs.assign_attrs(configuration=own),
            "permutations = given by the user",
        ),
        (curve, runs.assign_attrs(parameters="{"), "parameters is not a JSON object"),
        (curve, runs.A, "runs: must be a Dataset, got DataArray"),
    ]:
        with pytest.raises(ParameterError, match=words):
            same_students.check_curve(ours, theirs)
    with scope.allow_beyond(), pytest.warns(scope.BeyondScope):
        same_students.check_curve(curve, runs.assign_attrs(configuration=own))
