"""joblib's Dask backend, for clusters that lose workers. Importing this needs ``bidual[dask]``."""

import asyncio
from typing import Any

from dask.distributed import KilledWorker
from joblib._dask import DaskDistributedBackend


class ClusterBackend(DaskDistributedBackend):
    """Differs from joblib's in two ways.

    A task that Dask gives up, because every worker that took it died, is an error; joblib's waits for it forever. And
    all tasks go to the cluster, even while it has one thread only; joblib's then runs them in the calling process.
    """

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        return max(2, super().effective_n_jobs(n_jobs))

    async def _collect(self) -> None:
        while self._continue:
            async for future, result in self.waiting_futures:
                waiting, tell = self._results.pop(future), self._callbacks.pop(future)
                if future.status == "finished":
                    waiting.set_result(result)
                    tell(result)
                else:
                    error = _error(result)
                    waiting.set_exception(error)
                    tell(error)
            await asyncio.sleep(0.01)

    def retrieve_result_callback(self, out: Any) -> Any:
        if isinstance(out, Exception):
            raise out
        return super().retrieve_result_callback(out)


def _error(result: Any) -> Exception:
    """What became of a task that has no result: a triple as of ``sys.exc_info``, or the error alone."""
    error = result[1] if isinstance(result, tuple) else result
    if isinstance(error, KilledWorker):
        return ChildProcessError(
            f"a task was lost with {error.allowed_failures + 1} worker(s), most likely for lack of memory; give them "
            "more of it, or fewer threads."
        )
    return error if isinstance(error, Exception) else RuntimeError(f"a task on the cluster was cancelled: {error!r}.")
