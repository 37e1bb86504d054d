"""Warnings that point at the line of the user's program that caused them."""

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])
_CALLERS = {"sklearn", "joblib"}  # libraries that call estimators for the user


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the innermost frame that is neither this package's nor that of a library which calls its estimators."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and _is_library(frame.f_code.co_filename):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, category, stacklevel=depth)


def _is_library(file: str) -> bool:
    return file.startswith(_PACKAGE) or not _CALLERS.isdisjoint(Path(file).parts)
