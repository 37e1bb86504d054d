"""One thread, figures without their layout, and the shape annotations of the package checked while the tests run."""

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from helpers.places import HELPERS
from helpers.type_checks import Checking

torch.set_num_threads(1)
# scripts that tests run as processes import helpers too
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HELPERS.parent), os.environ.get("PYTHONPATH"))))


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr != "not slow":
        Checking.calls = math.inf


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What shares one long preparation goes first: workers steal from the end, and would prepare it again."""
    items.sort(key=lambda item: item.path.name != "test_smoke.py")


def pytest_runtest_setup() -> None:
    Checking.test += 1


@pytest.fixture(scope="session", autouse=True)
def layout(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Fitting labels to a page takes over half of drawing it, and tests that look at it ask for ``laid_out``."""
    from matplotlib.figure import Figure

    engine = Figure.get_layout_engine
    with pytest.MonkeyPatch.context() as patch:
        if request.config.option.markexpr == "not slow":
            patch.setattr(Figure, "get_layout_engine", lambda figure: None)
        yield engine


@pytest.fixture
def laid_out(layout: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures as users see them."""
    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "get_layout_engine", layout)
