"""Digits that double precision loses, and steps that integrations take, are those of
`golden/digits.json`; ``pytest --freeze`` adds a model that is not there.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from theory.call.refusal import ParameterError
from theory.equations import digits
from theory.models.registry import TABLE, find
from theory.numbers.balls import Interval
from verify.rates import described, length

FILE = Path(__file__).parents[1] / "golden/digits.json"
LONG = "k_hop"
LEAST, SPREAD = (
    1.0,
    1.0,
)  # digits that any formula may lose, and by which machines may differ
FASTER, SLOWER = 0.8, 1.25  # share of the steps that were frozen
NOT_ALONG = ()  # a minute to the end of its run; its times are certified


def short(name):
    """Whether a model takes less than two seconds."""
    family, _, system = name.partition(".")
    return family in ("associative_memory", "linear_attention") and system not in LONG


MODELS = [
    pytest.param(m.name, marks=() if short(m.name) else pytest.mark.slow)
    for m in TABLE.values()
    if not m.systems
]


def of_flow(flow, p, end):
    """Digits lost by the solution of a flow at a time, by order parameter, relative to
    the largest value before.
    """
    path = flow.solve(p, until=end)
    true = flow.certify(p, until=end)
    sizes = {x.name: float(abs(path[x.name]).max()) for x in flow.state}
    return {
        x: digits.lost(float(path[x][-1]), true[x], n) for x, n in sizes.items() if n
    }


def along(model):
    """Steps of every flow of a model, and digits lost at the end of a run."""
    for flow in getattr(model.wing("theory"), "flows", dict)().values():
        p = described(flow, model)
        end = length(flow, p)
        steps = flow.solve(p, at=[end], until=end).attrs["steps"]
        try:
            of = {} if flow.name in NOT_ALONG else of_flow(flow, p, end)
        except ParameterError:  # has no certified value
            of = {}
        yield flow.name, {"steps": steps, "lost": rounded(of)}


def rounded(lost):
    """To a tenth of a digit, those that are more than any formula may lose."""
    return {name: round(value, 1) for name, value in lost.items() if value > LEAST}


def measured(model):
    """All numbers of a model."""
    theory = model.wing("theory")
    of = digits.of_model(theory)
    worst = {name: max(at.values()) for name, at in of.items()}
    onset = model.has("theory", "onset") and model.wing("theory", "onset").onset(
        theory.Parameters()
    )
    times = digits.of_times(onset) if onset and onset.crossings else {}
    return {
        "equations": len(of),
        "numbers": sum(map(len, of.values())),
        "lost": rounded(worst),
        "times": rounded(times),
        "flows": dict(along(model)),
    }


def compared(found, frozen):
    """What is not as it was."""
    for part in ("equations", "numbers"):
        if found[part] < frozen[part]:
            yield f"{part}: {found[part]}, frozen {frozen[part]}"
    pairs = [(found["lost"], frozen["lost"]), (found["times"], frozen["times"])]
    for name, flow in found["flows"].items():
        was = frozen["flows"][name]
        pairs.append((flow["lost"], was["lost"]))
        if not FASTER < flow["steps"] / was["steps"] < SLOWER:
            yield f"{name}: {flow['steps']} steps, frozen {was['steps']}"
    for now, was in pairs:
        for name in now.keys() | was.keys():
            if abs(now.get(name, LEAST) - was.get(name, LEAST)) > SPREAD:
                yield f"{name}: loses {now.get(name)} digits, frozen {was.get(name)}"


@pytest.mark.parametrize("name", MODELS)
def test_digits_and_steps_are_the_frozen_ones(name, request):
    """Of every closed form at the edges of parameters, every time and every flow of a
    model.
    """
    frozen = json.loads(FILE.read_text()) if FILE.exists() else {}
    found = measured(find(name))
    if request.config.getoption("freeze") and name not in frozen:
        rows = {**frozen, name: found}
        lines = (f"{json.dumps(x)}: {json.dumps(rows[x])}" for x in sorted(rows))
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return
    assert not [*compared(found, frozen[name])]
    assert max(found["times"].values(), default=0) < 4  # twelve digits are right


def test_what_is_lost_is_seen():
    """A cancellation, more steps, a number that is missing."""
    true = Interval(Decimal("1"), Decimal("1"))
    assert digits.lost(1 + 2.0**-40, true) == pytest.approx(13 * 0.30103, abs=1e-6)
    assert digits.lost(1.0, true) == 0 and digits.lost(1.0, true, 0.5) == 0
    flow = {"steps": 100, "lost": {"x": 4.0}}
    row = {
        "equations": 3,
        "numbers": 9,
        "lost": {"f": 5.0},
        "times": {},
        "flows": {"own": flow},
    }
    assert not [*compared(row, row)]
    for other in (
        {"equations": 2},
        {"numbers": 8},
        {"lost": {"f": 7.0}},
        {"lost": {"f": 5.0, "g": 3.0}},
        {"lost": {}},
        {"times": {"t": 4.0}},
        {"flows": {"own": flow | {"steps": 130}}},
        {"flows": {"own": flow | {"lost": {"x": 5.5}}}},
    ):
        assert len([*compared(row | other, row)]) == 1, other
