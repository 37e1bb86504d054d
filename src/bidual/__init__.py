"""Bidual: neural networks trained to a certified global optimum."""

from typing import TYPE_CHECKING, Any

from bidual.certificate import Certificate, Scope
from bidual.certifying import NetworkCertificate, certify
from bidual.estimators import (
    ConvexAttentionClassifier,
    ConvexAttentionRegressor,
    ConvexCNNClassifier,
    ConvexCNNRegressor,
    ConvexMLPClassifier,
    ConvexMLPClassifierCV,
    ConvexMLPRegressor,
    ConvexMLPRegressorCV,
    ConvexParallelClassifier,
    ConvexParallelRegressor,
    LayerwiseCNNClassifier,
)
from bidual.paths import Path, regularization_path, regularization_paths
from bidual.serialize import load
from bidual.whitening import ZCAWhitening

if TYPE_CHECKING:
    from bidual.reporting import Report, report

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "ConvexAttentionClassifier",
    "ConvexAttentionRegressor",
    "ConvexCNNClassifier",
    "ConvexCNNRegressor",
    "ConvexMLPClassifier",
    "ConvexMLPClassifierCV",
    "ConvexMLPRegressor",
    "ConvexMLPRegressorCV",
    "ConvexParallelClassifier",
    "ConvexParallelRegressor",
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


def __getattr__(name: str) -> Any:
    """Reports draw figures, and matplotlib is slow to import: only where it is used."""
    if name in ("Report", "report"):
        from bidual import reporting

        return getattr(reporting, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
