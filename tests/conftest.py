"""One thread, and the shape annotations of the package checked while the tests run."""

import math
import os

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
