"""Levenberg-Marquardt on both factors together, for any smooth loss."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges import Factors
from bidual.losses.datafit import Datafit
from bidual.solvers.factored.damped_newton import (
    DampedNewton,
    Model,
    as_columns,
    design_blocks,
    from_columns,
    repeat_blocks,
)
from bidual.solvers.factored.method import State
from bidual.solvers.factored.program import FactoredProgram
from bidual.types import Matrix


@dataclass(frozen=True)
class LevenbergMarquardt(DampedNewton):
    r"""The Hessian of (17), (18) is J^T S J + B, with the Jacobian J of the predictions, the Hessian S of F, and

        B_p = [[beta I, G_p], [G_p^T, beta I]],    G = A* grad F,

    for every column of block p. Gauss and Newton leave G out. With ``coupling`` it stays, singular values clipped at
    beta, so that B is never indefinite; at an optimum |G_p| <= beta, so that the model there is exact and the last
    steps converge quadratically. What is clipped away is the negative curvature of saddles, which are for
    :func:`~bidual.solvers.factored.leave_saddle`.
    """

    coupling: bool = True
    name = "levenberg_marquardt"

    def _size(self, program: FactoredProgram) -> tuple[int, int]:
        (n, c), ((p, a, m), (_, b, _)) = program.operator.output_shape, program.shapes
        return n * c, p * m * (a + b)

    def _model(self, program: FactoredProgram, state: State) -> Model:
        problem, (U, W) = program.problem, state.factors
        P = program.predictions(state.factors)
        G = problem.operator.adjoint(problem.datafit.grad(P))
        gradient = torch.cat([G @ W + problem.beta * U, G.mT @ U + problem.beta * W], 1)
        J = _weighted(problem.datafit, P, _jacobian(program, state.factors))
        B = _coupled(G, problem.beta) if self.coupling else problem.beta * torch.eye(sum(G.shape[1:])).to(G)[None]
        return Model(as_columns(gradient), J, repeat_blocks(B.expand(len(G), -1, -1), program.m), problem.beta)

    def _moved(self, program: FactoredProgram, state: State, step: Tensor) -> State:
        p, a, m = program.shapes[0]
        move = from_columns(step, p, m)
        factors = Factors(state.factors.U + move[:, :a], state.factors.W + move[:, a:])
        return State(factors, program.value(factors))


def _jacobian(program: FactoredProgram, factors: Factors) -> Float[Tensor, "n c k"]:
    """d(A Z) = A (dU W^T + U dW^T), columns ordered by block, neuron, and weight."""
    B, c = design_blocks(program), program.operator.output_shape[1]
    W = factors.W.unflatten(1, (-1, c))
    hidden = torch.einsum("npiq,pqkj->nkpji", B, W)
    output = torch.einsum("npiq,pij,kl->nkpjql", B, factors.U, torch.eye(c).to(B)).flatten(4)
    return torch.cat([hidden, output], 4).flatten(2)


def _coupled(G: Float[Tensor, "p a b"], beta: float) -> Float[Tensor, "p k k"]:
    """[[beta I, G], [G^T, beta I]] with the singular values of G clipped at beta."""
    left, values, right = torch.linalg.svd(G, full_matrices=False)
    clipped = left * values.clamp(max=beta)[:, None, :] @ right
    p, a, b = G.shape
    B = (beta * torch.eye(a + b).to(G)).repeat(p, 1, 1)
    B[:, :a, a:], B[:, a:, :a] = clipped, clipped.mT
    return B


def _weighted(datafit: Datafit, P: Matrix, J: Float[Tensor, "n c k"]) -> Float[Tensor, "n*c k"]:
    """R^T J with R R^T the Hessian of F at P; with an intercept, what its best value follows is projected out."""
    R = _hessian_root(datafit, P)
    weighted = (R.mT @ J).flatten(0, 1)
    if datafit.intercept:
        Q = _range(R.mT.flatten(0, 1))
        weighted = weighted - Q @ (Q.T @ weighted)
    return weighted


def _range(A: Float[Tensor, "k c"]) -> Float[Tensor, "k r"]:
    """An orthonormal basis of the columns."""
    left, values, _ = torch.linalg.svd(A, full_matrices=False)
    return left[:, values > 1e-10 * values.max().clamp(min=torch.finfo(A.dtype).tiny)]


def _hessian_root(datafit: Datafit, P: Matrix) -> Float[Tensor, "n c c"]:
    """R with R R^T = w_i times the Hessian of the loss of sample i."""
    P = P + datafit.offset(P)
    if datafit.loss.separable:
        return torch.diag_embed((datafit.weights * datafit.loss.curvature(P, datafit.targets)).clamp(min=0).sqrt())

    def one(p: Tensor, y: Tensor) -> Tensor:
        return datafit.loss.value(p[None], y[None])[0]

    values, vectors = torch.linalg.eigh(torch.func.vmap(torch.func.hessian(one))(P, datafit.targets))
    return vectors * (datafit.weights * values.clamp(min=0)).sqrt()[:, None, :]
