"""scikit-learn estimators."""

from bidual.estimators.attention import ConvexAttentionClassifier, ConvexAttentionRegressor
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.cnn import ConvexCNNClassifier, ConvexCNNRegressor
from bidual.estimators.cv import ConvexMLPClassifierCV, ConvexMLPRegressorCV
from bidual.estimators.general import ConvexClassifier, ConvexRegressor
from bidual.estimators.layerwise import LayerwiseCNNClassifier
from bidual.estimators.mlp import ConvexMLPClassifier, ConvexMLPRegressor
from bidual.estimators.parallel import ConvexParallelClassifier, ConvexParallelRegressor
from bidual.estimators.saving import ESTIMATORS

__all__ = [
    "ESTIMATORS",
    "ConvexAttentionClassifier",
    "ConvexAttentionRegressor",
    "ConvexCNNClassifier",
    "ConvexCNNRegressor",
    "ConvexClassifier",
    "ConvexEstimator",
    "ConvexMLPClassifier",
    "ConvexMLPClassifierCV",
    "ConvexMLPRegressor",
    "ConvexMLPRegressorCV",
    "ConvexParallelClassifier",
    "ConvexParallelRegressor",
    "ConvexRegressor",
    "LayerwiseCNNClassifier",
]
