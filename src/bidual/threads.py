"""How many threads a computation may use."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock

import torch
from threadpoolctl import threadpool_limits

from bidual.operators import LiftedOperator

# Multiplications of one forward product from which a second thread pays; below it threads only wait for each other.
_WORTH_SHARING = 3e7


class _Limit:
    """One thread while anybody asks for it. Fits may overlap in time: the first to come saves the caller's numbers, the
    last to go restores them."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = Lock(), 0, 0
        self.pools: threadpool_limits | None = None

    def enter(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                self.before, self.pools = torch.get_num_threads(), threadpool_limits(1)
                torch.set_num_threads(1)

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users and self.pools is not None:
                torch.set_num_threads(self.before)
                self.pools.restore_original_limits()


_limit = _Limit()


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch and every BLAS within the block; the caller's numbers are restored after it."""
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()


def threads_for(operator: LiftedOperator) -> AbstractContextManager[None]:
    """One thread for small operators, the caller's own setting for large ones."""
    n, (p, a, c) = operator.output_shape[0], operator.block_shape
    return one_thread() if n * p * a * c < _WORTH_SHARING else nullcontext()
