"""One door for every kind of network, and the networks of scikit-learn with their weight decay."""

import os
from numbers import Integral
from typing import TypeAlias

from sklearn.base import BaseEstimator
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from torch import nn

from bidual.io.foreign.files import from_file
from bidual.io.foreign.modules import from_module
from bidual.io.foreign.weights import TwoLayerWeights

Network: TypeAlias = TwoLayerWeights | nn.Module | BaseEstimator | str | os.PathLike[str]
_HEADS = ("identity", "logistic", "softmax")  # what sits on the raw outputs; the loss contains it
_AUTO_BATCH = 200


def read_network(network: Network) -> TwoLayerWeights:
    """The weights of a torch module, of a fitted estimator of scikit-learn, or in a file."""
    if isinstance(network, TwoLayerWeights):
        return network
    if isinstance(network, nn.Module):
        return from_module(network)
    if isinstance(network, BaseEstimator):
        return from_sklearn(network)
    if isinstance(network, (str, os.PathLike)):
        return from_file(network)
    raise TypeError(
        f"cannot read a network from a {type(network).__name__}; give a torch module, an MLPRegressor or "
        "MLPClassifier, or the path of a file."
    )


def from_sklearn(estimator: BaseEstimator) -> TwoLayerWeights:
    """The weights of a fitted ``MLPRegressor`` or ``MLPClassifier`` with one hidden layer of ReLUs.

    A classifier's outputs are the raw scores, before the logistic function or softmax: one for two classes (positive
    means the second of ``classes_``), else one per class.
    """
    mlp = _perceptron(estimator)
    name = type(mlp).__name__
    if not hasattr(mlp, "coefs_"):
        raise ValueError(f"this {name} is not fitted; call fit first.")
    if mlp.activation != "relu":
        raise ValueError(f"this {name} has activation={mlp.activation!r}; only 'relu' can be certified.")
    if len(mlp.coefs_) != 2:
        raise ValueError(f"this {name} has {len(mlp.coefs_) - 1} hidden layers; only one can be certified.")
    if mlp.out_activation_ not in _HEADS:
        raise ValueError(f"this {name} ends with {mlp.out_activation_!r}; use loss='squared_error'.")
    (hidden, output), (hidden_bias, output_bias) = mlp.coefs_, mlp.intercepts_
    return TwoLayerWeights.of(hidden.T, output.T, hidden_bias, output_bias)


def sklearn_beta(estimator: BaseEstimator, n_samples: int) -> float:
    r"""The beta of this package that stands for the ``alpha`` of a scikit-learn network trained on ``n_samples``.

    A step of scikit-learn follows the gradient of ``mean loss + alpha / (2 b) * sum of squares`` over a batch of b
    samples, that is ``sum of losses + beta / 2 * sum of squares`` with ``beta = alpha * n / b``: just ``alpha`` for
    ``solver="lbfgs"``, where b = n, but n / 200 times as much for "adam" and "sgd" with more than 200 samples.
    (Its squared loss is reported as a mean over outputs, but its gradient is that of the sum, as here.)

    The penalty covers the weights only, no biases: ``certify(..., decayed_bias=False)`` judges such networks. The
    estimators of this package penalise the hidden bias too, as a weight of a constant feature.

    Args:
        estimator: an ``MLPRegressor`` or ``MLPClassifier``; it need not be fitted.
        n_samples: how many samples it was trained on (with ``early_stopping``, without those held out).
    """
    mlp = _perceptron(estimator)
    if not isinstance(n_samples, Integral) or n_samples < 1:
        raise ValueError(f"n_samples must be a positive whole number, got {n_samples!r}.")
    size = _AUTO_BATCH if mlp.batch_size == "auto" else mlp.batch_size
    batch = n_samples if mlp.solver == "lbfgs" else min(max(size, 1), n_samples)
    return float(mlp.alpha) * int(n_samples) / int(batch)


def _perceptron(estimator: BaseEstimator) -> MLPRegressor | MLPClassifier:
    if isinstance(estimator, (MLPRegressor, MLPClassifier)):
        return estimator
    if isinstance(estimator, Pipeline):
        raise ValueError("a Pipeline cannot be read; give its last step, and the X which that step sees.")
    raise ValueError(
        f"a {type(estimator).__name__} cannot be read; give an MLPRegressor or MLPClassifier with activation='relu'."
    )
