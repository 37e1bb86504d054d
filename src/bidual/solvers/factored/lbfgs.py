"""L-BFGS on the factors."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import minimize
from torch import Tensor

from bidual.gauges import Factors
from bidual.solvers.factored.arithmetic import adjoint, plus
from bidual.solvers.factored.method import Method, State
from bidual.solvers.factored.program import FactoredProgram

_ALIKE = 1e-12  # a chunk that lowers the value by less, relatively, was the last
_SLOW = 1e-9  # and one that lowers it by less may have come upon a saddle


@dataclass(frozen=True)
class LBFGS(Method):
    """One step is a run of ``chunk`` iterations with ``memory`` pairs."""

    chunk: int = 500
    memory: int = 30
    name = "lbfgs"

    def step(self, program: FactoredProgram, state: State) -> State:
        shapes, like = program.shapes, program.problem.operator.like

        def objective(x: Float[ndarray, " k"]) -> tuple[float, Float[ndarray, " k"]]:
            factors = unpack(x, shapes, like)
            return value_and_gradient(program, factors)

        options = {"maxiter": self.chunk, "maxfun": 2 * self.chunk, "maxcor": self.memory, "ftol": 0, "gtol": 1e-12}
        found = minimize(objective, pack(state.factors), jac=True, method="L-BFGS-B", options=options)
        gain, size = state.value - float(found.fun), abs(state.value)
        return State(unpack(found.x, shapes, like), float(found.fun), not gain > _ALIKE * size, gain < _SLOW * size)


def value_and_gradient(program: FactoredProgram, factors: Factors) -> tuple[float, Float[ndarray, " k"]]:
    """Both from one product with A, which is where the time goes."""
    problem = program.problem
    predictions = program.predictions(factors)
    value = problem.datafit.value(predictions) + problem.beta * program.penalty(factors)
    return value, pack(
        plus(adjoint(problem.operator, problem.datafit.grad(predictions), factors), factors, problem.beta)
    )


def pack(factors: Factors) -> Float[ndarray, " k"]:
    return torch.cat([part.flatten() for part in factors]).cpu().double().numpy()


def unpack(x: Float[ndarray, " k"], shapes: tuple[tuple[int, int, int], tuple[int, int, int]], like: Tensor) -> Factors:
    flat = torch.from_numpy(x).to(like)
    first = int(np.prod(shapes[0]))
    return Factors(flat[:first].reshape(shapes[0]), flat[first:].reshape(shapes[1]))
