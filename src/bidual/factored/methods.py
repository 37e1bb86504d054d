"""The methods by name."""

from bidual.factored.descent import Descent
from bidual.factored.lbfgs import LBFGS
from bidual.factored.levenberg_marquardt import LevenbergMarquardt
from bidual.factored.method import Method
from bidual.factored.preconditioned import Preconditioned
from bidual.factored.proximal import Proximal
from bidual.factored.variable_projection import VariableProjection

_SHIPPED: tuple[type[Method], ...] = (
    Descent,
    Preconditioned,
    LBFGS,
    LevenbergMarquardt,
    VariableProjection,
    Proximal,
)
METHODS: dict[str, type[Method]] = {cls.name: cls for cls in _SHIPPED}


def make_method(method: str | Method) -> Method:
    """A method by its name."""
    if isinstance(method, Method):
        return method
    if method not in METHODS:
        raise ValueError(f"method must be one of {sorted(METHODS)}, got {method!r}.")
    return METHODS[method]()
