"""What every lifted operator promises."""

from typing import Any

import torch
from torch import Tensor

from bidual.operators import HasKernel, LiftedOperator
from bidual.testing.tools import normal, positive, require, require_at_least, require_close, require_refused


def check_operator(operator: LiftedOperator, generator: torch.Generator) -> None:
    """An operator is linear, its adjoint is its adjoint, and its parts are parts of it."""
    Z, V = normal(operator.block_shape, generator), normal(operator.output_shape, generator)
    dense = operator.dense()
    require_close(operator.forward(Z).flatten(), dense @ Z.flatten(), "operator: forward equals dense")
    require_close(operator.adjoint(V).flatten(), dense.T @ V.flatten(), "operator: adjoint equals dense")
    left, right = float((operator.forward(Z) * V).sum()), float((Z * operator.adjoint(V)).sum())
    require_close(left, right, "operator: <A Z, V> = <Z, A* V>", 1e-11)
    require(not bool(operator.forward(operator.zeros()).any()), "operator: A 0 = 0")
    _check_select(operator, Z, V)
    _check_magnitude(operator, dense, V)
    _check_single_precision(operator, Z, V)
    _check_operator_norm(operator, dense, generator)
    if isinstance(operator, HasKernel):
        _check_kernel(operator, dense, generator)
    require_refused(
        "operator: forward of a wrong shape", lambda: operator.forward(Z[:, :, :1].repeat(1, 1, Z.shape[2] + 1))
    )
    require_refused("operator: adjoint of a wrong shape", lambda: operator.adjoint(V[:, :1].repeat(1, V.shape[1] + 1)))


def _check_select(operator: LiftedOperator, Z: Tensor, V: Tensor) -> None:
    blocks = torch.arange(len(Z))
    for chosen in (blocks, blocks.flip(0), blocks[-1:], blocks[::2], blocks[:0]):
        part, masked = operator.select(chosen), torch.zeros_like(Z)
        masked[chosen] = Z[chosen]
        require(part.block_shape == (len(chosen), *Z.shape[1:]), f"operator: select keeps {len(chosen)} blocks")
        require_close(part.forward(Z[chosen]), operator.forward(masked), "operator: select restricts forward")
        require_close(part.adjoint(V), operator.adjoint(V)[chosen], "operator: select restricts adjoint")
        require_close(operator.forward_of(masked, chosen), operator.forward(masked), "operator: forward_of some blocks")


def _check_magnitude(operator: LiftedOperator, dense: Tensor, V: Tensor) -> None:
    sizes = (dense.abs().T @ V.abs().flatten()).reshape(len(operator.zeros()), -1)
    worst = float(torch.linalg.vector_norm(sizes, dim=1).max())
    bound = operator.magnitude * float(torch.linalg.vector_norm(V))
    require_at_least(bound, worst, "operator: magnitude bounds every block")


def _check_single_precision(operator: LiftedOperator, Z: Tensor, V: Tensor) -> None:
    single = operator.to(torch.float32)
    predictions, blocks = single.forward(Z.float()), single.adjoint(V.float())
    require(predictions.dtype == blocks.dtype == torch.float32, "operator: to(float32) computes in float32")
    require_close(predictions.double(), operator.forward(Z), "operator: float32 forward is near", 1e-4)
    require_close(blocks.double(), operator.adjoint(V), "operator: float32 adjoint is near", 1e-4)


def _check_operator_norm(operator: LiftedOperator, dense: Tensor, generator: torch.Generator) -> None:
    exact = float(torch.linalg.matrix_norm(dense, ord=2)) ** 2
    estimate = operator.norm_squared(generator, rounds=100)
    require(0.9 * exact <= estimate <= (1 + 1e-9) * exact, f"operator: norm_squared {estimate} estimates {exact}")


def _check_kernel(operator: Any, dense: Tensor, generator: torch.Generator) -> None:
    n, c = operator.output_shape
    p = operator.block_shape[0]
    gram = (dense @ dense.T).reshape(n, c, n, c)
    expected = operator.kernel()[:, None, :, None] * torch.eye(c, dtype=dense.dtype)[None, :, None, :]
    require_close(gram, expected, "operator: A A* is the kernel, one copy per output")
    require_close(
        operator.design() @ operator.design().T, operator.kernel(), "operator: the design's Gram is the kernel"
    )
    weights = positive((p,), generator)
    weights[0] = 0.0
    parts = sum(weights[k] * operator.select(torch.tensor([k])).kernel() for k in range(p))
    require_close(operator.kernel(weights), parts, "operator: kernel(weights) weighs the blocks")
    require(operator.design().shape == (n, operator.design_width), "operator: design_width is the design's")
    G, Z = normal((p, operator.design_width // p), generator), operator.zeros()
    for q, block in enumerate(chosen := torch.arange(p).flip(0)):
        Z.zero_()[block].reshape(-1, c)[:, 0] = G[block]
        require_close(operator.responses(G, chosen)[:, q], operator.forward(Z)[:, 0], "operator: responses are A_p G_p")


# ----------------------------------------------------------------------------------------------------- architectures
