"""Factored training problems and the methods that descend on them (BM section 3).

A new method is one file here and one line in ``METHODS``.
"""

from bidual.solvers.factored.arithmetic import resized
from bidual.solvers.factored.burer_monteiro import (
    METHODS,
    BurerMonteiro,
    FactoredPoint,
    factored_point,
    make_method,
    train,
)
from bidual.solvers.factored.escape import leave_saddle
from bidual.solvers.factored.gradient_descent import Descent
from bidual.solvers.factored.lbfgs import LBFGS
from bidual.solvers.factored.levenberg_marquardt import LevenbergMarquardt
from bidual.solvers.factored.method import Method, State
from bidual.solvers.factored.preconditioned import Preconditioned
from bidual.solvers.factored.program import FactoredProgram, Scaling
from bidual.solvers.factored.proximal import Proximal
from bidual.solvers.factored.variable_projection import VariableProjection

__all__ = [
    "LBFGS",
    "METHODS",
    "BurerMonteiro",
    "Descent",
    "FactoredPoint",
    "FactoredProgram",
    "LevenbergMarquardt",
    "Method",
    "Preconditioned",
    "Proximal",
    "Scaling",
    "State",
    "VariableProjection",
    "factored_point",
    "leave_saddle",
    "make_method",
    "resized",
    "train",
]
