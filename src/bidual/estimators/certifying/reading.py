"""Networks of every kind as given networks: torch modules, estimators of scikit-learn and of this package, files."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from sklearn.utils.validation import check_is_fitted
from torch import nn

from bidual.estimators.base import ConvexEstimator
from bidual.estimators.certifying.attention import GivenAttention
from bidual.estimators.certifying.cnn import GivenCNN
from bidual.estimators.certifying.decay import Penalty
from bidual.estimators.certifying.free_bias import GivenFreeBias
from bidual.estimators.certifying.given import GivenNetwork
from bidual.estimators.certifying.head import GivenHead
from bidual.estimators.certifying.parallel import GivenParallel
from bidual.estimators.certifying.two_layer import GivenTwoLayer
from bidual.estimators.saving import read_saved
from bidual.io import foreign
from bidual.io.foreign import TwoLayerWeights, from_module
from bidual.io.foreign.normalisation import check_decays_itself

Network: TypeAlias = foreign.Network | ConvexEstimator
FAMILIES = (
    GivenCNN,
    GivenAttention,
    GivenParallel,
)  # beside two layers on rows of numbers, which all other networks are read as


def given_network(network: Network, head: Sequence[str] | None = None) -> GivenNetwork:
    """The network with what its family knows, or the two layers of a larger module that ``head`` names."""
    if head is not None:
        return GivenHead.of(network, head)
    if isinstance(network, ConvexEstimator):
        check_is_fitted(network)
    given = (family.read(network) for family in FAMILIES)
    module = network if isinstance(network, nn.Module) else None
    return next((found for found in given if found is not None), None) or GivenTwoLayer(
        read_network(network), module=module
    )


def judged_network(network: Network, head: Sequence[str] | None, penalty: Penalty) -> GivenNetwork:
    """The same under that penalty."""
    if penalty.weight_decay is not None and head is None and isinstance(network, nn.Module):
        check_decays_itself(network)
    given = given_network(network, head).decaying(penalty)
    return GivenFreeBias(given) if isinstance(given, GivenTwoLayer) and given.has_free_bias else given


def read_network(network: Network) -> TwoLayerWeights:
    """The weights of a torch module, of a fitted estimator of scikit-learn or of this package, or in a file."""
    network = restored(network)
    if isinstance(network, ConvexEstimator):
        check_is_fitted(network)
        return from_estimator(network)
    return foreign.read_network(network)


def restored(network: Network) -> Network:
    """The estimator in a model file of this package, anything else as it is."""
    saved = read_saved(Path(network)) if isinstance(network, (str, os.PathLike)) else None
    return network if saved is None else saved.estimator


def from_estimator(estimator: ConvexEstimator) -> TwoLayerWeights:
    """The weights of a fitted estimator of this package; a bias that it was not allowed to use is None."""
    weights = from_module(estimator.module_)
    hidden_bias = weights.hidden_bias if getattr(estimator.architecture_, "bias", True) else None
    output_bias = weights.output_bias if estimator.fit_intercept else None
    return TwoLayerWeights(weights.hidden, weights.output, hidden_bias, output_bias)
