"""scikit-learn estimators."""

from bidual.estimators.cv import ConvexMLPClassifierCV, ConvexMLPRegressorCV
from bidual.estimators.mlp import ConvexMLPClassifier, ConvexMLPRegressor

__all__ = ["ConvexMLPClassifier", "ConvexMLPClassifierCV", "ConvexMLPRegressor", "ConvexMLPRegressorCV"]
