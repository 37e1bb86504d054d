"""Samples made of many vectors that share their hidden weights: patches of images, pairs of tokens."""

from bidual.operators.patches.base import Patches
from bidual.operators.patches.convolution import Convolution, Pooling
from bidual.operators.patches.images import ImagePatches
from bidual.operators.patches.tokens import TokenPairs

__all__ = ["Convolution", "ImagePatches", "Patches", "Pooling", "TokenPairs"]
