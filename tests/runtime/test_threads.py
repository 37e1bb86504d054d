import torch

from bidual.runtime.threads import one_thread


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
