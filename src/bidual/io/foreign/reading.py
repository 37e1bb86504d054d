"""One door for every kind of network."""

import os
from typing import TypeAlias

from sklearn.base import BaseEstimator
from torch import nn

from bidual.io.foreign.files import from_file
from bidual.io.foreign.modules import from_module
from bidual.io.foreign.scikit import from_sklearn
from bidual.io.foreign.weights import TwoLayerWeights

Network: TypeAlias = TwoLayerWeights | nn.Module | BaseEstimator | str | os.PathLike[str]


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
