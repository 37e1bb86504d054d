"""Path-regularised parallel networks (PR)."""

from bidual.architectures.path_norm import path_norm, path_norm_of, rescaled
from bidual.training.parallel.pruning import prune, with_networks

__all__ = ["path_norm", "path_norm_of", "prune", "rescaled", "with_networks"]
