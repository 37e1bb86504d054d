"""The clock of the machine may be set while a fit runs: durations and deadlines do not look at it."""

import ast
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bidual

SOURCE = Path(bidual.__file__).parent
# when a run began, for the reader; and the age of files, which have stamps of that clock
STAMPS = {"papers/reproduction/clock.py", "runtime/files.py"}


@pytest.fixture(params=[-3600.0, 3600.0], ids=["backwards", "forwards"])
def moved_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every look at the clock finds it an hour further."""
    real, steps = time.time(), count()
    monkeypatch.setattr(time, "time", lambda: real + request.param * next(steps))
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * time.time()))
    return


def data() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(12, 2))
    return X, np.maximum(X[:, 0], 0) - X[:, 1]


@pytest.mark.parametrize(
    "settings", [{"activation": "gated_relu", "n_gates": 20}, {"oracle": "search", "n_starts": 20}]
)
@pytest.mark.usefixtures("moved_clock")
def test_a_fit_with_a_time_limit_does_not_see_it(settings: dict[str, Any]) -> None:
    X, y = data()
    model = bidual.ConvexMLPRegressor(beta=0.5, max_time=600.0, **settings).fit(X, y)
    assert model.certificate_.relative_gap <= 1e-4
    seconds = [record.seconds for record in model.history_]
    assert all(0 <= now < 600 for now in seconds)
    assert seconds == sorted(seconds)


@pytest.mark.usefixtures("moved_clock")
def test_a_time_limit_still_ends_a_fit() -> None:
    X, y = data()
    began = time.monotonic()
    settings = {"activation": "gated_relu", "solver": "primal_dual", "max_iter": 10**9}
    with pytest.warns(UserWarning, match="time limit"):
        bidual.ConvexMLPRegressor(beta=1e-3, tol=1e-15, max_time=0.3, **settings).fit(X, y)
    assert time.monotonic() - began < 60


def clock_calls(path: Path) -> list[str]:
    """Names in a file that look at the machine's clock."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
    named = [f"{getattr(node.value, 'id', '')}.{node.attr}" for node in nodes]
    wall = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "time.localtime"}
    return [name for name in named if name in wall]


def test_nothing_measures_with_the_clock_of_the_machine() -> None:
    assert {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if clock_calls(path)} == STAMPS
