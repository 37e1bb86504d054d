"""ReLU training as a copositive program, its relaxations, and networks from them (CP sections 4, A.3.4)."""

from bidual.copositive.program import CopositiveProgram
from bidual.copositive.relaxed import PolarProof, Relaxed
from bidual.copositive.relaxing import FORMS, relax
from bidual.copositive.tightness import Tightness, tightness
from bidual.copositive.training import CopositiveTraining

__all__ = [
    "FORMS",
    "CopositiveProgram",
    "CopositiveTraining",
    "PolarProof",
    "Relaxed",
    "Tightness",
    "relax",
    "tightness",
]
