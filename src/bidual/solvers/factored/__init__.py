"""Factored training problems and the methods that descend on them (BM section 3).

A new method is one class with a name, here or anywhere else.
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
from bidual.solvers.factored.method import LBFGS, Method, State
from bidual.solvers.factored.program import FactoredProgram, Scaling

__all__ = [
    "LBFGS",
    "METHODS",
    "BurerMonteiro",
    "FactoredPoint",
    "FactoredProgram",
    "Method",
    "Scaling",
    "State",
    "factored_point",
    "leave_saddle",
    "make_method",
    "resized",
    "train",
]
