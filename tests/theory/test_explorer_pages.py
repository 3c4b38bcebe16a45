"""Pages of the explorer as files: size, words, sliders, students, the command."""

import contextlib
import json
import random
import re

import numpy as np
import pytest
import xarray as xr
from test_explorer import ALL, CASES, FEW, NOTHING, _few_places, built  # noqa: F401 (for all)

from simulate.store import runs as store
from tests.damage import damaged
from theory import explore
from theory import explorer as build
from theory.call.refusal import ParameterError
from theory.call.scope import FULL_BATCH
from theory.explorer import sliders
from theory.models.registry import find
from theory.runtime import sealed


def numbers_of(text, name):
    """What a page knows of a field: its values, where it starts."""
    return json.loads(re.search(rf'"{name}": (\{{"values": .*?\}})', text).group(1))


@pytest.mark.parametrize(("model", "p"), CASES)
def test_a_page_is_small_and_whole(model, p):
    """No address in it, every word of the template replaced."""
    text = built(model.name, p)
    assert len(text) < 200_000 and "http" not in text.replace(
        "http://www.w3.org/1998/Math/MathML", ""
    )
    assert not re.search(r"\b(TITLE|CAPTION|CODE|DATA|FLOWS)\b", text)


def test_what_is_no_product_is_left_out():
    """c_omega is a product of functions of N, d_g and L, and none of d_h and L: one of
    the two has no slider.
    """
    p = find("state_tracking").wing("theory").Parameters()
    flow = find("state_tracking").wing("theory").flows()["state_tracking"]
    names = [s.name for s in flow._compiled[0]]
    moves = {"L": [5, 10, 20], "N": [16, 32, 64], "d_h": [64, 128, 256]}
    follows, kept = sliders.followed(p, names, moves)
    assert list(kept) == ["L", "N"] and list(follows["c_omega"].parts) == ["L", "N"]


def test_sliders_keep_within_the_scope_of_the_flow():
    """A larger learning rate would need fewer steps than a flow describes; what a limit
    says is kept for all fields that it reads.
    """
    model = find("state_tracking")
    p = model.wing("theory").Parameters()
    flow = model.wing("theory").flows()["state_tracking"]
    rates = numbers_of(built("state_tracking", p), "eta")["values"]
    for eta in rates:
        flow._ask(p.replace(eta=eta))
    assert max(rates) < sliders.FACTOR[float] * p.eta
    full = p.replace(batch_size=64, n_train=64)
    assert build.held(FULL_BATCH, full)
    assert not build.held(FULL_BATCH, full.replace(n_train=128))


def test_differences_are_followed():
    """N - K is no product, but a sum of parts of N and of K."""
    p = find("associative_memory.gradient_steps").wing("theory").Parameters()
    follows, kept = sliders.followed(p, ["n_plain"], {"N": [30, 60], "K": [3, 4, 5]})
    assert list(kept) == ["N", "K"] and follows["n_plain"].way == "sum"
    assert follows["n_plain"].parts == {"N": [0, 30], "K": [0, -1, -2]}


def test_students_are_drawn_behind(tmp_path):
    """Of a file, thinned, with the sliders at its parameters; other files are refused
    in a line.
    """
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
    np.savez(tmp_path / "arrays.npz", A=runs.A)
    with pytest.raises(
        ParameterError, match=r"arrays\.npz: is no netCDF file of students \("
    ):
        build.page(model, model.wing("theory").Parameters(), tmp_path / "arrays.npz")
    runs.rename(A="B").drop_vars("loss").to_netcdf(tmp_path / "other.nc")
    for file in ("other.nc", "missing.nc"):
        with pytest.raises(ParameterError, match=file):
            build.page(model, p, tmp_path / file)


@pytest.mark.parametrize(("model", "p"), CASES)
def test_pages_open_where_a_flow_describes_the_student(model, p):
    """With default parameters, or with those of a preset; where no preset is described,
    the page is refused, and says what to set.
    """
    start, described = build.opening(model), 0
    flows = model.wing("theory").flows()
    for flow in flows.values():
        with contextlib.suppress(ParameterError):
            flow._ask(start)
            described += 1
    if flows and not described:
        with pytest.raises(ParameterError, match="must be separate"):
            built(model.name, start)
    assert described or not flows or model.name == "linear_attention.separate"


# Bytes: 59,000 and 78,000 when these were set.
@pytest.mark.parametrize(
    ("places", "most"),
    [(FEW, 100_000), pytest.param(ALL, 200_000, marks=pytest.mark.slow)],
)
def test_command(places, most, tmp_path, monkeypatch):
    """Writes one file; a model with nothing to draw is refused in a line."""
    monkeypatch.setattr(sliders, "STEPS", places)
    assert explore.main(["--set", "L=5", "--out", str(tmp_path / "x.html")]) == 0
    text = (tmp_path / "x.html").read_text()
    L = numbers_of(text, "L")
    assert L["values"][L["start"]] == 5 and len(text) < most
    assert build.offers(find("state_tracking"))
    for name in NOTHING:
        assert not build.offers(find(name))
        with pytest.raises(ParameterError, match=f"^{name}: has no flow and no curve"):
            explore.main([name, "--out", str(tmp_path / "y.html")])
        assert not (tmp_path / "y.html").exists()


def test_damaged_students_are_not_drawn(tmp_path):
    """A run of this toolkit with another bit, words for numbers, parameters of another
    type.
    """
    model = find("state_tracking")
    p, file, rng = (
        model.wing("theory").Parameters(L=6),
        tmp_path / "runs.nc",
        random.Random(0),
    )
    run = xr.Dataset(
        {"A": (("seed", "alpha"), np.random.default_rng(0).random((2, 40)))},
        {"seed": [0, 1], "alpha": np.linspace(0, 4, 40)},
        {"parameters": p.as_json(), "kind": sealed.KIND},
    )
    store.write(run, file)
    flows = [*model.wing("theory").flows().values()]
    truth, raw = build.students(file, flows), file.read_bytes()
    refused = 0
    for _ in range(60):
        file.write_bytes(damaged(raw, rng))
        try:
            assert build.students(file, flows) == truth
        except ParameterError as error:
            refused += 1
            assert str(file) in str(error) and "\n" not in str(error)
    assert refused > 40
    odd = [
        run.assign(A=run.A.astype(str)),
        run.assign_coords(alpha=run.alpha.astype(str)),
    ]
    odd += [run.assign_attrs(parameters=said) for said in ("[1]", "{", "[" * 10**4, 3)]
    for other in odd:
        store.write(other.assign_attrs(kind="foreign"), file)
        with pytest.raises(ParameterError, match="--runs"):
            build.page(model, p, file)
