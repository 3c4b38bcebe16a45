"""What follows from statements now is what was derived by hand before: flows at odd settings, every
equation's number, hitting times and onsets, as `golden/moved.json` was written by the code that the
engine replaced.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from theory.associative_memory import factual_recall as recall

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/moved.json").read_text())
FLOW, NUMBER = 1e-12, 1e-9  # relative: rounding; what quadratures and integrations are held to
SIZES = ("lambda_", "a_", "tr", "gamma", "P_0", "c", "D", "N")


def example():
    """The model in its package, if that is there."""
    return pytest.importorskip("linear_attention.theory")


def hold(flow, points, known):
    """Rates and observables at stored points."""
    table = {**flow.expanded, **{k: flow._spell(v) for k, v in flow.observables.items()}}
    for point in points:
        expected = {**point["rates"], **point["observables"]}
        assert expected.keys() == {str(x) for x in table}
        for x, expr in table.items():
            at = {s: (known | point["at"])[s.name] for s in expr.free_symbols}
            assert float(expr.subs(at).evalf(20)) == pytest.approx(expected[str(x)], rel=FLOW)


def test_flow_of_factual_recall():
    """Three settings, three points each."""
    for row in GOLDEN["associative_memory.factual_recall"]:
        hold(recall.flow(), row["points"], row["numbers"])


@pytest.mark.parametrize("name", ["merged", "merged_white", "separate"])
def test_flows_of_linear_attention(name):
    """One direction, three, and five of which two are equal."""
    theory = example()
    for row in GOLDEN[f"linear_attention.{name}"]:
        p = theory.Parameters(spectrum=row["spectrum"], N=row["N"], start=0.07)
        known = {k: v for k, v in p.values().items() if k.startswith(SIZES) and np.ndim(v) == 0}
        flows = {"merged_white": theory.merged.white_flow, "separate": theory.separate.flow}
        make = flows.get(name, lambda p=p: theory.merged.flow(p.eigenvalues.size))
        hold(make(), row["points"], known)


def test_rates_of_all_weights():
    """Loss, and one entry's rate of every weight, of two heads of rank two."""
    theory = example()
    task = theory.merged.S.equations()
    places = {"v": ("g", (2,)), "U": ("gkl", None), "K": ("gsi", None), "Q": ("gsj", (2, 1, 1))}
    for row in GOLDEN["linear_attention all weights"]:
        p = theory.Parameters(spectrum=row["spectrum"], N=row["N"])
        D, w = p.eigenvalues.size, {k: np.array(x) for k, x in row["weights"].items()}
        products = {
            "merged": np.einsum("h,hij->ij", w["v"], w["U"]),
            "separate": np.einsum("h,hri,hrj->ij", w["v"], w["K"], w["Q"]),
        }
        for name, W in products.items():
            known = p.values() | {**w, "H": 2, "R": 2, "W": W}
            force = lambda k, l, at=known: task["force"].evaluate(at | {"k": k + 1, "l": l + 1})  # noqa: E731
            known |= {"G": np.array([[force(k, l) for l in range(D)] for k in range(D)])}
            found, table = row["found"][name], getattr(theory, name).equations()
            assert task["loss"].evaluate(known) == pytest.approx(found.pop("loss"), rel=FLOW)
            assert found
            for equation, rate in found.items():
                letters, at = places[equation.split("_")[1][1]]
                at = at or ((2, D, 1) if "U" in equation else (1, 2, D))
                value = table[equation].evaluate(known | dict(zip(letters, at, strict=True)))
                assert value == pytest.approx(rate, rel=FLOW)


def test_numbers_of_equations():
    """Every equation that is a number, hitting times and onsets."""
    for row in GOLDEN["numbers"]:
        name, found = row["model"], dict(row["found"])
        if name == "associative_memory.factual_recall":
            p, table, known = recall.Parameters(**row["given"]), recall.equations(), row["known"]
            for part in recall.PARTS:
                for share in (0.9, 0.5, 0.1):
                    time = recall.time_of_share(p, part, share)
                    assert time == pytest.approx(found.pop(f"{part.name} {share}"), rel=NUMBER)
                for share in (0.5, 0.1):
                    time = recall.closed_form(p, part, share)
                    expected = found.pop(f"{part.name} closed {share}")
                    assert time == pytest.approx(expected, rel=NUMBER)
            for key, number in recall.onset(p).numbers.items():
                assert number == pytest.approx(found.pop(f"onset {key}"), rel=NUMBER)
        else:
            theory = example()
            p = theory.Parameters(**row["given"])
            if name.endswith("onset"):
                from linear_attention.theory import onset

                assert onset(p).numbers == pytest.approx(found, rel=NUMBER)
                continue
            table = getattr(theory, name.partition(".")[2]).equations()
            known = p.values() | row["more"]
        for key, number in found.items():
            one = key in (
                "merged_dvalue_dt",
                "merged_du_dt",
                "separate_dvalue_dt",
                "separate_du_dt",
            )
            more = {"u": 0.3 * known["lambda"]} if one else {}
            assert float(table[key].evaluate(known | more)) == pytest.approx(number, rel=NUMBER)


def test_times_of_drops():
    """Three generic heads, with and without a step."""
    example()
    from linear_attention.theory import Parameters, drops

    p, rng = Parameters(spectrum="2.3,0.41,0.17", N=5), np.random.default_rng(5)
    v, K, Q = (rng.normal(size=s) * 0.01 for s in ((3,), (3, 1, 3), (3, 1, 3)))
    for eta, times in zip((0.0, 0.05), GOLDEN["drops"], strict=True):
        found = [*drops(v, K, Q, p.eigenvalues, p.values()["a"], eta)]
        assert found == pytest.approx(times, rel=NUMBER)
