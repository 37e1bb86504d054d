"""ReLU training as a copositive program, its relaxations, and networks from them (CP sections 4, A.3.4)."""

from bidual.training.copositive.forms import FORMS, relax
from bidual.training.copositive.program import CopositiveProgram
from bidual.training.copositive.relaxed import PolarProof, Relaxed
from bidual.training.copositive.training import Copositive

__all__ = [
    "FORMS",
    "Copositive",
    "CopositiveProgram",
    "PolarProof",
    "Relaxed",
    "relax",
]
