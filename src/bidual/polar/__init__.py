"""The polar of the ReLU gauge over all activation patterns: exact where that is affordable, bracketed elsewhere."""

from bidual.polar.base import NeuronOracle, Neurons, Peaks, bound_near, steepness
from bidual.polar.branch_and_bound import BranchAndBound
from bidual.polar.diagonal import DiagonalBound
from bidual.polar.faces import Faces
from bidual.polar.norm_search import NormSearch
from bidual.polar.norms import NormFaces
from bidual.polar.pooled import Pooled, oracle_for
from bidual.polar.ridges import RidgeSearch
from bidual.polar.search import LocalSearch
from bidual.polar.semidefinite import SemidefiniteBound
from bidual.polar.sphere import Sphere

__all__ = [
    "BranchAndBound",
    "DiagonalBound",
    "Faces",
    "LocalSearch",
    "NeuronOracle",
    "Neurons",
    "NormFaces",
    "NormSearch",
    "Peaks",
    "Pooled",
    "RidgeSearch",
    "SemidefiniteBound",
    "Sphere",
    "bound_near",
    "oracle_for",
    "steepness",
]
