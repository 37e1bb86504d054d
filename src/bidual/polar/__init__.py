"""The polar of the ReLU gauge over all activation patterns: exact where that is affordable, bracketed elsewhere."""

from bidual.polar.base import NeuronOracle, Neurons, Peaks, steepness
from bidual.polar.faces import Faces

__all__ = ["Faces", "NeuronOracle", "Neurons", "Peaks", "steepness"]
