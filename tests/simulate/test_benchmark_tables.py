"""Tables of `simulate.benchmark`, at tiny sizes or with made-up costs."""

import functools
import re
import time

import numpy as np
import pytest
import torch

from simulate import benchmark
from simulate.state_tracking import benchmark as step
from simulate.state_tracking import costs
from simulate.state_tracking.benchmark import jax_loss
from simulate.state_tracking.learner import Learner
from theory.parameters import ParameterError
from theory.state_tracking import Parameters


def test_exponents_are_those_of_the_costs(monkeypatch):
    """Where a call takes what is counted, fitted and counted exponents are the same."""
    monkeypatch.setattr(
        costs, "_costs", lambda p: {k: 1e-9 * x for k, x in costs.counts(p).items()}
    )
    found = costs.scaling()
    assert all(len(row) == len(found["header"]) for row in found["rows"])
    slopes = {(row[0], row[1]): row[-2:] for row in found["rows"]}
    assert all(float(fitted) == float(counted) for fitted, counted in slopes.values())
    assert slopes["training step", "L"][1] == "2.00"
    assert slopes["rates of fixed_disorder", "n_train"][1].lstrip("-") == "0.00"


def test_the_table_of_steps_is_that_of_their_times(monkeypatch, capsys):
    """Steps of 8 ms by the module and of 2 ms by everything else, at 100 GFLOP/s."""

    def alone(work, *given):
        if work is step._peak:
            return {"GFLOPs_float32": 100.0}
        return {"ms": 8.0 if work is step._plain else 2.0, "peak_MB": 300.0, "steps": 5.0}

    monkeypatch.setattr(step, "alone", alone)
    benchmark.main(["state_tracking", "--preset=demo", "--device=cpu", "--quiet"])
    _, header, _, *rows, note, floor = capsys.readouterr().out.splitlines()
    cells = [re.split("  +", line.strip()) for line in (header, *rows)]
    columns = {name: values for name, *values in zip(*cells, strict=True)}
    assert {*columns["ms per seed-step"][1:]} == {"2"} and columns["ms per seed-step"][0] == "8"
    assert {*columns["ratio"][1:]} == {"4.0"} and columns["ratio"][0] == "1.0"
    assert {*columns["peak memory"]} == {"300 MB"} and note.endswith("median of 5")
    least = step.floors(Parameters.demo())["GFLOP_lookup"] / 100.0 * 1e3  # ms
    assert f" {least:.3g} ms; the engine reaches {least / 2.0:.0%} of it" in floor


def test_a_step_is_timed_in_milliseconds():
    """Of each of two seeds that are trained together, which take 20 ms."""
    found = step._timed(lambda: time.sleep(0.02), 0.05, 2, "cpu")
    assert 9 < found["ms"] < 100 and found["steps"] >= 2
    assert 10 < found["peak_MB"] < 1e5


def test_ratios_of_a_tiny_student():
    """Every way of the theory beside one training."""
    rows = costs._ratios(costs.TINY, 1, 1.0)
    assert len({row[1] for row in rows}) == 1 and len({row[2] for row in rows}) == len(rows) == 4
    for _, training, _, theory, ratio in rows:
        assert float(ratio) == pytest.approx(float(theory) / float(training), abs=0.01)


def test_students_without_kernels(monkeypatch):
    """The floor is that of the products which the step makes: none of k hops is above its step."""
    monkeypatch.setattr(benchmark, "SHOWN", benchmark.SHOWN[2:])
    monkeypatch.setattr(benchmark, "PRODUCT", 64)
    (row,) = benchmark.students()["rows"]
    name, spent, plain, work, floor, _ = row
    assert name == "associative_memory.k_hop" and plain.endswith(", batch given")
    assert 0 < float(floor) < float(spent) and float(work) > 0


@pytest.mark.slow
def test_runs_on_workers(monkeypatch):
    """Few runs, here and on a cluster of one."""
    pytest.importorskip("distributed", reason="dask is an optional extra")
    monkeypatch.setattr(costs, "RUNS", 3)
    monkeypatch.setattr(costs, "WORKERS", (1,))
    alone, dask = costs.workers()["rows"]
    assert float(alone[1]) > 0 and float(dask[1]) > 0 and float(dask[2]) > 0


def test_tables_have_settings_of_their_own():
    """Flags that would be ignored are refused, as is a model without costs."""
    for words in (["--set", "N=8"], ["--preset", "demo"], ["--device", "cpu"]):
        with pytest.raises(ParameterError, match="--table ratios: has settings of its own"):
            benchmark.main(["state_tracking", "--table", "ratios", *words])
    with pytest.raises(ParameterError, match="induction_heads"):
        benchmark.main(["induction_heads", "--table", "scaling"])


@pytest.mark.parametrize("lookups", [True, False])
def test_the_student_in_jax_is_the_student(lookups):
    """Loss and gradients of all weights in double precision; the yardstick times the same work."""
    jax = pytest.importorskip("jax")
    p = Parameters(N=5, L=4, d_g=3, d_h=8, n_train=50, n_test=8)
    learner = Learner(p, [0], torch.device("cpu"), torch.float64)
    (student,), (data,) = learner.students.members, learner.train_data
    loss = student.loss(torch.as_tensor(data.actions), torch.as_tensor(data.states))
    loss.backward()
    with jax.enable_x64(True):
        weights = {k: jax.numpy.asarray(w.detach()) for k, w in student.named_parameters()}
        of = functools.partial(jax_loss, p, data.actions, data.states, lookups=lookups)
        found, slopes = jax.value_and_grad(of)(weights)
        assert abs(float(found) - loss.item()) < 1e-14
        for name, w in student.named_parameters():
            assert np.abs(slopes[name] - w.grad.numpy()).max() < 1e-15
