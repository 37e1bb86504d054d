"""Path-regularised parallel networks (PR)."""

from bidual.parallel.path_norm import path_norm, path_norm_of, rescaled

__all__ = ["path_norm", "path_norm_of", "rescaled"]
