"""The explorer's page integrates what `Flow.solve` integrates, in a browser; its sliders move what
follows from them; it needs no network.
"""

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
PLACES = 3  # random places of the sliders per flow
LONGER = (1.0, 100.0)  # times the length of the figure: late times are stiff
SCRIPT = """
<pre id="asked"></pre><script>
const answers = ASKED.map(([name, end, given]) => {
  const flow = MODEL.flows[name];
  flow.moves.forEach((f) => { place[f] = given[f]; });
  choose(name); flow.moves.forEach((f) => { place[f] = given[f]; });
  if (clashing()) return null;
  const values = numbers(), p = flow.needs.map((n) => values[n]), found = curve(flow, p, end, 12);
  return [name, values, found.times, found.values, first(flow, p, found, 0, MIDDLE * (found.values[0][0] + found.path[found.path.length - 1][0]))];
});
document.getElementById("asked").textContent = JSON.stringify(answers);
</script>
"""


CASES = [
    pytest.param(model, p, id=f"{name}-{k}", marks=[pytest.mark.slow] * (k > 0))
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


def data(text):
    """What a page knows, flows aside."""
    found = re.search(r"const MODEL = (\{.*\});", text).group(1)
    return json.loads(re.sub(r'"flows": \{.*\}, "fields"', '"fields"', found))


@pytest.mark.parametrize(("model", "p"), CASES)
def test_the_page_integrates_what_the_flow_says(model, p, browse, tmp_path):
    """At random places of all sliders, up to late times, to 1e-6 of the largest value of each order
    parameter; and the first time at which the first one is half way.
    """
    text = built(model.name, p)
    known, rng = data(text), np.random.default_rng(1)
    flows = {
        n: f for n, f in model.wing("theory").flows().items() if json.dumps(n) + ": {rates" in text
    }
    asked = []
    for name in flows:
        end = float(
            re.search(re.escape(json.dumps(name)) + r': \{rates.*?"end": ([\d.e+-]+|null)', text)
            .group(1)
            .replace("null", "8")
        )
        for k in range(PLACES):
            places = {
                f: int(rng.integers(len(v["values"])) if k else v["start"])
                for f, v in known["fields"].items()
            }
            asked.append([name, end * LONGER[k % 2], places])
    page = tmp_path / "page.html"
    script = SCRIPT.replace("ASKED", json.dumps(asked)).replace("MIDDLE", "0.5")
    page.write_text(text.replace("</html>", script + "</html>"))
    document, said, elsewhere = browse(page)
    assert (said, elsewhere) == ([], set())
    answers = json.loads(
        html.unescape(re.search(r'<pre id="asked">(.*?)</pre>', document, re.S).group(1))
    )
    assert len(answers) == PLACES * len(flows) > 0
    for (name, end, places), answer in zip(asked, answers, strict=True):
        flow = flows[name]
        moved = {f: known["fields"][f]["values"][k] for f, k in places.items()}
        if answer is None:
            with pytest.raises(ParameterError):
                flow._ask(p.replace(**moved))
            continue
        _, values, times, states, half = answer
        q = p.replace(**moved)
        numbers = sweep.numbers(q, [s.name for s in flow._compiled[0]])
        for n, value in values.items():
            assert value == pytest.approx(float(numbers[n]), rel=1e-9, abs=1e-300), (name, n)
        middle = 0.5 * (states[0][0] + states[-1][0])
        exact = flow.solve(
            numbers, at=times, events={"half": flow.state[0] - middle}, **{flow.time.name: end}
        )
        for i, x in enumerate(flow.state):
            curve = exact[x.name].values
            off = np.abs(np.array(states)[:, i] - curve).max()
            assert off <= 1e-6 * np.abs(curve).max(), (name, x, places, off)
        if half is not None and np.isfinite(exact.half):
            assert half == pytest.approx(float(exact.half), rel=1e-6)


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
    assert list(kept) == ["L", "N"] and list(follows["c_omega"]["factors"]) == ["L", "N"]


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
    found = data(build.page(model, model.wing("theory").Parameters(), tmp_path / "runs.nc"))
    assert len(found["runs"]["times"]) == 200 and set(found["runs"]["values"]) == {"A", "loss"}
    assert found["fields"]["L"]["values"][found["fields"]["L"]["start"]] == 6
    runs.rename(A="B").drop_vars("loss").to_netcdf(tmp_path / "other.nc")
    for file in ("other.nc", "missing.nc"):
        with pytest.raises(ParameterError, match=file):
            build.page(model, p, tmp_path / file)


def test_command(tmp_path, capsys):
    """Writes one file; a model without a flow is refused in a line."""
    assert explore.main(["--set", "L=5", "--out", str(tmp_path / "x.html")]) == 0
    assert data((tmp_path / "x.html").read_text())["numbers"]["L"] == 5
    with pytest.raises(ParameterError, match="no flow"):
        explore.main(["positional_semantic", "--out", str(tmp_path / "y.html")])
    assert not (tmp_path / "y.html").exists()
