"""Fewer neurons for the same objective: near-copies are merged, light neurons dropped, and the rest weighed again."""

from collections.abc import Callable

import torch

from bidual.training.relu.network_descent import Network, merged

_LEVELS = (1e-2, 1e-3, 1e-4, 1e-6)  # of 1 - cosine and of the heaviest neuron, the boldest first
_SAME = 1e-9  # of the objective, what counts as rounding


def compacted(network: Network, primal: float, weigh: Callable[[Network], tuple[Network, float]]) -> Network | None:
    """The boldest of these networks whose objective is not above ``primal``, None if all are; ``weigh`` finds the best
    output weights of some neurons, and the objective with them."""
    tried = len(network.Z)
    for level in _LEVELS:
        few = heavy(merged(network, level), level)
        if not len(few.Z) or (len(few.Z) == tried and level < _LEVELS[0]):
            continue
        tried = len(few.Z)
        weighed, objective = weigh(few)
        if objective <= primal * (1 + _SAME):
            return heavy(weighed, 0.0)
    return None


def heavy(network: Network, share: float) -> Network:
    """Without neurons that weigh at most this share of the heaviest."""
    sizes = torch.linalg.vector_norm(network.Z, dim=(1, 2))
    kept = sizes > share * sizes.max() if len(sizes) else sizes > 0
    return Network(network.neurons[kept], network.Z[kept])
