"""Factored training problems, the methods that descend on them, and how good a factored point is.

A new method is one file here and one line in ``METHODS``.
"""

from bidual.factored.arithmetic import resized
from bidual.factored.cone_program import ConeProgram
from bidual.factored.cones import Cones, non_negative_least_squares
from bidual.factored.descent import Descent
from bidual.factored.escape import leave_saddle
from bidual.factored.lbfgs import LBFGS
from bidual.factored.levenberg_marquardt import LevenbergMarquardt
from bidual.factored.method import Method, State
from bidual.factored.methods import METHODS, make_method
from bidual.factored.preconditioned import Preconditioned
from bidual.factored.program import FactoredProgram
from bidual.factored.proximal import Proximal
from bidual.factored.report import OptimalityReport, optimality_report
from bidual.factored.scaling import Scaling
from bidual.factored.solution import Ending, FactoredSolution, Moment
from bidual.factored.training import train
from bidual.factored.variable_projection import VariableProjection

__all__ = [
    "LBFGS",
    "METHODS",
    "ConeProgram",
    "Cones",
    "Descent",
    "Ending",
    "FactoredProgram",
    "FactoredSolution",
    "LevenbergMarquardt",
    "Method",
    "Moment",
    "OptimalityReport",
    "Preconditioned",
    "Proximal",
    "Scaling",
    "State",
    "VariableProjection",
    "leave_saddle",
    "make_method",
    "non_negative_least_squares",
    "optimality_report",
    "resized",
    "train",
]
