"""Arithmetic with factors: sums, lengths, and products with A that never form the lifted variable."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges import Factors
from bidual.operators import GatedOperator, LiftedOperator, LinearOperator
from bidual.types import Matrix

_AT_ONCE = 2**20  # hidden activations that are held at a time


def plus(first: Factors, second: Factors, step: float) -> Factors:
    """first + step * second."""
    return Factors(first.U + step * second.U, first.W + step * second.W)


def inner(first: Factors, second: Factors) -> float:
    """<first, second>."""
    return float((first.U * second.U).sum() + (first.W * second.W).sum())


def norm(factors: Factors) -> float:
    """The length of all factors, or of a gradient."""
    return inner(factors, factors) ** 0.5


def resized(factors: Factors, m: int) -> Factors:
    """The first m columns of every block, zero columns behind them where there are fewer."""
    U, W = factors
    missing = max(m - U.shape[2], 0)
    return Factors(*(torch.nn.functional.pad(part[:, :, :m], (0, missing)) for part in (U, W)))


def forward(operator: LiftedOperator, factors: Factors) -> Matrix:
    r"""A (U_p W_p^T)_p = sum_p (D_p X U_p) W_p^T: n m activations per block instead of a matrix Z_p (d, c)."""
    if not is_cheaper(operator, factors):
        return operator.forward(factors.U @ factors.W.mT)
    P = operator.like.new_zeros(operator.output_shape)
    for blocks in _chunks(operator, factors):
        P.addmm_(_hidden(operator, blocks, factors.U[blocks]), _side_by_side(factors.W[blocks]).T)
    return P


def adjoint(operator: LiftedOperator, V: Matrix, factors: Factors) -> Factors:
    r"""G_p W_p = X^T D_p (V W_p) and G_p^T U_p = V^T (D_p X U_p), G = A* V."""
    if not is_cheaper(operator, factors):
        G = operator.adjoint(V)
        return Factors(G @ factors.W, G.mT @ factors.U)
    U, W = torch.empty_like(factors.U), torch.empty_like(factors.W)
    for blocks in _chunks(operator, factors):
        U[blocks] = _by_block(_back(operator, blocks, V, factors.W[blocks]), factors)
        W[blocks] = _by_block(V.T @ _hidden(operator, blocks, factors.U[blocks]), factors)
    return Factors(U, W)


def is_cheaper(operator: LiftedOperator, factors: Factors) -> bool:
    """Whether the m (d + c) products per sample and block of the factors are less than the d c of Z."""
    (_, a, m), b = factors.U.shape, factors.W.shape[1]
    return isinstance(operator, GatedOperator | LinearOperator) and m * (a + b) < a * b


def _hidden(operator: LiftedOperator, blocks: slice, U: Float[Tensor, "q d m"]) -> Float[Tensor, "n k"]:
    assert isinstance(operator, GatedOperator | LinearOperator)
    return _gated(operator, blocks, operator.times(_side_by_side(U)), U.shape[2])


def _back(operator: LiftedOperator, blocks: slice, V: Matrix, W: Float[Tensor, "q c m"]) -> Float[Tensor, "d k"]:
    assert isinstance(operator, GatedOperator | LinearOperator)
    return operator.back_times(_gated(operator, blocks, V @ _side_by_side(W), W.shape[2]))


def _gated(operator: LiftedOperator, blocks: slice, H: Float[Tensor, "n k"], m: int) -> Float[Tensor, "n k"]:
    """D_p on the m columns of every block, in place."""
    if isinstance(operator, GatedOperator):
        H.view(len(H), -1, m).mul_(operator.patterns[blocks].T[:, :, None])
    return H


def _side_by_side(part: Float[Tensor, "q k m"]) -> Float[Tensor, "k q*m"]:
    """[part_1 | part_2 | ...]."""
    return part.permute(1, 0, 2).flatten(1)


def _by_block(columns: Float[Tensor, "k l"], factors: Factors) -> Float[Tensor, "q k m"]:
    return columns.reshape(len(columns), -1, factors.U.shape[2]).permute(1, 0, 2)


def _chunks(operator: LiftedOperator, factors: Factors) -> Iterator[slice]:
    p, _, m = factors.U.shape
    size = max(_AT_ONCE // max(operator.output_shape[0] * m, 1), 1)
    yield from (slice(start, start + size) for start in range(0, p, size))
