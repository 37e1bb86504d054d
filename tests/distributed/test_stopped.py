"""A rank 0 that is only busy is waited for. One that is stopped but not dead: the others say so and end."""

import os
import signal
import time
from pathlib import Path
from threading import Timer
from types import SimpleNamespace

import pytest
import torch

from bidual.operators.sharded import Order, OrderChannel
from bidual.runtime.rank_errors import LostRankError, Pulse
from helpers.launching import rank_of, torchrun, wait_for, wait_for_end
from helpers.places import HELPERS

SCRIPT = HELPERS / "waiting.py"
PROC = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="ranks are found in /proc")


@PROC
@pytest.mark.parametrize(
    ("phase", "sentence"),
    [
        ("solving", "rank 1 of 2 lost another rank while waiting for rank 0 (it did not answer in time)"),
        ("training", "rank 1 of 2 had no heartbeat of rank 0 for 4 seconds"),
        pytest.param("reading", "rank 1 of 2 had no heartbeat of rank 0 for 4 seconds", marks=pytest.mark.slow),
    ],
)
def test_a_busy_rank_0_is_waited_for_and_a_stopped_one_given_up(
    phase: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Busy for twice what it may be silent, then stopped."""
    monkeypatch.setenv("BIDUAL_TIMEOUT", "4")
    with torchrun(2, SCRIPT, phase, tmp_path / "there", 8, 100) as run:
        wait_for(tmp_path / "there")
        leader, other = rank_of(run.pid, 0), rank_of(run.pid, 1)
        os.kill(leader, signal.SIGSTOP)
        try:
            wait_for_end(other, 60)
        finally:
            os.kill(leader, signal.SIGKILL)
        _, errors = run.communicate(timeout=60)
    assert sentence in errors
    assert run.returncode != 0


class Store:
    """A store within one process."""

    def __init__(self) -> None:
        self.keys: dict[str, int] = {}

    def set(self, key: str, value: str) -> None:
        self.keys[key] = 0

    def check(self, keys: list[str]) -> bool:
        return all(key in self.keys for key in keys)

    def add(self, key: str, amount: int) -> int:
        self.keys[key] = self.keys.get(key, 0) + amount
        return self.keys[key]


def test_who_does_not_beat_is_named():
    store = Store()
    alive = Pulse(store, 0, 2, 0.2)  # type: ignore[arg-type]
    began = time.monotonic()
    with pytest.raises(LostRankError, match=r"rank 0 of 2 had no heartbeat of rank 1 for 0\.2 seconds"):
        alive.meet()
    assert time.monotonic() - began >= 0.2
    late = Pulse(store, 1, 2, 0.2)  # type: ignore[arg-type]
    late.meet()
    alive.stop()
    late.stop()


def test_who_beats_is_waited_for():
    store = Store()
    first, second = (Pulse(store, rank, 2, 0.3) for rank in (0, 1))  # type: ignore[arg-type]
    store.keys["meeting/1/1"] = 0
    first.meet()
    Timer(0.9, lambda: store.set("meeting/2/1", "")).start()  # three times what a silent rank is given
    first.meet()
    first.stop()
    second.stop()


class Listeners:
    """The other ranks, who only listen."""

    size, pulse = 2, SimpleNamespace(patience=0.2)

    def __init__(self) -> None:
        self.heard: list[int] = []

    def order(self, words: torch.Tensor) -> None:
        self.heard.append(int(words[0]))


def test_a_thinking_rank_0_tells_the_others_to_wait_between_orders_only():
    listeners = Listeners()
    line = OrderChannel(listeners)  # type: ignore[arg-type]
    with line.order(Order.FORWARD):
        time.sleep(0.3)
        assert listeners.heard == [Order.FORWARD]
    time.sleep(0.5)
    line.close(Order.STOP)
    time.sleep(0.2)
    assert listeners.heard[0] == Order.FORWARD
    assert listeners.heard[-1] == Order.STOP
    assert len(listeners.heard) > 3
    assert set(listeners.heard[1:-1]) == {Order.WAIT}
