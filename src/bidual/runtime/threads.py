"""How many threads a computation may use."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import lru_cache
from threading import Event, Lock, Thread, local
from typing import Any

import torch
from threadpoolctl import ThreadpoolController

# Multiplications of one forward product from which a second thread pays; below it threads only wait for each other.
_WORTH_SHARING = 3e7
_lock = Lock()


class _Own(local):
    """One thread for torch in the thread of Python that asks for it.

    ``torch.set_num_threads`` acts on the thread that calls it, and on threads that first use torch later. The second
    is not wanted here: those would keep a limit that nobody asked them to have. It is undone from a thread that is
    made for it, and so is known which number new threads get. Only one that first uses torch in the instant between
    gets the limit.
    """

    def __init__(self) -> None:
        self.users, self.before, self.new = 0, 1, 1

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

    def _set(self, count: int) -> None:
        torch.set_num_threads(count)
        if self.new != count:
            _elsewhere(torch.set_num_threads, self.new)


class _Shared:
    """One thread for the BLAS of numpy and scipy, whose number is the whole process's: from the first to come until the
    last has gone.

    threadpoolctl lets only that thread of Python change the number which was the first to do so. The first to come and
    the last to go may be two, so a third does both.
    """

    def __init__(self) -> None:
        self.users, self.over, self.holder = 0, Event(), Thread()

    def enter(self) -> None:
        self.users += 1
        if self.users == 1:
            limited, self.over = Event(), Event()
            self.holder = Thread(target=_hold, args=(limited, self.over), daemon=True)
            self.holder.start()
            limited.wait()

    def leave(self) -> None:
        self.users -= 1
        if not self.users:
            self.over.set()
            if self.holder.is_alive():
                self.holder.join()


def _hold(limited: Event, over: Event) -> None:
    """The limit, from when ``limited`` is set until ``over`` is."""
    try:
        with _blas(len(sys.modules), next(reversed(sys.modules))).limit(limits=1):
            limited.set()
            over.wait()
    finally:
        limited.set()


_own, _shared = _Own(), _Shared()


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch, in this thread of Python alone, and for every BLAS within the block.

    The caller's numbers are restored after it, also where blocks in several threads of Python overlap.
    """
    with ExitStack() as stack:  # so that an interrupt on the way in or out leaves no limit behind
        for part in (_own, _shared):
            _enter(part)
            stack.callback(_leave, part)
        yield


def _enter(part: "_Own | _Shared") -> None:
    with _lock:
        try:
            part.enter()
        except BaseException:
            part.leave()
            raise


def _leave(part: "_Own | _Shared") -> None:
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
def _blas(modules: int, newest: str) -> ThreadpoolController:
    """The BLAS libraries there are; searched for again when other modules have been imported, which may bring more."""
    return ThreadpoolController().select(user_api="blas")
