"""Independent jobs: order of results, one thread each, errors and progress."""

import pytest
import torch

from simulate import pool


def results(jobs, **options):
    return pool.run(jobs, [10] * len(jobs), **{"workers": 1, "progress": False, **options})


def test_results_keep_the_order_of_the_jobs():
    assert results([lambda tick, k=k: k * k for k in range(5)]) == [0, 1, 4, 9, 16]
    assert results([]) == []


def test_each_job_has_one_thread():
    torch.set_num_threads(2)
    assert results([lambda tick: torch.get_num_threads()]) == [1]
    assert torch.get_num_threads() == 2


def test_an_error_in_a_job_comes_through():
    def fail(tick):
        raise ZeroDivisionError("in the job")

    with pytest.raises(ZeroDivisionError, match="in the job"):
        results([fail])


def test_progress_adds_up_over_jobs(capsys):
    def count(tick):
        for n in range(1, 11):
            tick(n)

    results([count, count], progress=True)
    assert "20/20" in capsys.readouterr().err
    results([count, count])
    assert capsys.readouterr().err == ""


def test_there_is_at_least_one_core():
    assert pool.cores() >= 1
