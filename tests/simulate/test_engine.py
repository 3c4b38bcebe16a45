"""The kernels: results do not depend on the distribution of work, and single precision
agrees with double.
"""

import itertools

import numba
import numpy as np
import pytest
import torch
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

from simulate.state_tracking import Parameters, Student, gradients, logic, rows, train
from simulate.state_tracking.gradients import Grouped, Plain
from simulate.state_tracking.logic import Groups, OnCPU, OnDevice
from simulate.state_tracking.student import Students
from theory.state_tracking.model import task
from theory.state_tracking.single_students.kernels import (
    accuracy_kernels,
    fixed_disorder_kernels,
)


def found(
    make,
    p: Parameters,
    seeds: list[int],
    threads: int = 1,
    dtype: torch.dtype = torch.float32,
) -> list[list[bytes]]:
    """Bits of gradients and statistics of every seed's student,
    computed in one stack.
    """
    made = [make(p, seed, dtype) for seed in seeds]
    students = Students([student for student, _, _ in made])
    engine = Grouped(students, [data for _, data, _ in made], threads)
    engine.gradients(students)
    results = [w.grad for w in students.parameters()] + list(
        engine.statistics(students).values()
    )
    return [[r[b].numpy().tobytes() for r in results] for b in range(len(seeds))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "d_h", [8, 32]
)  # torch has other products for a table of 400 numbers
def test_results_do_not_depend_on_the_stack(tiny, make, dtype, d_h):
    p = tiny.replace(d_h=d_h)
    together = found(make, p, [0, 1, 2], dtype=dtype)
    assert together == [found(make, p, [seed], dtype=dtype)[0] for seed in (0, 1, 2)]
    assert len({tuple(bits) for bits in together}) == 3


def test_large_logits_of_one_student_do_not_change_another(tiny, make):
    """Whether the largest logit is subtracted is each student's own affair."""
    students = Students([make(tiny, seed, torch.float32)[0] for seed in (0, 1)])
    engine = Grouped(students, [make(tiny, seed)[1] for seed in (0, 1)])
    grads = []
    for scale in (1, 1000):
        with torch.no_grad():
            students.M[1] *= scale
        engine.gradients(students)
        grads.append(students.M.grad.clone())
    assert students.M[1].abs().max() > rows.LARGEST
    assert torch.equal(grads[0][0], grads[1][0])
    assert not torch.equal(grads[0][1], grads[1][1])


def test_sums_of_logits_that_are_not_shifted_are_normal_numbers():
    """Of 2^16 states, more than any student has, and their inverses."""
    limits = np.finfo(np.float32)
    assert 2.0**16 * np.exp(rows.LARGEST) < 1 / limits.tiny
    assert np.exp(-rows.LARGEST) > limits.tiny


@pytest.mark.parametrize("times", [-25, -0.99, 0.99, 25])
def test_a_constant_added_to_all_logits_changes_nothing(tiny, make, times):
    """A logit is rounded by at most eps |shift| / 2 when stored, in each of L = 4 sums
    and in the exponent, up or down: together some 2 eps |shift|.
    """
    for dtype in (torch.float32, torch.float64):
        student, data, _ = make(tiny, dtype=dtype)
        students = Students([student])
        engine, shift = (
            Grouped(students, [data]),
            times * (rows.LARGEST - student.M.abs().max()),
        )
        found = []
        for more in (0, shift):
            with torch.no_grad():
                students.M += more
            engine.gradients(students)
            found.append(
                (students.M.grad.double(), engine.statistics(students)["loss"])
            )
        allowed = 2 * torch.finfo(dtype).eps * abs(shift.item())
        for one, other in zip(*found, strict=True):
            assert (one - other).abs().max() < allowed


def test_the_loss_of_many_rows(tiny, make):
    """The product of the sums of 2000 rows and more would overflow at 1024 rows of two
    states.
    """
    p = tiny.replace(N=2, L=1, d_g=1, n_train=5000)
    student, data, _ = make(p)
    students = Students([student])
    ours, other = (
        kind(students, [data]).statistics(students)["loss"] for kind in (Grouped, Plain)
    )
    assert (ours - other).abs().max() < 1e-12  # rounding of a mean of order one


def test_many_actions_of_long_rows(tiny, make):
    """Places of the last actions need more than 16 bits."""
    p = tiny.replace(N=17, d_g=2100)
    student, data, _ = make(p)
    assert data.actions.max() * 2 * rows.LANES > np.iinfo(np.uint16).max
    found = []
    for kind in (Grouped, Plain):
        students = Students([student])
        kind(students, [data]).gradients(students)
        found.append(students.M.grad.clone())
    assert (found[0] - found[1]).abs().max() < 1e-12 * found[
        1
    ].abs().max()  # double precision


@pytest.mark.parametrize("size", [1, 16, 37])
def test_zeros_are_aligned(size):
    for like in (np.zeros(1, np.float32), np.zeros(1)):
        kept = rows._zeros(size, like)
        assert len(kept) >= size and not kept.any() and kept.dtype == like.dtype
        assert kept.ctypes.data % (rows.LANES * kept.itemsize) == 0


@pytest.mark.parametrize("threads", [2, 3, 4, 100])
def test_results_do_not_depend_on_the_threads(tiny, make, threads):
    assert found(make, tiny, [0, 1], threads) == found(make, tiny, [0, 1])


def test_a_forked_process_has_threads_of_its_own(tiny, make, forked):
    """Those of its parent are not in it, and whoever waits for them waits for ever."""
    expected = found(make, tiny, [0], threads=2)
    again = forked(
        lambda: print(found(make, tiny, [0], threads=2) == expected), seconds=30
    )
    assert (again.returncode, again.stdout) == (0, "True\n")


def test_rows_of_a_group_may_fill_several_blocks(tiny, make):
    """One state takes all rows of a step when N is small: hundreds, where a block holds
    64.
    """
    p = tiny.replace(N=2, n_train=300)
    student, data, _ = make(p)
    students, gradients = Students([student]), []
    for kind in (Grouped, Plain):
        kind(students, [data]).gradients(students)
        gradients.append([w.grad.clone() for w in students.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert (
            one - other
        ).abs().max() < 1e-12 * other.abs().max()  # double precision, 1200 rows


def test_what_is_not_a_number_stays_so(tiny, make):
    """A run that diverges must not look healthy."""
    for dtype, value in itertools.product(
        (torch.float32, torch.float64), (torch.nan, torch.inf)
    ):
        student, data, _ = make(tiny, dtype=dtype)
        students = Students([student])
        engine = Grouped(students, [data])
        with torch.no_grad():
            students.M[0, :, :, :] = value
        engine.gradients(students)
        assert (
            torch.isnan(students.M.grad).all() and torch.isnan(students.W_Q.grad).all()
        )
        assert torch.isnan(engine.statistics(students)["loss"]).all()


def test_the_exponential_is_exact_to_single_precision(tiny, make):
    """Softmax of one row after another against double precision, over the whole range
    of logits.
    """
    p = tiny.replace(L=1, d_g=1, n_train=2000)
    student, data, _ = make(p, dtype=torch.float32)
    students = Students([student])
    engine = Grouped(students, [data])
    for scale in (1e-3, 1.0, 30.0, 300.0):
        with torch.no_grad():
            students.M.copy_(
                scale
                * torch.randn(
                    students.M.shape, generator=torch.Generator().manual_seed(0)
                )
            )
        engine.gradients(students)
        columns = torch.softmax(
            students.M[0, 0].double(), dim=0
        )  # (next state, current state)
        _, counts = np.unique(data.states[:, 0], return_counts=True)
        hits = np.zeros((p.N, p.N))
        np.add.at(hits, (data.states[:, 1], data.states[:, 0]), 1)
        expected = (
            columns * torch.as_tensor(counts) - torch.as_tensor(hits)
        ) / p.n_train
        # Sums of some 300 single-precision terms of order one: a few units of 6e-8
        # each.
        assert (students.M.grad[0, 0] - expected).abs().max() < 3e-6


@numba.njit
def of_rows(x):
    out = np.empty_like(x)
    for k in range(np.uint64(0), np.uint64(len(x)), np.uint64(2 * rows.LANES)):
        rows.store(out, k, rows.exponential(rows.load(x, k, (0, 0))))
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponentials(dtype):
    """One unit in the last place from the series, two from sums, and another |x| from
    rounding x / ln 2, over all logits that are not shifted and far below those. Lower
    still, exactly 0.
    """
    x = np.linspace(-60, rows.LARGEST, 5024, dtype=dtype)
    exact = np.exp(x.astype(np.longdouble))
    assert (
        np.abs(of_rows(x) / exact - 1) < (3 + np.abs(x)) * np.finfo(dtype).eps
    ).all()
    assert (of_rows(np.full(32, -1e30, dtype)) == 0).all()


@pytest.mark.parametrize(
    ("N", "n_train"),
    [(2, 1), (16, 3), (17, 40), pytest.param(33, 40, marks=pytest.mark.slow), (70, 40)],
)
def test_rows_of_any_length_in_groups_of_any_size(tiny, make, N, n_train):
    """Full and partly filled vectors, groups of no row to more than four: as by
    autograd, in double precision; 1e-11 is 30 times the rounding of the largest logits,
    400, in the exponent.
    """
    p = tiny.replace(N=N, n_train=n_train)
    student, data, _ = make(p, dtype=torch.float64)
    students = Students([student])
    with torch.no_grad():
        students.M.mul_(100)
    found = []
    for engine in (Grouped, Plain):
        engine(students, [data]).gradients(students)
        found.append([w.grad.clone() for _, w in students.named_parameters()])
    for ours, other in zip(*found, strict=True):
        assert (ours - other).abs().max() <= 1e-11 * other.abs().max()


@pytest.mark.parametrize(
    "module", [logic, rows, fixed_disorder_kernels, accuracy_kernels]
)
def test_kept_machine_code_is_of_one_file(module):
    """Numba compiles again what it keeps if its file changes,
    and not if another does.
    """
    every = vars(module).values()
    for kernel in (
        x
        for x in every
        if isinstance(x, Dispatcher) and x.__module__ == module.__name__
    ):
        used = [vars(module).get(name) for name in kernel.py_func.__code__.co_names]
        for made in used:
            if isinstance(made, (Dispatcher, _Intrinsic)):
                home = getattr(made, "py_func", None) or made._defn
                assert home.__module__ == module.__name__, (kernel, made)


@pytest.mark.slow
def test_single_precision_follows_double():
    """Students of 8 seeds at both precisions: differences are far below what tells the
    seeds apart.
    """
    p = Parameters(N=8, L=4, d_g=8, d_h=16, n_train=512, n_test=128, eval_every=120)
    options = dict(alpha=10, seeds=range(8), progress=False, workers=1)
    single, double = (
        train(p, dtype=dtype, **options) for dtype in ("float32", "float64")
    )
    for name in ("A", "R", "S", "loss", "variance_other", "rollout_accuracy"):
        spread = double[name].std("seed", ddof=1)
        difference = (single[name] - double[name]).isel(alpha=slice(1, None))
        # A shift of one hundredth of a standard deviation would take 160,000 seeds to
        # see at z = 4.
        assert (
            np.abs(difference.mean("seed"))
            < 0.01 * spread.isel(alpha=slice(1, None)) + 1e-7
        ).all(), name


SIZES = [
    dict(N=6, L=3, d_g=5, n_train=64),
    dict(N=2, L=1, d_g=1, n_train=100),
    dict(N=18, L=2, d_g=17, n_train=60),
]


@pytest.mark.parametrize(
    "compiled", [False, pytest.param(True, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_torch_alone_agrees_with_machine_code(size, dtype, compiled, monkeypatch):
    """The code of other devices, here on the CPU, on three students, two at once:
    groups of other sizes, some without rows.
    """
    p, members, data = Parameters(d_h=8, **size), [], []
    for seed in (0, 1, 2):
        stream = task.streams(seed)
        teachers = task.draw_permutations(p, stream["task"])
        data.append(task.draw_sequences(teachers, p.n_train, p.L, stream["train"]))
        members.append(
            Student(p, task.draw_weights(p, stream["initialisation"]), dtype)
        )
    students, found, grouped = Students(members), [], Groups.of(data, p.N)
    engine = Grouped(students, data)
    alone = OnDevice(grouped, torch.device("cpu"), compiled)
    each = 2 * alone.data[2][0].numel() * (p.d_g + p.N) * dtype.itemsize
    monkeypatch.setattr(logic, "WORKSPACE", 2 * each)
    for engine.logic in (OnCPU(grouped), alone):
        engine.gradients(students)
        found.append([w.grad.clone() for w in students.parameters()])
        pi = engine.attention.forward(students.W_Q, students.W_K).detach()
        found[-1] += engine.logic.moments(pi, gradients._columns(students.M))
    assert engine.logic.rows == p.n_train * p.L
    # Sums of hundreds of terms that cancel.
    bar = 2e-5 if dtype == torch.float32 else 1e-12
    for one, other in zip(*found, strict=True):
        assert (one - other).abs().max() < bar * other.abs().max().clamp(min=1e-3), size
