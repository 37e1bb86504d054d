"""The number of threads is a fit's own affair: other threads of Python keep theirs, before, during and after."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_info

from bidual.runtime.threads import one_thread


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def in_new_thread(function: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_threads_born_during_a_fit_are_not_limited_by_it() -> None:
    with one_thread():
        assert torch.get_num_threads() == 1
        assert in_new_thread(torch.get_num_threads) == 2
    assert torch.get_num_threads() == 2
    assert in_new_thread(torch.get_num_threads) == 2


def test_a_thread_with_a_number_of_its_own_keeps_it() -> None:
    def fit() -> tuple[int, int]:
        torch.set_num_threads(3)
        with one_thread():
            during = torch.get_num_threads()
        return during, torch.get_num_threads()

    assert in_new_thread(fit) == (1, 3)


def test_two_fits_at_a_time_have_one_thread_each_and_both_get_theirs_back() -> None:
    met, seen = Barrier(2, timeout=30), {}

    def fit(name: str, leaves_last: bool) -> None:
        before = torch.get_num_threads()
        met.wait()
        with one_thread():
            met.wait()
            during = torch.get_num_threads()
            met.wait()
            if leaves_last:
                met.wait()
        if not leaves_last:
            met.wait()
        seen[name] = (before, during, torch.get_num_threads())

    threads = [Thread(target=fit, args=item) for item in (("first", False), ("second", True))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"first": (2, 1, 2), "second": (2, 1, 2)}


def test_numpys_blas_is_limited_until_the_last_fit_ends() -> None:
    before, met = blas_threads(), Barrier(2, timeout=30)

    def fit() -> None:
        with one_thread():
            met.wait()
            met.wait()

    thread = Thread(target=fit)
    thread.start()
    met.wait()
    with one_thread():
        assert blas_threads() == {1}
    assert blas_threads() == {1}
    met.wait()
    thread.join()
    assert blas_threads() == before


def test_the_last_thread_to_go_gives_the_blas_its_threads_back() -> None:
    before, met = blas_threads(), Barrier(2, timeout=30)

    def fit(leaves_last: bool) -> None:
        with one_thread():
            met.wait()
            if leaves_last:
                met.wait()
        if not leaves_last:
            met.wait()  # it lives on, as the main thread of a program does

    threads = [Thread(target=fit, args=(last,)) for last in (False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert blas_threads() == before


def test_an_error_gives_the_threads_back() -> None:
    with pytest.raises(ValueError, match="in a fit"), one_thread(), one_thread():
        raise ValueError("in a fit")
    assert torch.get_num_threads() == 2
