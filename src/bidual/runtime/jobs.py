"""Many independent fits through joblib: on this machine's processes, or on whatever backend the caller has chosen."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from joblib.externals.loky.process_executor import BrokenProcessPool

from bidual.runtime.threads import one_thread

OnDone = Callable[[int, Any], None]
Ended = Generator[tuple[int, Any], None, None]
_LOSSES = 3  # of workers in a row, without a task that ends in between


# With slots nothing can refer to it weakly, so joblib's Dask backend sends it with its task. What can be referred to it
# puts on one worker first, and all tasks that need it are lost with that worker.
@dataclass(frozen=True, slots=True)
class Task:
    """A call to make somewhere: a function of a module, and arguments that can be pickled."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()

    def run(self, alone: bool) -> Any:
        """The result; not ``alone`` means that other tasks share the machine, and one thread must do."""
        with parallel_config("sequential"), nullcontext() if alone else one_thread():
            return self.function(*self.arguments)


def run_all(tasks: Sequence[Task], n_jobs: int | None = None, on_done: OnDone | None = None) -> list[Any]:
    """The results of all tasks in their order, whichever ends first.

    Args:
        n_jobs: as in scikit-learn: None is 1, or what ``joblib.parallel_config`` says; -1 is one for every core. A Dask
            backend has as many as its workers have threads, whatever is said here.
        on_done: is told the number of a task and its result, here and once, as soon as it has ended.

    What a lost worker was at is done again by another one; a task's own error ends everything.
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
    alone = effective_n_jobs(n_jobs) == 1
    work = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
    yield from work(delayed(_numbered)(number, tasks[number], alone) for number in numbers)


def _numbered(number: int, task: Task, alone: bool) -> tuple[int, Any]:
    return number, task.run(alone)
