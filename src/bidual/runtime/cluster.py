"""Sweeps on a Dask cluster: everything that joblib runs goes to its workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from joblib import parallel_config

from bidual.runtime.extras import extra

_PATIENCE = 10.0  # seconds, for the scheduler and then for its first worker


@contextmanager
def scheduler(address: str | None) -> Iterator[None]:
    """Within the block sweeps run on the workers of the scheduler at ``address``; None changes nothing.

    Workers need this package, and the files that tasks read under the same names.
    """
    if address is None:
        yield
        return
    with _connected(address) as client:
        _await_worker(client, address)
        from bidual.runtime.dask_backend import ClusterBackend

        with parallel_config(ClusterBackend(client=client)):
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
