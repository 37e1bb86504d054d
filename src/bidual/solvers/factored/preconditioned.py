"""Preconditioned gradient descent for factors of more columns than the solution's rank."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges import Factors
from bidual.solvers.factored.arithmetic import inner, plus
from bidual.solvers.factored.method import Method, State
from bidual.solvers.factored.program import FactoredProgram

_SUFFICIENT, _HALVINGS = 1e-4, 40


@dataclass(frozen=True)
class Preconditioned(Method):
    r"""PrecGD of Zhang, Fattahi and Zhang (2023), for two factors and block by block:

        U <- U - t grad_U (W^T W + eta I)^-1,    W <- W - t grad_W (U^T U + eta I)^-1.

    The damping eta_p is ``damping`` times the size of the block's gradient in the preconditioner's own norm, so that it
    falls with the distance to a stationary point as their analysis wants, and never below ``floor``. Without damping
    columns that vanish make the step explode; with too much it is plain descent. The step t is found by backtracking
    and tried twice as long after every success, so that no learning rate is needed.
    """

    damping: float = 1.0
    floor: float = 1e-9
    name = "preconditioned"
    max_steps = 8000
    check_every = 50

    def __post_init__(self) -> None:
        if not (self.damping >= 0 and self.floor > 0):
            raise ValueError(f"damping must be >= 0 and floor > 0, got {self.damping} and {self.floor}.")

    def init(self, program: FactoredProgram, factors: Factors) -> State:
        eta = torch.linalg.vector_norm(factors.U, dim=(1, 2)) + torch.linalg.vector_norm(factors.W, dim=(1, 2))
        return State(factors, program.value(factors), memory=(1.0, eta.square() + self.floor))

    def step(self, program: FactoredProgram, state: State) -> State:
        (rate, eta), gradient = state.memory, program.gradient(state.factors)
        direction = _divided(gradient, state.factors, eta)
        eta = (self.damping * _block_inner(gradient, direction).clamp(min=0).sqrt()).clamp(min=self.floor)
        slope = inner(gradient, direction)
        for _ in range(_HALVINGS):
            factors = plus(state.factors, direction, -rate)
            value = program.value(factors)
            if value <= state.value - _SUFFICIENT * rate * slope:
                return State(factors, value, not value < state.value, memory=(2 * rate, eta))
            rate /= 2
        return State(state.factors, state.value, True, memory=state.memory)


def _divided(gradient: Factors, factors: Factors, eta: Float[Tensor, " p"]) -> Factors:
    """The gradient, each part times the damped inverse Gram matrix of the other factor."""
    U, W = factors
    lift = eta[:, None, None] * torch.eye(U.shape[2]).to(U)
    return Factors(
        torch.linalg.solve(W.mT @ W + lift, gradient.U, left=False),
        torch.linalg.solve(U.mT @ U + lift, gradient.W, left=False),
    )


def _block_inner(first: Factors, second: Factors) -> Float[Tensor, " p"]:
    return (first.U * second.U).sum((1, 2)) + (first.W * second.W).sum((1, 2))
