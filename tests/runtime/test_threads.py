import torch
from joblib import parallel_config

from bidual.runtime.jobs import Task, run_all
from bidual.runtime.threads import one_thread, spare_threads


def test_the_number_of_threads_comes_back() -> None:
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_overlapping_fits_restore_the_callers_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_num_threads() == 1
        second.__exit__(None, None, None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_callers_threads_are_spare_within_the_packages_own_limits_only() -> None:
    assert spare_threads() == 1
    torch.set_num_threads(2)
    try:
        assert spare_threads() == 2
        with one_thread(spare=True), one_thread(spare=True):
            assert torch.get_num_threads() == 1
            assert spare_threads() == 2
            with one_thread():
                assert spare_threads() == 1
            assert spare_threads() == 2
        with one_thread(), one_thread(spare=True):
            assert spare_threads() == 1
        assert spare_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_tasks_that_share_the_machine_have_no_spare_threads() -> None:
    torch.set_num_threads(2)
    try:
        assert run_all([Task(spare)]) == [2]
        with parallel_config("threading", n_jobs=2):
            assert run_all([Task(spare)] * 2) == [1, 1]
    finally:
        torch.set_num_threads(1)


def spare() -> int:
    with one_thread(spare=True):
        return spare_threads()
