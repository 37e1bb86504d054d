"""The polar of the ReLU gauge over all activation patterns: exact where that is affordable, bracketed elsewhere."""

from bidual.polar.base import NeuronOracle, Neurons, Peaks, steepness

__all__ = ["NeuronOracle", "Neurons", "Peaks", "steepness"]
