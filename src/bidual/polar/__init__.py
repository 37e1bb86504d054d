"""The polar of the ReLU gauge over all activation patterns: exact where that is affordable, bracketed elsewhere."""

from bidual.polar.base import NeuronOracle, Neurons, Peaks, bound_near, steepness
from bidual.polar.faces import Faces
from bidual.polar.norm_search import NormSearch
from bidual.polar.norms import NormFaces
from bidual.polar.search import LocalSearch

__all__ = [
    "Faces",
    "LocalSearch",
    "NeuronOracle",
    "Neurons",
    "NormFaces",
    "NormSearch",
    "Peaks",
    "bound_near",
    "steepness",
]
