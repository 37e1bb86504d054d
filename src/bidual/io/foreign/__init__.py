"""Networks made anywhere: the weights of a two-layer ReLU network from torch, scikit-learn or a file."""

from bidual.io.foreign.files import from_file
from bidual.io.foreign.modules import from_module
from bidual.io.foreign.reading import Network, from_sklearn, read_network, sklearn_beta
from bidual.io.foreign.weights import TwoLayerWeights, class_codes, number_targets

__all__ = [
    "Network",
    "TwoLayerWeights",
    "class_codes",
    "from_file",
    "from_module",
    "from_sklearn",
    "number_targets",
    "read_network",
    "sklearn_beta",
]
