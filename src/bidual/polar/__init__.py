"""The polar of the ReLU gauge over all activation patterns: exact where that is affordable, bracketed elsewhere."""

from bidual.polar.base import NeuronOracle, Neurons, SteepestNeurons, bound_near, steepness
from bidual.polar.exact.faces import Faces
from bidual.polar.exact.norms import NormFaces
from bidual.polar.pooled import Pooled, oracle_for
from bidual.polar.relaxations.diagonal import DiagonalBound
from bidual.polar.search.local import LocalSearch
from bidual.polar.search.norms import NormSearch
from bidual.polar.search.ridges import RidgeSearch
from bidual.polar.sphere.oracle import Sphere

__all__ = [
    "DiagonalBound",
    "Faces",
    "LocalSearch",
    "NeuronOracle",
    "Neurons",
    "NormFaces",
    "NormSearch",
    "Pooled",
    "RidgeSearch",
    "Sphere",
    "SteepestNeurons",
    "bound_near",
    "oracle_for",
    "steepness",
]
