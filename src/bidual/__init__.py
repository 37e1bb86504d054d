"""Bidual: neural networks trained to a certified global optimum."""

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
from bidual.paths import Path, regularization_path
from bidual.serialize import load
from bidual.whitening import ZCAWhitening

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
    "Scope",
    "ZCAWhitening",
    "certify",
    "load",
    "regularization_path",
]
