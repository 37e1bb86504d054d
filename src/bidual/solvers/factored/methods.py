"""The methods by name."""

from bidual.solvers.factored.gradient_descent import Descent
from bidual.solvers.factored.lbfgs import LBFGS
from bidual.solvers.factored.levenberg_marquardt import LevenbergMarquardt
from bidual.solvers.factored.method import Method
from bidual.solvers.factored.preconditioned import Preconditioned
from bidual.solvers.factored.program import FactoredProgram
from bidual.solvers.factored.proximal import Proximal
from bidual.solvers.factored.variable_projection import VariableProjection

_SHIPPED: tuple[type[Method], ...] = (
    Descent,
    Preconditioned,
    LBFGS,
    LevenbergMarquardt,
    VariableProjection,
    Proximal,
)
METHODS: dict[str, type[Method]] = {cls.name: cls for cls in _SHIPPED}


def check_method(method: Method, program: FactoredProgram) -> None:
    """Raise before any work is done if the method cannot take the program, and name one that can."""
    reason = method.refusal(program)
    if reason is None:
        return
    able = next((name for name, other in METHODS.items() if other().refusal(program) is None), None)
    remedy = f"Use method={able!r}." if able else "Use a convex solver, such as bidual.solvers.plan.solve_auto."
    raise ValueError(f"{reason} {remedy}")


def make_method(method: str | Method) -> Method:
    """A method by its name."""
    if isinstance(method, Method):
        return method
    if method not in METHODS:
        raise ValueError(f"method must be one of {sorted(METHODS)}, got {method!r}.")
    return METHODS[method]()
