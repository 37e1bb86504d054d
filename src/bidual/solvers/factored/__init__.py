"""Factored training problems and the methods that descend on them (BM section 3).

A new method is one file here and one line in ``METHODS``.
"""

from bidual.patterns.cone_projection import Cones, non_negative_least_squares
from bidual.solvers.factored.arithmetic import resized
from bidual.solvers.factored.escape import leave_saddle
from bidual.solvers.factored.gradient_descent import Descent
from bidual.solvers.factored.lbfgs import LBFGS
from bidual.solvers.factored.levenberg_marquardt import LevenbergMarquardt
from bidual.solvers.factored.method import Method, State
from bidual.solvers.factored.methods import METHODS, make_method
from bidual.solvers.factored.preconditioned import Preconditioned
from bidual.solvers.factored.program import FactoredProgram
from bidual.solvers.factored.proximal import Proximal
from bidual.solvers.factored.scaling import Scaling
from bidual.solvers.factored.solution import Ending, FactoredSolution, Moment
from bidual.solvers.factored.training import train
from bidual.solvers.factored.variable_projection import VariableProjection

__all__ = [
    "LBFGS",
    "METHODS",
    "Cones",
    "Descent",
    "Ending",
    "FactoredProgram",
    "FactoredSolution",
    "LevenbergMarquardt",
    "Method",
    "Moment",
    "Preconditioned",
    "Proximal",
    "Scaling",
    "State",
    "VariableProjection",
    "leave_saddle",
    "make_method",
    "non_negative_least_squares",
    "resized",
    "train",
]
