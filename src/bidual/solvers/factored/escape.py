"""Leaves saddles: the direction that violates dual feasibility most becomes a new neuron."""

from math import inf

from bidual.gauges import Factors
from bidual.solvers.factored.method import Method, State
from bidual.solvers.factored.program import FactoredProgram, Violation

_HALVINGS, _BISECTIONS = 80, 8
_ROUNDING = 1e-13  # of an objective, relatively


def leave_saddle(program: FactoredProgram, factors: Factors) -> tuple[FactoredProgram, Factors] | None:
    r"""A program and factors from which to go down, or None if no direction is violated by more than rounding.

    At a stationary point with Omega°(A* grad F) > beta, the columns (u, w) of the most violated blocks, scaled by
    sqrt(t), change the objective by t (beta - Omega°) + O(t^2): a direction of descent that the columns which are there
    cannot find. A line search along all violated blocks gives t. The number of columns grows by one
    where it must, and never beyond what attains the gauge.
    """
    found = program.violation(factors)
    if found is None:
        return None
    t = _step_length(found)
    if t == 0:
        return None
    scaled = Factors(t**0.5 * found.columns.U, t**0.5 * found.columns.W)
    grown, moved = found.program.appended(found.factors, scaled)
    before = program.value(factors)
    return (grown, moved) if grown.value(moved) <= before + _ROUNDING * abs(before) else None


def go_on(
    program: FactoredProgram, method: Method, state: State, left_at: float
) -> tuple[FactoredProgram, State] | None:
    """The program and state to continue from where a method has finished or become slow; None if there is none.

    ``left_at`` is the objective at which the last saddle was left, infinite before the first, minus infinite if none
    may be left. A method that finishes again at the same objective is at its end.
    """
    stuck = state.finished and not state.value < left_at - _ROUNDING * abs(state.value)
    found = None if stuck or left_at == -inf else leave_saddle(program, state.factors)
    if found is not None:
        return found[0], method.init(*found)
    return None if state.finished else (program, state)


def _step_length(found: Violation) -> float:
    """argmin of F(A Z + t A E) + t beta penalty(E), which is convex in t, by bisection of its slope; 0 if it is flat.

    Close to an optimum the gain is the square of the violation and below the rounding of values; the slope is not.
    """
    problem, program = found.program.problem, found.program
    at, along = program.predictions(found.factors), program.predictions(found.columns)
    price = problem.beta * program.penalty(found.columns)

    def falls(t: float) -> bool:
        return float((problem.datafit.grad(at + t * along) * along).sum()) + price < 0

    t = next((0.5**k for k in range(_HALVINGS) if falls(0.5**k)), 0.0)
    for k in range(1, _BISECTIONS):
        t = t * (1 + 0.5**k) if falls(t * (1 + 0.5**k)) else t
    return t
