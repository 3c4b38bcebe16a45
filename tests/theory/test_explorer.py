"""The explorer's page integrates what `Flow.solve` integrates, in a browser; its sliders move what
follows from them; it needs no network.
"""

import contextlib
import functools
import html
import json
import re

import numpy as np
import pytest
import xarray as xr

from tests.browser import opener
from theory import explore, sweep
from theory.explorer import build
from theory.parameters import ParameterError
from theory.registry import TABLE, find

SETTINGS = {  # parameters that flows of a model describe, beside the default ones
    "induction_heads": lambda kind: [kind.emergence(), kind(data="orthonormal", query="last")],
    "linear_attention.merged": lambda kind: [kind(), kind(spectrum="1,1,1")],
    "linear_attention.separate": lambda kind: [kind(attention="separate", begin="aligned")],
}
# Lengths of runs over that of the figure: late times are stiff. The first with the sliders where
# they start, the others at random places.
LONGER = (1.0, 100.0, 1.0, 100.0)
SCRIPT = """
<pre id="asked"></pre><script>
const drawn = (limit) => Math.floor(random() * limit);
let seed = 1;
function random() { seed = (16807 * seed) % 2147483647; return seed / 2147483647; }
const answers = Object.keys(MODEL.flows).flatMap((name) => LONGER.map((longer, k) => {
  choose(name, {});
  if (k) for (const [f, {values}] of Object.entries(flow.fields)) place[f] = drawn(values.length);
  const end = longer * (flow.end || 8), asked = {name, end, fields: chosen(), quantities: [...flow.state, ...flow.observables]};
  if (clashing()) return asked;
  const values = numbers(), p = flow.needs.map((n) => values[n]), found = curve(flow, p, end, 12);
  const last = found.path[found.path.length - 1], middle = (found.path[0][0] + last[0]) / 2;
  return {...asked, numbers: values, times: found.times, values: found.values, half: first(flow, p, found, 0, middle)};
}));
document.getElementById("asked").textContent = JSON.stringify(answers);
</script>
"""


LONG = {"associative_memory.softmax_recall"}  # whose rates take the browser minutes
CASES = [
    pytest.param(model, p, id=f"{name}-{k}", marks=[pytest.mark.slow] * (k > 0 or name in LONG))
    for name, model in TABLE.items()
    if not model.systems and model.wing("theory").flows()
    for kind in [model.wing("theory").Parameters]
    for k, p in enumerate(SETTINGS.get(name, lambda kind: [kind()])(kind))
]


@functools.cache
def built(name, p):
    """A model's page."""
    return build.page(find(name), p)


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """Opens a page of the disk."""
    return opener(tmp_path_factory.mktemp("browser"), 60_000)


def numbers_of(text, name):
    """What a page knows of a field: its values, where it starts."""
    return json.loads(re.search(rf'"{name}": (\{{"values": .*?\}})', text).group(1))


@pytest.mark.parametrize(("model", "p"), CASES)
def test_the_page_integrates_what_the_flow_says(model, p, browse, tmp_path):
    """At random places of all sliders, up to late times, to 1e-6 of the largest value of each order
    parameter; observables too, and the first time at which the first one is half way.
    """
    page, flows = tmp_path / "page.html", model.wing("theory").flows()
    script = SCRIPT.replace("LONGER", json.dumps(LONGER))
    page.write_text(built(model.name, p).replace("</html>", script + "</html>"))
    document, said, elsewhere = browse(page)
    assert (said, elsewhere) == ([], set())
    found = re.search(r'<pre id="asked">(.*?)</pre>', document, re.DOTALL).group(1)
    answers, compared = json.loads(html.unescape(found)), 0
    assert answers
    for of in answers:
        flow = flows[of["name"]]
        if "numbers" not in of:
            with pytest.raises(ParameterError):
                flow._ask(p.replace(**of["fields"]))
            continue
        q, times, values = p.replace(**of["fields"]), of["times"], np.array(of["values"], float)
        numbers = sweep.numbers(q)
        for n, value in of["numbers"].items():
            assert value == pytest.approx(float(numbers[n]), rel=build.CLOSE), (of["name"], n)
        x = flow.state[0]
        half = {"half": x - (values[0, 0] + values[-1, 0]) / 2}
        exact = flow.solve(q, at=times, events=half, **{flow.time.name: of["end"]})
        states = max(float(np.abs(exact[x.name]).max()) for x in flow.state)
        for name, column in zip(of["quantities"], values.T, strict=True):
            curve = exact[name].values
            size = np.abs(curve).max()
            if name in flow.observables:  # one that cancels is known as well as its parts
                size = max(size, states)
            off = np.abs(column - curve).max()
            assert off <= 1e-6 * size, (of["name"], name, of["fields"], off)
        if values[0, 0] != values[-1, 0]:
            assert of["half"] == pytest.approx(float(exact.half), rel=1e-6)
            compared += 1
    assert compared > 1


@pytest.mark.parametrize(("model", "p"), CASES)
def test_a_page_is_small_and_whole(model, p):
    """No address in it, every word of the template replaced."""
    text = built(model.name, p)
    assert len(text) < 200_000 and "http" not in text.replace(
        "http://www.w3.org/1998/Math/MathML", ""
    )
    assert not re.search(r"\b(TITLE|CAPTION|CODE|DATA|FLOWS)\b", text)


def test_what_is_no_product_is_left_out():
    """c_omega is a product of functions of N, d_g and L, and none of d_h and L: one of the two
    has no slider.
    """
    p = find("state_tracking").wing("theory").Parameters()
    flow = find("state_tracking").wing("theory").flows()["state_tracking"]
    names = [s.name for s in flow._compiled[0]]
    moves = {"L": [5, 10, 20], "N": [16, 32, 64], "d_h": [64, 128, 256]}
    follows, kept = build.followed(p, names, moves)
    assert list(kept) == ["L", "N"] and list(follows["c_omega"]) == ["L", "N"]


def test_students_are_drawn_behind(tmp_path):
    """Of a file, thinned, with the sliders at its parameters; other files are refused in a line."""
    model = find("state_tracking")
    p = model.wing("theory").Parameters(L=6)
    runs = xr.Dataset(
        {
            "A": (("seed", "alpha"), np.linspace(0.1, 1, 800).reshape(2, 400)),
            "loss": (("seed", "alpha"), np.ones((2, 400))),
        },
        {"seed": [0, 1], "alpha": np.linspace(0, 4, 400)},
        {"parameters": p.as_json()},
    )
    runs.to_netcdf(tmp_path / "runs.nc")
    text = build.page(model, model.wing("theory").Parameters(), tmp_path / "runs.nc")
    drawn = json.loads(re.search(r"runs: (\{.*\})\};", text).group(1))
    assert len(drawn["times"]) == 200 and set(drawn["values"]) == {"A", "loss"}
    L = numbers_of(text, "L")
    assert L["values"][L["start"]] == 6
    runs.rename(A="B").drop_vars("loss").to_netcdf(tmp_path / "other.nc")
    for file in ("other.nc", "missing.nc"):
        with pytest.raises(ParameterError, match=file):
            build.page(model, p, tmp_path / file)


@pytest.mark.parametrize(("model", "p"), CASES)
def test_pages_open_where_a_flow_describes_the_student(model, p):
    """With default parameters, or with those of a preset; where no preset is described, the page is
    refused, and says what to set.
    """
    start, described = build.opening(model), 0
    for flow in model.wing("theory").flows().values():
        with contextlib.suppress(ParameterError):
            flow._ask(start)
            described += 1
    if not described:
        with pytest.raises(ParameterError, match="must be separate"):
            built(model.name, start)
    assert described or model.name == "linear_attention.separate"


def test_command(tmp_path, capsys):
    """Writes one file; a model without a flow is refused in a line."""
    assert explore.main(["--set", "L=5", "--out", str(tmp_path / "x.html")]) == 0
    L = numbers_of((tmp_path / "x.html").read_text(), "L")
    assert L["values"][L["start"]] == 5
    with pytest.raises(ParameterError, match="no flow"):
        explore.main(["positional_semantic", "--out", str(tmp_path / "y.html")])
    assert not (tmp_path / "y.html").exists()
