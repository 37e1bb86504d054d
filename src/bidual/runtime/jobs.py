"""Many independent fits: in processes of this machine, on the workers of a Dask cluster, or on any joblib backend."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from joblib.parallel import get_active_backend

from bidual.runtime.extras import extra
from bidual.runtime.threads import one_thread

OnDone = Callable[[int, Any], None]
Ended = Generator[tuple[int, Any], None, None]
_LOSSES = 3  # of workers in a row, without a task that ends in between
_PATIENCE = 10.0  # seconds, for the scheduler and then for its first worker


@dataclass(frozen=True)
class Task:
    """A call to make somewhere: a function of a module, and arguments that can be pickled."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()

    def run(self, alone: bool) -> Any:
        """The result; with one thread unless the task is ``alone`` on its machine."""
        with parallel_config("sequential"), nullcontext() if alone else one_thread():
            return self.function(*self.arguments)


def run_all(tasks: Sequence[Task], n_jobs: int | None = None, on_done: OnDone | None = None) -> list[Any]:
    """The results of all tasks in their order, whichever ends first.

    Args:
        n_jobs: as in scikit-learn: None is 1, or what ``joblib.parallel_config`` sets; -1 is one for every core. A Dask
            backend has as many as its workers have threads, whatever is given here.
        on_done: is called in this process, once per task, with its number and result as soon as it has ended.

    Tasks of a lost worker run again on another one. An error of a task itself ends everything.
    """
    found: dict[int, Any] = {}
    losses = 0
    while len(found) < len(tasks):
        left, before = [k for k in range(len(tasks)) if k not in found], len(found)
        try:
            with closing(_ended(tasks, left, n_jobs)) as ended:
                for number, result in ended:
                    found[number] = result
                    if on_done is not None:
                        on_done(number, result)
        except BrokenProcessPool as error:
            losses = losses + 1 if len(found) == before else 1
            if losses > _LOSSES:
                raise ChildProcessError(
                    f"worker processes died {losses} times in a row, most likely for lack of memory; use fewer jobs."
                ) from error
    return [found[number] for number in range(len(tasks))]


def _ended(tasks: Sequence[Task], numbers: Sequence[int], n_jobs: int | None) -> Ended:
    client = getattr(get_active_backend()[0], "client", None)  # of joblib's Dask backend
    if client is not None:
        yield from _on_cluster(client, tasks, numbers)
        return
    alone = effective_n_jobs(n_jobs) == 1
    work = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
    yield from work(delayed(_numbered)(number, tasks[number], alone) for number in numbers)


def _numbered(number: int, task: Task, alone: bool) -> tuple[int, Any]:
    return number, task.run(alone)


def _on_cluster(client: Any, tasks: Sequence[Task], numbers: Sequence[int]) -> Ended:
    """Submits to Dask directly: joblib's backend waits forever for a task that Dask gives up, and runs tasks in the
    calling process while the cluster has a single thread (joblib 1.6)."""
    from dask.distributed import KilledWorker, as_completed

    alone = sum(client.nthreads().values()) == 1
    futures = {client.submit(tasks[number].run, alone, pure=False): number for number in numbers}
    try:
        for future in as_completed(futures, loop=client.loop):
            try:
                yield futures[future], future.result()
            except KilledWorker as error:
                raise ChildProcessError(
                    f"a task was lost with {error.allowed_failures + 1} worker(s), most likely for lack of memory; "
                    "give them more of it, or fewer threads."
                ) from error
    finally:
        client.cancel(list(futures))


@contextmanager
def scheduler(address: str | None) -> Iterator[None]:
    """Within the block tasks run on the workers of the Dask scheduler at ``address``; None changes nothing.

    Workers need this package, and the files that tasks read under the same names.
    """
    if address is None:
        yield
        return
    with _connected(address) as client:
        _await_worker(client, address)
        with parallel_config("dask", client=client):
            yield


def _connected(address: str) -> Any:
    with extra("dask"):
        from dask.distributed import Client
    try:
        return Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"no Dask scheduler answers at {address!r}; give one that runs, such as tcp://127.0.0.1:8786."
        ) from error


def _await_worker(client: Any, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError as error:
        raise ConnectionError(
            f"the Dask scheduler at {address!r} has no workers; start some with: dask worker {address}"
        ) from error
