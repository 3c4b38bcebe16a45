"""The explorer's page integrates what `Flow.solve` integrates, in a browser, evaluates
closed forms as `Equation` does, and shows tables; its sliders move what follows from
them; it needs no network.
"""

import functools
import html
import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

from tests.browser import opener
from tests.firefox import Firefox
from theory import Equation
from theory import explorer as build
from theory.call import sweep
from theory.call.refusal import ParameterError
from theory.equations.charts import gridded
from theory.explorer import curves, sliders
from theory.models.registry import TABLE, find

ROOT = Path(__file__).parents[2]
SETTINGS = {  # parameters that flows of a model describe, beside the default ones
    "state_tracking": lambda kind: [kind(), kind.demo().replace(weight_decay=0.002)],
    "induction_heads": lambda kind: [
        kind.emergence(),
        kind(data="orthonormal", query="last"),
    ],
    "linear_attention.merged": lambda kind: [kind(), kind(spectrum="1,1,1")],
    "linear_attention.separate": lambda kind: [
        kind(attention="separate", begin="aligned")
    ],
}
# Lengths of runs over that of the figure: late times are stiff. The first with the
# sliders where they start, the others at random places.
LONGER = (1.0, 100.0, 1.0, 100.0)
PLACES = 6  # of the sliders, for closed forms and tables
ALL, FEW = sliders.STEPS, sliders.STEPS // 3  # places on either side
SCRIPT = """
<pre id="asked"></pre><script>
const drawn = (limit) => Math.floor(random() * limit);
let seed = 1;
function random() { seed = (16807 * seed) % 2147483647; return seed / 2147483647; }
function put(name, k) {
  choose(name, {});
  if (k) for (const [f, {values}] of Object.entries(flow.fields)) place[f] = drawn(values.length);
}
const timed = Object.keys(MODEL.flows).filter((name) => MODEL.flows[name].time);
const answers = timed.flatMap((name) => LONGER.map((longer, k) => {
  put(name, k);
  const end = longer * (flow.end || 8), asked = {name, end, fields: chosen(), quantities: [...flow.state, ...flow.observables]};
  if (clashing()) return asked;
  const values = numbers(), p = flow.needs.map((n) => values[n]), found = curve(flow, p, end, 12);
  const last = found.path[found.path.length - 1], middle = (found.path[0][0] + last[0]) / 2;
  return {...asked, numbers: values, times: found.times, values: found.values, half: first(flow, p, found, 0, middle)};
}));
const others = Object.keys(MODEL.flows).filter((name) => MODEL.flows[name].curves);
const untimed = others.flatMap((name) => Array.from({length: PLACES}, (_, k) => {
  put(name, k);
  if (clashing()) return {name, fields: chosen()};
  const over = Object.keys(flow.fields)[k % Object.keys(flow.fields).length];
  return {name, fields: chosen(), over, curves: flow.curves, ...along(over)};
}));
document.getElementById("asked").textContent = JSON.stringify({answers, untimed});
</script>
"""


NOTHING = {"associative_memory.trigger_task"}  # no curves
# Their tables take seconds: a page of each is opened with smaller ones, below.
TABLED = {
    "positional_semantic": {
        "OF_BRANCHES": np.array([0.2, 0.3]),
        "OF_THRESHOLDS": np.array([0.2, 0.3]),
        "ALPHAS": np.array([1.0, 2.0]),
    },
    "associative_memory.superposition": {"PLACES": {"d": [16, 64], "N": [4, 64, 1024]}},
    "associative_memory.noisy_bigram": {
        "PLACES": {"N": [16, 64], "a": [0.3, 0.7], "n": [8, 64]}
    },
}

# Pages that take half a minute; of statements, examples and other models all but one.
LONG = (
    "induction_heads.bursty",
    "induction_heads",
    "linear_attention.separate",
    "linear_attention.merged",
)
CASES = [
    pytest.param(
        model, p, id=f"{name}-{k}", marks=[pytest.mark.slow] * (k > 0 or name in LONG)
    )
    for name, model in TABLE.items()
    if not model.systems and name not in {*NOTHING, *TABLED}
    for kind in [model.wing("theory").Parameters]
    for k, p in enumerate(SETTINGS.get(name, lambda kind: [kind()])(kind))
]


@pytest.fixture(autouse=True, scope="module")
def _few_places():
    """A third of the places on sliders, from end to end: what fits together is asked
    for every pair of places.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliders, "STEPS", FEW)
        yield


@functools.cache
def built(name, p):
    """A model's page."""
    return build.page(find(name), p)


@pytest.fixture(
    scope="module", params=["chromium", pytest.param("firefox", marks=pytest.mark.slow)]
)
def browse(request, tmp_path_factory):
    """Opens a page of the disk."""
    place = tmp_path_factory.mktemp("browser")
    if request.param == "chromium":
        yield opener(place, 60_000)
        return
    browser = Firefox(place)
    yield browser
    browser.close()


@pytest.mark.parametrize(("model", "p"), CASES)
def test_the_page_integrates_what_the_flow_says(model, p, browse, tmp_path):
    """At random places of all sliders, up to late times, to 1e-6 of the largest value
    of each order parameter; observables too, and the first time at which the first one
    is half way. Closed forms, along each slider.
    """
    integrates(model, p, built(model.name, p), browse, tmp_path / "page.html")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["statement file"])
def test_pages_of_models_of_others(name, browse, tmp_path, monkeypatch):
    """The statement of the tutorial, and a package of the examples; with all places on
    sliders.
    """
    monkeypatch.setattr(sliders, "STEPS", ALL)
    if name:
        tutorial = (ROOT / "docs/tutorial.md").read_text()
        (tmp_path / "stated.py").write_text(
            re.search(r"%%writefile retrieval.py\n(.*?)```", tutorial, re.DOTALL).group(
                1
            )
        )
        model = find(str(tmp_path / "stated.py"))
    p = build.opening(model)
    integrates(model, p, build.page(model, p), browse, tmp_path / "page.html")


def integrates(model, p, text, browse, page):
    """Compare what a page answers with the model's flows and equations."""
    flows = model.wing("theory").flows()
    of_page = asked(text, browse, page)
    follows_equations(model, p, of_page["untimed"])
    answers, compared = of_page["answers"], 0
    assert bool(answers) == bool(flows)
    for of in answers:
        flow = flows[of["name"]]
        if "numbers" not in of:
            with pytest.raises(ParameterError):
                flow._ask(p.replace(**of["fields"]))
            continue
        q, times, values = (
            p.replace(**of["fields"]),
            of["times"],
            np.array(of["values"], float),
        )
        numbers = sweep.numbers(q)
        for n, value in of["numbers"].items():
            assert value == pytest.approx(float(numbers[n]), rel=sliders.CLOSE), (
                of["name"],
                n,
            )
        x = flow.state[0]
        # A curve that returns to its start, as under weight decay, has no middle to
        # pass.
        gone = abs(values[-1, 0] - values[0, 0]) > 1e-3 * np.abs(values[:, 0]).max()
        half = {"half": x - (values[0, 0] + values[-1, 0]) / 2} if gone else {}
        exact = flow.solve(q, at=times, events=half, **{flow.time.name: of["end"]})
        states = max(float(np.abs(exact[x.name]).max()) for x in flow.state)
        # The absolute error that the page allows a step.
        a_step = 1e-9 * min([1.0, *(abs(v) for v in values[0, : len(flow.state)] if v)])
        for name, column in zip(of["quantities"], values.T, strict=True):
            curve = exact[name].values
            size = np.abs(curve).max()
            if (
                name in flow.observables
            ):  # one that cancels is known as well as its parts
                size = max(size, states)
            off = np.abs(column - curve).max()
            # One that stays 0 has the errors of several steps added up (2.2 of them
            # were seen).
            floor = 10 * a_step if size < a_step else a_step
            assert off <= max(1e-6 * size, floor), (of["name"], name, of["fields"], off)
        if gone:
            assert of["half"] == pytest.approx(float(exact.half), rel=1e-6)
            compared += 1
    assert compared > 1 or not flows


def asked(text, browse, page):
    """What a page answers in a browser; it says nothing to the console and asks nobody
    else.
    """
    script = SCRIPT.replace("LONGER", json.dumps(LONGER)).replace("PLACES", str(PLACES))
    page.write_text(text.replace("</html>", script + "</html>"))
    document, said, elsewhere = browse(page)
    assert (said, elsewhere) == ([], set())
    found = re.search(r'<pre id="asked">(.*?)</pre>', document, re.DOTALL).group(1)
    return json.loads(html.unescape(found))


def follows_equations(model, p, answers):
    """Closed forms of a page are the equations at the same parameters, to rounding."""
    equations, compared = model.wing("theory").equations(), 0
    for of in answers:
        if of["name"] != curves.CLOSED or "values" not in of:
            continue
        for x, row in zip(of["times"], np.array(of["values"], float), strict=True):
            try:
                q = p.replace(**of["fields"] | {of["over"]: x})
            except ParameterError:
                assert np.isnan(row).all()
                continue
            for name, value in zip(of["curves"], row, strict=True):
                with np.errstate(all="ignore"):
                    exact = float(equations[name].evaluate(q))
                if not np.isfinite(exact):  # JSON has no infinity
                    exact = np.nan
                assert value == pytest.approx(
                    exact, rel=1e-8, abs=1e-300, nan_ok=True
                ), (name, q)
                compared += np.isfinite(value)
    assert compared > 10 * PLACES


def one(name, theory, p):
    """Entries of a model's tables, each from the function that a user calls at one
    point.
    """
    if name == "positional_semantic":
        q = p.replace(omega=0.2, order=8)
        point = theory.solve(q.replace(alpha=2.0), "semantic")
        yield (
            "branches",
            "theta_semantic",
            {"omega": 0.2, "alpha": 2.0},
            point.state.theta,
        )
        found = theory.thresholds(q)
        yield "thresholds", "alpha_l", {"omega": 0.2}, float(found.alpha_l)
    elif name.endswith("superposition"):
        at = {"d": 16, "N": 64}
        yield "recall", "recall_gaussian", at, theory.gaussian(p, **at)
        yield "recall", "recall_sphere", at, theory.sphere(p, **at)
    else:
        at = {"N": 64, "a": 0.7, "n": 8}
        yield (
            "recovery at finite N",
            "value_recovered",
            at,
            theory.value_recovered(p, **at),
        )
        yield (
            "recovery at finite N",
            "noise_answered",
            at,
            theory.feed_forward_success(p, **at),
        )


def test_a_grid_says_whose_values_it_has():
    """A value at every combination, its dimensions in the order of the fields;
    reference and status of the equation, unless others are given.
    """
    stated = Equation("x", sp.Symbol("x"), sp.S.One, "Eq. (1)", "closure")
    kinds = {"x": (lambda p, a, b: p + 10 * a + b, "a number")}
    made = gridded(
        100, {"a": [1, 2], "b": [3, 4, 5]}, kinds, stated, "note", reference="Eq. (2)"
    )
    assert made.x.dims == ("a", "b") and float(made.x.sel(a=2, b=5)) == 125
    assert made.x.attrs == {"long_name": "a number"}
    assert made.attrs == {"reference": "Eq. (2)", "status": "closure", "note": "note"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.slow] * n.startswith("positional"))
        for n in TABLED
    ],
)
def test_a_page_shows_tables(name, browse, tmp_path, monkeypatch):
    """At every place of the sliders the numbers that Python computed, one by one;
    entries of the tables are what single calls give, up to the tolerance of fixed
    points.
    """
    model = find(name)
    charts, theory = curves.charts(model), model.wing("theory")
    p = theory.Parameters()
    for grid, smaller in TABLED[name].items():
        monkeypatch.setattr(
            importlib.import_module(charts.charts.__module__), grid, smaller
        )
    made, compared = charts.charts(p), 0
    for table, variable, at, value in one(name, theory, p):
        assert float(made[table][variable].sel(at)) == pytest.approx(value, rel=1e-6)
    monkeypatch.setattr(charts, "charts", lambda q: made)
    found = asked(build.page(model, p), browse, tmp_path / "page.html")
    if not name.startswith("positional_semantic"):  # no closed form of its parameters
        follows_equations(model, p, found["untimed"])
    for of in found["untimed"]:
        if of["name"] == curves.CLOSED:
            continue
        for x, row in zip(of["times"], np.array(of["values"], float), strict=True):
            at = made[of["name"]].sel(of["fields"] | {of["over"]: x})
            for n, value in zip(of["curves"], row, strict=True):
                assert value == pytest.approx(float(at[n]), rel=1e-8, nan_ok=True), (
                    n,
                    x,
                )
                compared += np.isfinite(value)
    assert compared > 10
