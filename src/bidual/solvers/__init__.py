"""Solvers. A new one is one file here and one line in ``SOLVERS``."""

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

SOLVERS: dict[str, type[Solver]] = {
    cls.name: cls
    for cls in (
        KernelADMM,
        EtaNewton,
        EtaInteriorPoint,
        InteriorPoint,
        QInteriorPoint,
        ActiveNeurons,
        FISTA,
        PrimalDual,
        BurerMonteiro,
    )
}

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
]
