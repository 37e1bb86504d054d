"""CP Remark 5.1, corrected: factors lie in the cones, make the block, and attain the gauge |Z|_{*,K} of BM (4)."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.papers.methods import cone_pca
from bidual.papers.methods.recovery import Recovery, recover
from bidual.patterns import activations
from helpers.draws import normal


def random_block(n: int, d: int, c: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X, gate, Z = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((n, d), (d, 1), (1, d, c)))
    return X, activations(X, gate), Z


def assert_valid(X: Tensor, patterns: Tensor, Z: Tensor, found: Recovery) -> None:
    blocks = [found.neurons[found.block == p].T @ found.weights[found.block == p] for p in range(len(Z))]
    assert torch.allclose(torch.stack(blocks), Z, rtol=0, atol=1e-12 * float(Z.abs().max()))
    signs = 2 * patterns[found.block].double() - 1
    assert float((signs * (found.neurons @ X.T)).min()) >= -1e-11
    assert found.price == pytest.approx(float((found.neurons.norm(dim=1) * found.weights.norm(dim=1)).sum()))
    assert float(torch.linalg.matrix_norm(Z, "nuc").sum()) * (1 - 1e-12) <= found.lower <= found.price * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("n", "d", "c"), [(5, 1, 2), (5, 2, 1), (6, 2, 3), (10, 3, 2), (20, 4, 3), (10, 5, 4), (3, 5, 2), (20, 8, 1)]
)
def test_the_gauge_is_attained(n: int, d: int, c: int, seed: int) -> None:
    X, patterns, Z = random_block(n, d, c, seed)
    found = recover(X, patterns, Z)
    assert_valid(X, patterns, Z, found)
    assert found.price - found.lower <= 1e-7 * found.price
    assert len(found.neurons) <= (2 if c == 1 else d * c)


def test_many_blocks_at_once_keep_the_predictions() -> None:
    X, gates, Z = normal(8, 3), normal(3, 4), normal(12, 2).reshape(4, 3, 2)
    patterns = activations(X, gates)
    found = recover(X, patterns, Z)
    assert_valid(X, patterns, Z, found)
    gated = sum(D.double()[:, None] * (X @ block) for D, block in zip(patterns, Z, strict=True))
    assert torch.allclose((X @ found.neurons.T).clamp(min=0) @ found.weights, gated, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_no_factorisation_on_a_fine_grid_is_cheaper(seed: int) -> None:
    X, patterns, Z = random_block(4, 2, 2, seed)
    angle = torch.linspace(0, 2 * torch.pi, 4001, dtype=torch.float64)[1:]
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    inside = circle[((2 * patterns.double() - 1) * (circle @ X.T) >= 0).all(1)].numpy()
    w = cp.Variable((len(inside), 2))
    model = cp.Problem(cp.Minimize(cp.sum(cp.norm(w, 2, axis=1))), [inside.T @ w == Z[0].numpy()])
    grid = float(model.solve(solver=cp.CLARABEL))
    found = recover(X, patterns, Z)
    assert found.lower <= grid * (1 + 1e-7)
    assert grid == pytest.approx(found.price, rel=1e-2)


def test_one_output_may_need_two_neurons_and_cost_more_than_its_norm() -> None:
    """CP Remark 5.1 promises c factors and CP (12) prints the nuclear norm: here they are 1 and sqrt(2)."""
    found = recover(
        torch.eye(2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.bool), torch.tensor([[[1.0], [-1.0]]]).double()
    )
    assert len(found.neurons) == 2
    assert found.price == pytest.approx(2.0) == found.lower


def test_singular_vectors_in_the_cone_attain_the_nuclear_norm() -> None:
    U = torch.linalg.qr(normal(3, 3)).Q
    Z = U @ torch.diag(torch.tensor([3.0, 2.0, 1.0]).double()) @ torch.linalg.qr(normal(4, 3)).Q.T
    found = recover(U.T, torch.ones(1, 3, dtype=torch.bool), Z[None])
    assert found.price == pytest.approx(6.0)
    assert found.lower == pytest.approx(6.0)


def test_a_network_within_one_cone_is_never_dearer_after_recovery() -> None:
    X, u = normal(10, 3), normal(4000, 3)
    patterns = X @ u[:1].T >= 0
    inside = u[((u @ X.T >= 0) == patterns[:, 0]).all(1)][:6]
    weights = normal(6, 2)[: len(inside)]
    found = recover(X, patterns.T, (inside.T @ weights)[None])
    assert found.price <= float((inside.norm(dim=1) * weights.norm(dim=1)).sum()) * (1 + 1e-9)


def test_the_bracket_is_honest_when_faces_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    X, patterns, Z = random_block(10, 3, 2, 1)
    exact = recover(X, patterns, Z)
    monkeypatch.setattr(cone_pca, "_MOST_FACES", 0)
    searched = recover(X, patterns, Z)
    assert_valid(X, patterns, Z, searched)
    assert searched.lower <= exact.price * (1 + 1e-12)
    assert exact.lower * (1 - 1e-12) <= searched.price <= 1.05 * exact.price


def test_a_block_outside_its_cone_is_refused() -> None:
    X = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double()
    with pytest.raises(ValueError, match=r"block 0 is no sum .* spans only 1 of 2 dimensions"):
        recover(X, torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 2, 1).double())


def test_zero_blocks_have_no_neurons_and_shapes_are_checked() -> None:
    X, patterns, Z = random_block(5, 2, 3, 0)
    found = recover(X, patterns, 0 * Z)
    assert found.neurons.shape == (0, 2)
    assert found.weights.shape == (0, 3)
    assert found.price == found.lower == 0
    with pytest.raises(ValueError, match=r"one \(d, c\) block per pattern"):
        recover(X, patterns, normal(4, 3)[None])
    with pytest.raises(ValueError, match="finite"):
        recover(X, patterns, np.nan * Z)
