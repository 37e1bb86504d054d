"""How many threads a computation may use.

threadpoolctl limits the BLAS of numpy and scipy. It does not limit torch: within ``threadpool_limits(1)`` products and
element-wise functions of torch 2.13 still kept two cores busy (its MKL is linked in), so torch is set by itself.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import lru_cache
from threading import Lock, Thread, local
from typing import Any

import torch
from threadpoolctl import OpenBLASController, ThreadpoolController

# Multiplications of one forward product from which a second thread pays; below it threads only wait for each other.
_WORTH_SHARING = 3e7
_lock = Lock()


class _Torch(local):
    """One thread for torch in the Python thread that enters.

    ``torch.set_num_threads`` acts on the calling thread, and on threads that first use torch later. A helper thread
    reads what such threads get and sets it again, so that the limit stays in the calling thread.
    """

    def __init__(self) -> None:
        self.users, self.before, self.new = 0, 1, 1
        self.strict = 0  # blocks whose caller wants no more than one thread at all

    def enter(self) -> None:
        self.users += 1
        if self.users > 1:
            return
        self.before = torch.get_num_threads()
        if self.before > 1:
            self.new = _elsewhere(torch.get_num_threads)
            self._set(1)

    def leave(self) -> None:
        self.users -= 1
        if not self.users and self.before > 1:
            self._set(self.before)

    def relax(self, count: int) -> None:
        self.strict -= count

    def _set(self, count: int) -> None:
        torch.set_num_threads(count)
        if self.new != count:
            _elsewhere(torch.set_num_threads, self.new)


class _Blas:
    """One thread for the BLAS of numpy and scipy, whose number belongs to the process: from the first block that is
    entered until the last one is left."""

    def __init__(self) -> None:
        self.users, self.limit = 0, ExitStack()

    def enter(self) -> None:
        self.users += 1
        if self.users == 1:
            self.limit.enter_context(_libraries(len(sys.modules), next(reversed(sys.modules))).limit(limits=1))

    def leave(self) -> None:
        self.users -= 1
        if not self.users:
            # OpenBLAS obeys the thread that set the number first, which need not be this one (threadpoolctl 3.7)
            getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)(force=True)
            self.limit.close()


_torch, _blas = _Torch(), _Blas()


@contextmanager
def one_thread(spare: bool = False) -> Iterator[None]:
    """One thread for torch, in this Python thread alone, and for every BLAS within the block.

    The caller's numbers are restored after it, also where blocks in several Python threads overlap. With ``spare`` the
    caller's other threads are left to helper processes; see :func:`spare_threads`.
    """
    with ExitStack() as stack:  # so that an interrupt on the way in or out leaves no limit behind
        for part in (_torch, _blas):
            _enter(part)
            stack.callback(_leave, part)
        _torch.strict += not spare
        stack.callback(_torch.relax, not spare)
        yield


def spare_threads() -> int:
    """How many threads the caller allows: those of torch outside of blocks with ``spare``, one within other blocks."""
    if _torch.strict:
        return 1
    return _torch.before if _torch.users else torch.get_num_threads()


def _enter(part: _Torch | _Blas) -> None:
    with _lock:
        try:
            part.enter()
        except BaseException:
            part.leave()
            raise


def _leave(part: _Torch | _Blas) -> None:
    with _lock:
        part.leave()


def threads_for(multiplications: float) -> AbstractContextManager[None]:
    """One thread for operators whose products are small, the caller's own setting for large ones."""
    return one_thread() if multiplications < _WORTH_SHARING else nullcontext()


def _elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call in a thread of its own."""
    found: list[Any] = []
    thread = Thread(target=lambda: found.append(function(*arguments)))
    thread.start()
    thread.join()
    return found[0]


@lru_cache(maxsize=1)
def _libraries(modules: int, newest: str) -> ThreadpoolController:
    """The BLAS libraries that are loaded; searched for again when other modules have been imported."""
    return ThreadpoolController().select(user_api="blas")
