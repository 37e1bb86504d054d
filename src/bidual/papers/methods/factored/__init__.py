"""Further methods for factored training (BM section 3): importing this package makes them known by their names."""

from bidual.papers.methods.factored.gradient_descent import Descent
from bidual.papers.methods.factored.levenberg_marquardt import LevenbergMarquardt
from bidual.papers.methods.factored.preconditioned import Preconditioned
from bidual.papers.methods.factored.proximal import Proximal
from bidual.papers.methods.factored.variable_projection import VariableProjection

__all__ = ["Descent", "LevenbergMarquardt", "Preconditioned", "Proximal", "VariableProjection"]
