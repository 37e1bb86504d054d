"""Warnings that point at the line of the user's program that caused them."""

import os
import sys
import warnings
from pathlib import Path

import joblib
import sklearn

_FOLDERS = tuple(  # of this package, and of libraries that call estimators for the user
    os.path.join(Path(str(file)).parent, "") for file in (Path(__file__).parent, sklearn.__file__, joblib.__file__)
)


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the innermost frame that is neither this package's nor that of a library which calls its estimators."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOLDERS):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, category, stacklevel=depth)
