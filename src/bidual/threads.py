"""How many threads a computation may use."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from threadpoolctl import threadpool_limits

from bidual.operators import LiftedOperator

# Multiplications of one forward product from which a second thread pays; below it threads only wait for each other.
_WORTH_SHARING = 3e7


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch and every BLAS within the block; the caller's numbers are restored after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def threads_for(operator: LiftedOperator) -> AbstractContextManager[None]:
    """One thread for small operators, the caller's own setting for large ones."""
    n, (p, a, c) = operator.output_shape[0], operator.block_shape
    small = n * p * a * c < _WORTH_SHARING and torch.get_num_threads() > 1
    return one_thread() if small else nullcontext()
