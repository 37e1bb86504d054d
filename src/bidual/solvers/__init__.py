"""Solvers. A new one is one file here and one line in ``SOLVERS``."""

from bidual.driver import Solver
from bidual.solvers.burer_monteiro import BurerMonteiro
from bidual.solvers.eta_interior_point import EtaInteriorPoint
from bidual.solvers.eta_newton import EtaNewton
from bidual.solvers.fista import FISTA
from bidual.solvers.interior_point import InteriorPoint
from bidual.solvers.kernel_admm import KernelADMM
from bidual.solvers.primal_dual import PrimalDual

SOLVERS: dict[str, type[Solver]] = {
    cls.name: cls for cls in (KernelADMM, EtaNewton, EtaInteriorPoint, InteriorPoint, FISTA, PrimalDual, BurerMonteiro)
}

__all__ = [
    "FISTA",
    "SOLVERS",
    "BurerMonteiro",
    "EtaInteriorPoint",
    "EtaNewton",
    "InteriorPoint",
    "KernelADMM",
    "PrimalDual",
]
