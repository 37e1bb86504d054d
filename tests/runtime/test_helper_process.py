"""A child process that answers, ends with its parent, and may be lost."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import psutil
import pytest

from bidual.runtime.helper_process import HelperLostError, HelperProcess, helpers_possible
from bidual.runtime.shared_arrays import write_arrays

pytestmark = pytest.mark.skipif(os.name != "posix", reason="helpers are for POSIX systems")
ORPHAN = """
import os, signal
from bidual.runtime.helper_process import HelperProcess
helper = HelperProcess("helpers.echo_helper")
helper.answer(60)
print(helper.pid, flush=True)
{before}
os.kill(os.getpid(), signal.SIGKILL)
"""


def within(seconds: float, true: Callable[[], bool]) -> bool:
    ends = time.monotonic() + seconds
    while not true() and time.monotonic() < ends:
        time.sleep(0.02)
    return true()


def ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def helper() -> Iterator[HelperProcess]:
    found = HelperProcess("helpers.echo_helper")
    assert within(60, found.ready)
    yield found
    found.close()
    assert ended(found.pid)


def test_it_answers_and_shares_numbers(helper: HelperProcess) -> None:
    helper.ask("one two")
    assert helper.answer(60) == "one two"
    x = write_arrays(helper.file, {"x": np.arange(4.0)})["x"]
    helper.ask("square")
    assert helper.answer(60) == "done"
    np.testing.assert_array_equal(x, [0, 1, 4, 9])


@pytest.mark.parametrize("how", ["killed", "ends by itself"])
def test_a_dead_one_is_lost(helper: HelperProcess, how: str) -> None:
    if how == "killed":
        helper.process.kill()
        helper.process.wait()
    else:
        helper.ask("end")
    with pytest.raises(HelperLostError, match="has ended"):
        helper.answer(60)
    helper.process.wait()
    with pytest.raises(HelperLostError, match="has ended"):
        helper.ask("one")


def test_a_silent_one_is_lost_in_time(helper: HelperProcess) -> None:
    helper.ask("silent")
    with pytest.raises(HelperLostError, match="did not answer"):
        helper.answer(0.1)


def test_a_closed_one_has_ended_and_is_lost(helper: HelperProcess) -> None:
    helper.close()
    helper.close()
    assert ended(helper.pid)
    with pytest.raises(HelperLostError):
        helper.ask("one")
    with pytest.raises(HelperLostError):
        helper.answer(1)


def test_what_is_forgotten_ends() -> None:
    helper = HelperProcess("helpers.echo_helper")
    helper.answer(60)
    pid = helper.pid
    del helper
    assert ended(pid)


@pytest.mark.parametrize("before", ["", "if not os.fork(): os.close(1); os.close(2); import time; time.sleep(10)"])
def test_it_ends_with_its_parent(before: str) -> None:
    """Also where a fork of the parent keeps the pipe open."""
    script = ORPHAN.format(before=before)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert done.returncode == -signal.SIGKILL
    assert not done.stderr
    assert within(15, lambda: ended(int(done.stdout)))


def test_a_module_that_cannot_be_imported_is_never_ready() -> None:
    helper = HelperProcess("helpers.no_such_module")
    helper.process.wait()
    with pytest.raises(HelperLostError, match="has ended"):
        helper.ready()
    helper.close()


def test_frozen_programs_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert helpers_possible()
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert not helpers_possible()
