import torch

from bidual.threads import one_thread


def test_the_number_of_threads_comes_back() -> None:
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
