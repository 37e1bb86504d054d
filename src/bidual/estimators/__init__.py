"""scikit-learn estimators."""

from bidual.estimators.attention import ConvexAttentionClassifier, ConvexAttentionRegressor
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.cnn import ConvexCNNClassifier, ConvexCNNRegressor
from bidual.estimators.cv import (
    ConvexAttentionClassifierCV,
    ConvexAttentionRegressorCV,
    ConvexClassifierCV,
    ConvexCNNClassifierCV,
    ConvexCNNRegressorCV,
    ConvexMLPClassifierCV,
    ConvexMLPRegressorCV,
    ConvexParallelClassifierCV,
    ConvexParallelRegressorCV,
    ConvexRegressorCV,
)
from bidual.estimators.general import ConvexClassifier, ConvexRegressor
from bidual.estimators.layerwise import LayerwiseCNNClassifier
from bidual.estimators.mlp import ConvexMLPClassifier, ConvexMLPRegressor
from bidual.estimators.parallel import ConvexParallelClassifier, ConvexParallelRegressor
from bidual.estimators.saving import ESTIMATORS

__all__ = [
    "ESTIMATORS",
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
    "ConvexEstimator",
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
]
