"""The polar of the ReLU gauge over all activation patterns: exact where that is affordable, bracketed elsewhere."""

from bidual.polar.base import (
    NeuronOracle,
    Neurons,
    Pooled,
    Repeated,
    SteepestNeurons,
    bound_near,
    oracle_for,
    steepness,
)
from bidual.polar.exact.faces import Faces
from bidual.polar.relaxations.diagonal import DiagonalBound
from bidual.polar.ridges import RidgeSearch
from bidual.polar.search import LocalSearch
from bidual.polar.sphere.oracle import Sphere

__all__ = [
    "DiagonalBound",
    "Faces",
    "LocalSearch",
    "NeuronOracle",
    "Neurons",
    "Pooled",
    "Repeated",
    "RidgeSearch",
    "Sphere",
    "SteepestNeurons",
    "bound_near",
    "oracle_for",
    "steepness",
]
