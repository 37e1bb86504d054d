"""ReLU training as a copositive program, its relaxations, and networks from them (CP sections 4, A.3.4)."""

from bidual.training.copositive.randomised_rounding import CopositiveProgram
from bidual.training.copositive.relaxed import PolarProof, Relaxed
from bidual.training.copositive.training import FORMS, Copositive, relax

__all__ = [
    "FORMS",
    "Copositive",
    "CopositiveProgram",
    "PolarProof",
    "Relaxed",
    "relax",
]
