"""Solvers. A new one is one class with a name, here or anywhere else."""

from inspect import isabstract

from bidual.problems.problem import Problem
from bidual.runtime.registry import Registry
from bidual.solvers.active_neurons import ActiveNeurons
from bidual.solvers.conic.interior_point import InteriorPoint
from bidual.solvers.driver import Solver
from bidual.solvers.eta_interior_point import EtaInteriorPoint
from bidual.solvers.eta_newton import EtaNewton
from bidual.solvers.factored.burer_monteiro import BurerMonteiro
from bidual.solvers.fista import FISTA
from bidual.solvers.kernel_admm import KernelADMM
from bidual.solvers.primal_dual import PrimalDual
from bidual.solvers.q_interior_point import QInteriorPoint
from bidual.solvers.smoothed_newton import SmoothedNewton

SOLVERS: Registry[Solver] = Registry(  # of programs over given blocks; those over neurons are in training
    Solver, "solver", accepts=lambda cls: cls.takes is Problem and not isabstract(cls)
)

__all__ = [
    "FISTA",
    "SOLVERS",
    "ActiveNeurons",
    "BurerMonteiro",
    "EtaInteriorPoint",
    "EtaNewton",
    "InteriorPoint",
    "KernelADMM",
    "PrimalDual",
    "QInteriorPoint",
    "SmoothedNewton",
]
