"""Memory: estimates against measured peaks, and sizes that cannot fit refused before
anything is allocated.
"""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from simulate.training import pool
from theory.call.refusal import ParameterError
from theory.models import registry
from theory.runtime import memory

# Every learner at sizes where one shape after the other makes up its memory, some 100
# to 500 MB each, one or two steps.
CASES = """
from simulate import state_tracking as st, induction_heads as ih, positional_semantic as ps
from simulate.state_tracking import learner as st_learner
from simulate.induction_heads import learner as ih_learner, standard
from simulate.positional_semantic import learner as ps_learner, histogram, linear
from simulate.associative_memory import factual_recall, trigger_task, noisy_bigram, k_hop, gradient_steps, superposition

ps_learner.POLISH["maxiter"] = 1  # its memory is there from the first step on
SMALL = dict(N=6, L=4, d_g=5, d_h=8, n_train=64, n_test=32, epochs=1, eval_every=1)
SHORT = dict(steps=1, eval_every=1)
SIZES = dict(d=50, alpha=1.0, steps=1, n_test=100)

def tracking(**more):
    return st_learner.memory, st.Parameters(**{**SMALL, **more}), lambda p, o: st.train(p, store=o, **ALONE)
def heads(**more):
    return ih_learner.memory, ih.Parameters(**{**SHORT, "N": 4, "batch_size": 8, **more}), lambda p, o: ih.train(p, store=o, **ALONE)
def plain(**more):
    return standard.memory, ih.StandardParameters(**{**SHORT, "D": 8, "batch_size": 8, **more}), lambda p, o: standard.train(p, store=o, **ALONE)
def semantic(**more):
    return ps_learner.memory, ps.Parameters(**{**SIZES, **more}), lambda p, o: ps.train(p, store=o, **ALONE)
def memories_of(package, system, train="train", **more):
    kind = package.Pointers if train == "train_pointers" else package.Parameters
    p = kind(**{**SHORT, **more})
    return system.memory, p, lambda p, o: getattr(package, train)(p, store=o, **ALONE)
ALONE = dict(progress=False, workers=1)

CASES = {
    "state_tracking n_train": lambda: tracking(n_train=400_000, L=8),
    "state_tracking L": lambda: tracking(L=500, d_h=32, n_test=2),
    "state_tracking N": lambda: tracking(N=300, d_g=40),
    "state_tracking adam": lambda: tracking(N=300, d_g=40, optimizer="adam"),
    "state_tracking n_test": lambda: tracking(n_test=200_000, N=64),
    "state_tracking d_g": lambda: tracking(d_g=4000, N=10),
    "state_tracking embedding": lambda: tracking(fix_embedding=False, N=48, d_g=20, n_train=2000, L=6),
    "induction_heads batch": lambda: heads(N=16, batch_size=800),
    "induction_heads scores": lambda: heads(N=150, D=2, batch_size=40),
    "induction_heads D": lambda: heads(D=700),
    "induction_heads nineteen": lambda: heads(N=40, D=40, batch_size=100, trained="nineteen", data="gaussian"),
    "standard batch": lambda: plain(D=128, batch_size=600),
    "standard D": lambda: plain(D=1000),
    "positional_semantic n": lambda: semantic(d=800, alpha=4.0),
    "positional_semantic value": lambda: semantic(d=400, alpha=8.0, value=True),
    "linear n": lambda: (linear.memory, ps.Parameters(**{**SIZES, "d": 800, "alpha": 4.0}), lambda p, o: linear.SYSTEM.train(p, store=o, **ALONE)),
    "linear n_test": lambda: (linear.memory, ps.Parameters(**{**SIZES, "d": 200, "n_test": 20_000}), lambda p, o: linear.SYSTEM.train(p, store=o, **ALONE)),
    "histogram samples": lambda: (histogram.memory, histogram.HistogramParameters(samples=8000, alphabet=30, epochs=1, unfrozen_epochs=0, batch=4000),
                          lambda p, o: histogram.SYSTEM.train(p, store=o, **ALONE)),
    "factual_recall batch": lambda: memories_of(factual_recall, factual_recall.SYSTEM, batch_size=150_000),
    "factual_recall facts": lambda: memories_of(factual_recall, factual_recall.SYSTEM, S=2048, R=8, D=32),
    "trigger_task simplified": lambda: memories_of(trigger_task, trigger_task.SYSTEM, n_test=6000),
    "trigger_task N": lambda: memories_of(trigger_task, trigger_task.SYSTEM, N=1500, n_test=100),
    "trigger_task transformer": lambda: memories_of(trigger_task, trigger_task.SYSTEM, student="transformer", batch_size=400),
    "noisy_bigram N": lambda: memories_of(noisy_bigram, noisy_bigram.SYSTEM, N=1500),
    "noisy_bigram batch": lambda: memories_of(noisy_bigram, noisy_bigram.SYSTEM, batch_size=100_000),
    "noisy_bigram one_step": lambda: (noisy_bigram.memory_of_one_step, noisy_bigram.Parameters(n=400_000, T=16, draws=2), lambda p, o: noisy_bigram.one_step(p)),
    "k_hop batch": lambda: memories_of(k_hop, k_hop.SYSTEM, batch_size=200_000, N=16),
    "pointers batch": lambda: memories_of(k_hop, k_hop.POINTERS, "train_pointers", batch_size=4000, N=20),
    "gradient_steps": lambda: (gradient_steps.memory_of_run, gradient_steps.Parameters(samples=2500, T=64, N=50), lambda p, o: gradient_steps.run(p)),
    "superposition": lambda: (superposition.memory_of_run, superposition.Parameters(N=6000, d=64, draws=2), lambda p, o: superposition.recall(p)),
}
"""
MEASURE = (
    CASES
    + """
import json, os, resource, tempfile, warnings
import torch
torch.set_num_threads(1)
warnings.simplefilter("ignore")
st.train(st.Parameters(**SMALL), store=tempfile.mkdtemp(), **ALONE)  # kernels, imports and derivations once
blocks()[2](blocks()[1], tempfile.mkdtemp())  # torch's optimisers load its compiler

def peak(call):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with open("/proc/self/clear_refs", "w") as file:  # peak counts from here
            file.write("5")
        def status(name):
            return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))
        before = status("VmRSS")
        code = 1
        try:
            call()
            os.write(writer, str(status("VmHWM") - before).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    text = os.read(reader, 100).decode()
    return int(text) if status == 0 else None

found = {}
for name, make in CASES.items():
    needed, p, work = make()
    with tempfile.TemporaryDirectory() as folder:
        found[name] = [needed(p), peak(lambda: work(p, folder))]
print(json.dumps(found))
"""
)


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(),
    reason="peaks are read from Linux's /proc",
)
def test_estimates_against_measured_peaks():
    """Every learner, one process forked per case. An estimate may not miss a tenth of
    the peak, nor be three times it.
    """
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-500:]
    found = json.loads(done.stdout)
    assert all(
        measured > 50 * 2**20 for _, measured in found.values()
    )  # large against what Python itself takes
    wrong = {
        name: pair
        for name, pair in found.items()
        if not pair[1] / 1.1 < pair[0] < 3 * pair[1]
    }
    assert not wrong


HUGE = [
    ("state_tracking", {"L": 10**6}),
    ("state_tracking", {"n_train": 10**12}),
    ("state_tracking", {"d_h": 10**12}),
    ("state_tracking", {"N": 10**7}),
    ("state_tracking", {"n_test": 10**12}),
    ("state_tracking", {"epochs": 10**15, "eval_every": 1}),
    ("induction_heads", {"batch_size": 10**12}),
    ("induction_heads", {"D": 10**12}),
    ("induction_heads", {"N": 10**7}),
    ("positional_semantic", {"d": 10**12, "alpha": 1.0}),
    ("positional_semantic", {"alpha": 1e12}),
    ("factual_recall", {"batch_size": 10**12}),
    ("factual_recall", {"R": 10**9}),
    ("factual_recall", {"noise_tokens": 10**12}),
    ("trigger_task", {"T": 10**12}),
    ("trigger_task", {"N": 10**9}),
    ("trigger_task", {"n_test": 10**12}),
    ("noisy_bigram", {"N": 10**9}),
    ("noisy_bigram", {"T": 10**12}),
    ("k_hop", {"N": 10**9}),
    ("k_hop", {"batch_size": 10**12}),
]


def trained(name):
    """Parameters and `train` of a model or of a system of the memories."""
    full = name if name in registry.MODELS else f"associative_memory.{name}"
    wing = registry.find(full).wing("simulate")
    return wing.Parameters, wing.train


@pytest.mark.parametrize(("name", "sizes"), HUGE, ids=str)
def test_what_cannot_fit_is_refused_at_once(name, sizes, tmp_path):
    """In one line: the parameter to change, what is needed, what there is; and nothing
    is written.
    """
    kind, train = trained(name)
    with pytest.raises(ParameterError) as caught:
        train(kind(**sizes), store=tmp_path / "store", progress=False, workers=1)
    message = str(caught.value)
    assert "\n" not in message and "iB of memory" in message
    named, what = message.split(" = ")[0], message.rsplit("; take ", 1)[1]
    assert (
        named in sizes
        and what == f"{named} {'larger' if named == 'eval_every' else 'smaller'}"
    )
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("key", ["d_h"])
def test_theory_asks_too(key):
    """The frequencies are the only array of the theory
    whose length a parameter sets.
    """
    kind, _ = trained("state_tracking")
    with pytest.raises(
        ParameterError,
        match=f"{key} = 1000000000000: a table of frequencies needs about",
    ):
        kind(**{key: 10**12}).values()["c_omega"]


def test_what_fits_is_not_refused_and_the_boundary_is_what_there_is(tiny):
    """The same estimate, a byte less or more of memory."""
    size = 2**30
    memory.require(lambda p: size, tiny, "this", there=size)
    with pytest.raises(
        ParameterError,
        match=(
            "N = 6: this needs about 1 GiB of memory, there are 1024 MiB; take N"
            " smaller"
        ),
    ):
        memory.require(lambda p: size * p.N / 6, tiny, "this", there=size - 1)
    with pytest.raises(ParameterError, match=r"2 GiB of memory \(2 at a time\)"):
        memory.require(lambda p: size, tiny, "this", times=2, there=size)


def test_a_limit_of_the_process_counts():
    """What `ulimit -v` leaves, not what the machine has."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33)); from"
        " theory.runtime import memory; print(memory.available())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert 0 < float(done.stdout) < 2**33


def test_there_are_no_more_processes_than_fit(monkeypatch):
    """Four jobs of 1 GiB each where there are 2.5 GiB: two at a time."""
    asked = []
    monkeypatch.setattr(pool, "available", lambda: 2.5 * 2**30)
    monkeypatch.setattr(
        pool.joblib,
        "Parallel",
        lambda n_jobs, **_: asked.append(n_jobs) or (lambda calls: [0 for _ in calls]),
    )
    pool.run(
        [functools.partial(int)] * 4, [1] * 4, workers=4, progress=False, memory=2**30
    )
    assert asked == [2]
