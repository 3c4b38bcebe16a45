"""What the student tests share: tiny sizes, a store of their own, and a student with
its data.
"""

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch

from simulate.state_tracking import Parameters, Student
from simulate.state_tracking.gradients import engine
from simulate.state_tracking.student import Students
from theory.state_tracking.model import task

Traceback = SimpleNamespace(extract_stack=list, format_list=list)


@pytest.fixture(autouse=True)
def _own_store(tmp_path, monkeypatch) -> None:
    """No test writes into the user's store."""
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path / "default-store"))


@pytest.fixture(autouse=True)
def _no_stack_traces(monkeypatch) -> None:
    """Torch keeps one for every operation that it traces, of a hundred frames below
    pytest.
    """
    monkeypatch.setattr(
        "torch._subclasses.fake_tensor.traceback", Traceback, raising=False
    )


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Sums keep their order, and the suite stays on one core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny() -> Parameters:
    """Sizes at which a run takes a tenth of a second; all of them differ from one
    another.
    """
    return Parameters(
        N=6, L=4, d_g=5, d_h=8, n_train=64, n_test=32, epochs=40, eval_every=20
    )


@pytest.fixture
def make() -> Callable:
    """Student in double precision, with training data and permutations, as a run of
    this seed would start.
    """

    def made(p: Parameters, seed: int = 0, dtype: torch.dtype = torch.float64):
        stream = task.streams(seed)
        perms = task.draw_permutations(p, stream["task"])
        data = task.draw_sequences(perms, p.n_train, p.L, stream["train"])
        student = Student(
            p,
            task.draw_weights(p, stream["initialisation"]),
            dtype,
            learn_embedding=not p.fix_embedding,
        )
        return student, data, perms

    return made


@pytest.fixture
def alone() -> Callable:
    """Arguments of `measure` for a single student: stack of one, engine, test
    sequences, teachers.
    """

    def made(student: Student, data: task.Sequences, perms):
        students = Students([student])
        test = torch.as_tensor(data.actions)[None], torch.as_tensor(data.states)[None]
        return (
            students,
            engine(students)(students, [data]),
            test,
            torch.as_tensor(task.teacher_matrices(perms))[None],
        )

    return made
