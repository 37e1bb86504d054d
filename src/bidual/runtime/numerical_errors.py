"""Errors of arithmetic that the scale of the data causes, as errors about the data."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bidual.runtime.json_text import one_line

NUMERICAL = (FloatingPointError, OverflowError, np.linalg.LinAlgError, torch.linalg.LinAlgError)
LARGEST = 1e100  # products of three such numbers are still numbers in float64


def check_magnitude(name: str, values: NDArray[Any], largest: float = LARGEST) -> None:
    """Refuse finite numbers so large that their squares and products are not."""
    found = float(np.abs(values).max(initial=0.0))
    if found > largest:
        raise ValueError(f"{name} holds {found:g}, beyond {largest:g}; use larger units, or standardise.")


@contextmanager
def numerical_errors_as_value_error() -> Iterator[None]:
    """A ValueError where a computation breaks down on its numbers."""
    try:
        yield
    except NUMERICAL as error:
        raise ValueError(
            f"the numbers of this problem are beyond what float64 can compute with ({one_line(error)}); standardise "
            "features and targets, or use another beta."
        ) from error
