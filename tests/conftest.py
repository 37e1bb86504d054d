"""One thread, and every shape annotation of the package checked while the tests run."""

from collections.abc import Callable
from typing import Any

import torch
from beartype import beartype
from jaxtyping import install_import_hook

torch.set_num_threads(1)


def check_types(function: Callable[..., Any]) -> Callable[..., Any]:
    """beartype, without the annotations that name ``Self``: it takes those on decorated classes only."""
    hints = getattr(function, "__annotations__", {})
    function.__annotations__ = {name: hint for name, hint in hints.items() if "typing.Self" not in str(hint)}
    return beartype(function)


# The face is left out: scikit-learn wants constructors that take anything, and fit to refuse it.
CORE = (
    "losses",
    "datafit",
    "gauges",
    "operators",
    "patterns",
    "polar",
    "relu",
    "problem",
    "certificate",
    "driver",
    "solvers",
    "architectures",
    "factored",
)
install_import_hook([f"bidual.{room}" for room in CORE], "conftest.check_types")
