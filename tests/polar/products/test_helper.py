"""When a second process is started for a proof."""

import math
import time
from typing import Any

import pytest
import torch

from bidual.polar.products import helper as module
from bidual.polar.products.helper import Helper
from bidual.runtime.helper_process import HelperLostError
from bidual.runtime.threads import one_thread


class Process:
    """Is ready after the third question."""

    def __init__(self, worker: str) -> None:
        self.asked, self.closed = 0, False

    def ready(self) -> bool:
        self.asked += 1
        return self.asked > 2

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds, on a machine with two cores of which one is free."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(module, "_idle_seconds", lambda: 5.0 + 0.9 * now[0])
    monkeypatch.setattr(module, "cpu_count", lambda: 2)
    monkeypatch.setattr(module, "spare_threads", lambda: 2)
    monkeypatch.setattr(module, "helpers_possible", lambda: True)
    monkeypatch.setattr(module, "HelperProcess", Process)
    return now


def test_it_starts_after_a_while_and_is_there_when_it_is_ready(clock: list[float]) -> None:
    helper = Helper()
    assert helper.ready() is None
    assert helper.process is None
    clock[0] = 3.0
    assert [helper.ready() is None for _ in range(4)] == [True, True, True, False]
    process: Any = helper.process
    assert helper.ready() is process
    helper.close()
    assert process.closed
    assert helper.ready() is None


@pytest.mark.parametrize(("deadline", "starts"), [(math.inf, True), (10.0, True), (8.0, False)])
def test_it_does_not_start_for_proofs_that_end_soon(clock: list[float], deadline: float, starts: bool) -> None:
    with Helper(deadline) as helper:
        clock[0] = 3.0
        helper.ready()
        assert (helper.process is not None) == starts


def test_a_busy_machine_is_looked_at_again(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    idle = {0.0: 7.0, 3.0: 8.5, 4.5: 9.0, 6.0: 10.4}  # half of a core, a third of one, nearly all of one
    monkeypatch.setattr(module, "_idle_seconds", lambda: idle[clock[0]])
    helper = Helper()
    for clock[0], starts in ((3.0, False), (3.5, False), (4.5, False), (6.0, True)):
        helper.ready()
        assert (helper.process is not None) == starts


@pytest.mark.parametrize("what", ["cpu_count", "spare_threads", "helpers_possible"])
def test_it_never_starts_without_a_second_core_or_thread(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(module, what, lambda: False)
    helper = Helper()
    clock[0] = 3.0
    helper.ready()
    assert helper.process is None


def test_a_start_that_fails_is_the_last(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(worker: str) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(module, "HelperProcess", refuse)
    helper = Helper()
    with caplog.at_level("INFO", logger="bidual"):
        for clock[0] in (3.0, 6.0):
            assert helper.ready() is None
    assert len(caplog.records) == 1


def test_one_that_dies_on_the_way_is_closed(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    def die(process: Process) -> bool:
        raise HelperLostError("dead")

    monkeypatch.setattr(Process, "ready", die)
    helper = Helper()
    clock[0] = 3.0
    helper.ready()
    process: Any = helper.process
    assert helper.ready() is None
    assert process.closed
    assert helper.over


def test_the_callers_one_thread_is_one_process() -> None:
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert Helper().over
    finally:
        torch.set_num_threads(1)
    assert Helper().over
