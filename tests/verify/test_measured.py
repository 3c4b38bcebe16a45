"""Numbers of students that come with the code: read, trained where missing or asked, or named."""

import json
import random

import numpy as np
import pytest

from tests.damage import exchanged
from theory.parameters import ParameterError
from theory.registry import MODELS
from theory.state_tracking import Parameters
from verify import measured
from verify.check import identity
from verify.report import Request, collect
from verify.state_tracking import optimisers

trained = []


@measured.measured
def thirds(p: Parameters, rate: float, seeds: list[int], **training) -> np.ndarray:
    """Something that depends on all."""
    trained.append(rate)
    return p.eta * rate / 3 * np.array([*seeds, np.nan])


def test_numbers_are_written_once_and_read(tmp_path, monkeypatch):
    """Nine digits; found by parameters, rates to six digits, and seeds."""
    place = tmp_path / "model" / "ensembles" / "some.json"
    place.parent.mkdir(parents=True)
    monkeypatch.setattr(measured, "_place", lambda function: place)
    p, trained[:] = Parameters.demo(), []
    first = thirds(p, 0.5, range(2))
    assert trained == [0.5] and not place.exists()  # in Python, without a word
    with measured.students("shipped"), pytest.raises(measured.Missing):
        thirds(p, 0.5, range(2))
    with measured.students("anew"):
        thirds(p, 0.5, range(2), progress=True)
        thirds(p, 0.25, range(2))
        thirds(p, 0.5, range(2))
    assert len(trained) == 4 and len(json.loads(place.read_text())["thirds"]) == 2
    with measured.students("shipped"):
        np.testing.assert_allclose(thirds(p, 0.5 + 1e-9, [0, 1]), first, rtol=1e-8)
        for other in ((p.replace(eta=2 * p.eta), 0.5, [0, 1]), (p, 0.5, [0, 2]), (p, 0.51, [0, 1])):
            with pytest.raises(measured.Missing):
                thirds(*other)
    assert len(trained) == 4 and "verify.laws model --train" in place.read_text()


def test_missing_students_are_named():
    """The other groups have their rows."""

    def lacks() -> list:
        raise measured.Missing("x")

    row = identity("row", "equation", 1.0, 1.0, 0.0, "the same number")
    rows, missing = measured.known({"here": lambda: [row], "there": lacks})
    assert rows == [row] and missing == ["there"]


def test_shipped_students_are_those_of_the_command():
    """The small setting under every optimiser; they reach both levels, in order."""
    with measured.students("shipped"):
        for (name, _), p in optimisers.cases().items():
            if name == "demo":
                times = optimisers.student_times(p, optimisers.SEEDS)
                assert (
                    times.shape == (len(optimisers.SEEDS), 2) and (times[:, 0] < times[:, 1]).all()
                )


def test_models_without_such_students_refuse_to_train_them():
    with pytest.raises(ParameterError, match="--train: not for associative_memory"):
        collect(Request(MODELS["associative_memory"], renew=True), "laws")


def test_damaged_files_of_students_are_named(tmp_path, monkeypatch):
    """In one line, whatever they hold."""
    place, p, rng = tmp_path / "some.json", Parameters.demo(), random.Random(0)
    monkeypatch.setattr(measured, "_place", lambda function: place)
    key = [measured._plain(x) for x in (p, 0.5, range(2))]
    good, named = {"thirds": [{"arguments": key, "values": [1.0, 2.0]}], "command": "x"}, 0
    for _ in range(60):
        place.write_text(json.dumps(exchanged(good, rng)))
        with measured.students("shipped"):
            try:
                thirds(p, 0.5, range(2))
            except measured.Missing:
                pass
            except ParameterError as error:
                named += 1
                assert str(error).startswith(f"{place}: damaged (") and "\n" not in str(error)
    assert named > 10
