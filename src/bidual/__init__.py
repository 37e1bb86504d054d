"""Bidual: neural networks trained to a certified global optimum.

Names are imported where they are first used: ``import bidual`` takes milliseconds, and torch is not imported by it.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bidual.estimators import (
        ConvexAttentionClassifier,
        ConvexAttentionClassifierCV,
        ConvexAttentionRegressor,
        ConvexAttentionRegressorCV,
        ConvexClassifier,
        ConvexClassifierCV,
        ConvexCNNClassifier,
        ConvexCNNClassifierCV,
        ConvexCNNRegressor,
        ConvexCNNRegressorCV,
        ConvexMLPClassifier,
        ConvexMLPClassifierCV,
        ConvexMLPRegressor,
        ConvexMLPRegressorCV,
        ConvexParallelClassifier,
        ConvexParallelClassifierCV,
        ConvexParallelRegressor,
        ConvexParallelRegressorCV,
        ConvexRegressor,
        ConvexRegressorCV,
        LayerwiseCNNClassifier,
    )
    from bidual.estimators.certifying import NetworkCertificate, certify
    from bidual.estimators.paths import Path, regularization_path, regularization_paths
    from bidual.estimators.saving import load
    from bidual.estimators.whitening import ZCAWhitening
    from bidual.problems.certificate import Certificate, Scope
    from bidual.reporting import Report, report

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "ConvexAttentionClassifier",
    "ConvexAttentionClassifierCV",
    "ConvexAttentionRegressor",
    "ConvexAttentionRegressorCV",
    "ConvexCNNClassifier",
    "ConvexCNNClassifierCV",
    "ConvexCNNRegressor",
    "ConvexCNNRegressorCV",
    "ConvexClassifier",
    "ConvexClassifierCV",
    "ConvexMLPClassifier",
    "ConvexMLPClassifierCV",
    "ConvexMLPRegressor",
    "ConvexMLPRegressorCV",
    "ConvexParallelClassifier",
    "ConvexParallelClassifierCV",
    "ConvexParallelRegressor",
    "ConvexParallelRegressorCV",
    "ConvexRegressor",
    "ConvexRegressorCV",
    "LayerwiseCNNClassifier",
    "NetworkCertificate",
    "Path",
    "Report",
    "Scope",
    "ZCAWhitening",
    "certify",
    "load",
    "regularization_path",
    "regularization_paths",
    "report",
]

_ROOMS = {  # of names that are not in bidual.estimators
    "estimators.certifying": ("NetworkCertificate", "certify"),
    "estimators.paths": ("Path", "regularization_path", "regularization_paths"),
    "estimators.saving": ("load",),
    "estimators.whitening": ("ZCAWhitening",),
    "problems.certificate": ("Certificate", "Scope"),
    "reporting": ("Report", "report"),
}


if not TYPE_CHECKING:  # type checkers see the imports above, and misspelt names

    def __getattr__(name: str) -> Any:
        """A name of ``__all__`` or a room such as ``bidual.solvers``, on its first use."""
        if name in __all__:
            room = next((room for room, names in _ROOMS.items() if name in names), "estimators")
            value = getattr(import_module(f"{__name__}.{room}"), name)
            globals()[name] = value
            return value
        if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
