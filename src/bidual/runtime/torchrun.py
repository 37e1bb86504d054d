"""The ranks that torchrun has started: where they meet, their devices, and how they end."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import FrameType

import torch
import torch.distributed as dist

from bidual.runtime.rank_errors import AGAIN, FailedTogetherError, LostRankError, Pulse, lost_rank_errors
from bidual.runtime.ranks import Ranks

_TIMEOUT = 40.0  # seconds that a rank may be later than another with the same work, or without a beat
_START = 600.0  # seconds that a rank may take to start
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@contextmanager
def torchrun_ranks(timeout: float | None = None, device: str = "cpu") -> Iterator[Ranks]:
    """The ranks of a torchrun, which end with one sentence when torchrun ends them.

    A rank that dies closes its connections, which the others notice at once. A process that has lost the others, or
    fails with them, ends by itself with its sentence, and ignores torchrun's signal to end.

    Args:
        timeout: for a rank that hangs: seconds that it may be late; BIDUAL_TIMEOUT in the environment if None, 40 if
            that is not set.
        device: "cpu", where ranks talk by gloo, or "cuda", where every rank takes the GPU of its number on its machine
            and tensors go by NCCL.
    """
    ranks = _met(_timeout(timeout))

    def ended(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise LostRankError(
            f"rank {ranks.rank} of {ranks.size} was ended by torchrun, most likely because another rank has died; "
            f"{AGAIN}"
        )

    after, lost = signal.signal(signal.SIGTERM, ended), False
    try:
        yield _on(device, ranks, _timeout(timeout))
    except (LostRankError, FailedTogetherError) as error:
        signal.signal(signal.SIGTERM, after := signal.SIG_IGN)
        lost = isinstance(error, LostRankError)
        raise
    finally:
        signal.signal(signal.SIGTERM, after)
        ranks.leave(lost)


def _timeout(given: float | None) -> float:
    text = os.environ.get("BIDUAL_TIMEOUT", str(_TIMEOUT)) if given is None else str(given)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise ValueError(f"BIDUAL_TIMEOUT must be a number of seconds above zero, got {text!r}.")
    return seconds


def _met(timeout: float) -> Ranks:
    if any(name not in os.environ for name in _NEEDED):
        raise ValueError(
            "a distributed run is started by torchrun, which sets RANK and WORLD_SIZE; put "
            "torchrun --nproc-per-node 2 -m before bidual."
        )
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if size == 1:
        return Ranks()
    with lost_rank_errors(rank, size, "meeting the others"):
        store, limit = _meeting_place(rank, size), timedelta(seconds=timeout)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
        orders = dist.new_group(backend="gloo", timeout=limit)
        store.set_timeout(limit)
    pulse = Pulse(dist.PrefixStore("pulse", store), rank, size, timeout)
    return Ranks(rank, size, orders=orders, pulse=pulse, here=int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def _meeting_place(rank: int, size: int) -> dist.Store:
    """Where ranks leave their addresses, once all have started.

    It is another place after every restart: torchrun keeps the addresses of ranks that have died.
    """
    environment = os.environ
    hosts = rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    store = dist.TCPStore(environment["MASTER_ADDR"], int(environment["MASTER_PORT"]), size, hosts)
    place = dist.PrefixStore(f"bidual/{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    place.set(f"here/{rank}", "")
    place.wait([f"here/{other}" for other in range(size)], timedelta(seconds=_START))
    return place


def _on(device: str, ranks: Ranks, timeout: float) -> Ranks:
    """The same ranks with a device each; on GPUs they get a group of their own, in which waiting ends too."""
    place = ranks.together(lambda: _place(device))
    if place.type != "cuda":
        return ranks
    torch.cuda.set_device(place)
    if ranks.size == 1:
        return replace(ranks, device=place)
    os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # or a lost rank would abort the process without a message
    with lost_rank_errors(ranks.rank, ranks.size, "meeting the others on GPUs"):
        gpus = dist.new_group(backend="nccl", timeout=timedelta(seconds=timeout))
    return replace(ranks, device=place, gpus=gpus)


def _place(device: str) -> torch.device:
    if device == "cpu":
        return torch.device("cpu")
    if device != "cuda":
        raise ValueError(f"the device of a distributed run is cpu or cuda (one GPU for each rank), got {device!r}.")
    here, local = torch.cuda.device_count() if torch.cuda.is_available() else 0, int(os.environ.get("LOCAL_RANK", "0"))
    if not here:
        raise ValueError("device cuda is not there: torch finds no GPU on this machine; use --device cpu.")
    if not dist.is_nccl_available():
        raise ValueError("this torch comes without NCCL, by which GPUs talk; install one with it, or use --device cpu.")
    if local >= here:
        raise ValueError(f"{local + 1} ranks are more than the {here} GPUs of this machine; start at most {here} here.")
    return torch.device("cuda", local)
