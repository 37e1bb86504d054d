"""Certified training beside torch: networks that a torch loop has trained, taken to their optimum."""

from bidual.torch.finishing import Finished, finish

__all__ = ["Finished", "finish"]
