"""Samples as many vectors that share their hidden weights: patches of images, pairs of tokens."""

from bidual.patches.base import Patches
from bidual.patches.convolution import Convolution
from bidual.patches.images import ImagePatches
from bidual.patches.pooling import Pooling
from bidual.patches.tokens import TokenPairs

__all__ = ["Convolution", "ImagePatches", "Patches", "Pooling", "TokenPairs"]
