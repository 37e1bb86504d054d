"""Bidual: neural networks trained to a certified global optimum."""

from bidual.certificate import Certificate, Scope
from bidual.estimators import ConvexMLPClassifier, ConvexMLPClassifierCV, ConvexMLPRegressor, ConvexMLPRegressorCV
from bidual.paths import Path, regularization_path
from bidual.serialize import load

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "ConvexMLPClassifier",
    "ConvexMLPClassifierCV",
    "ConvexMLPRegressor",
    "ConvexMLPRegressorCV",
    "Path",
    "Scope",
    "load",
    "regularization_path",
]
