"""Vector norms: duality, equivalence, prox, and where they are linear."""

import math

import pytest
import torch

from bidual.losses import LOSSES
from bidual.losses.datafit import Datafit
from bidual.numerics.norms import L1, L2, LINF, NORMS, Norm
from bidual.polar import Faces
from bidual.problems.certificate import certify
from bidual.problems.problem import ReluProblem

EVERY = pytest.mark.parametrize("norm", NORMS.values(), ids=lambda norm: norm.name)
GENERATOR = torch.Generator().manual_seed(0)
U, G = (torch.randn(200, 5, generator=GENERATOR, dtype=torch.float64) for _ in range(2))


def test_duals() -> None:
    assert (L1.dual, L2.dual, LINF.dual) == (LINF, L2, L1)


@EVERY
def test_aligned_vectors_attain_the_dual_norm(norm: Norm) -> None:
    inner = (G * norm.aligned(G)).sum(1)
    torch.testing.assert_close(inner, norm.dual.value(G))
    assert bool((norm.value(norm.aligned(G)) <= 1 + 1e-12).all())
    assert bool(((G * U).sum(1) <= norm.dual.value(G) * norm.value(U) * (1 + 1e-12)).all())


@EVERY
def test_equivalence_constants_hold_and_are_sharp(norm: Norm) -> None:
    extremes = torch.cat([U, torch.eye(5, dtype=torch.float64), torch.ones(1, 5, dtype=torch.float64)])
    euclidean, size = L2.value(extremes), norm.value(extremes)
    assert float((euclidean / size).max()) == pytest.approx(norm.times_l2(5), rel=1e-12)
    assert float((size / euclidean).max()) == pytest.approx(norm.over_l2(5), rel=1e-12)


@EVERY
@pytest.mark.parametrize("step", [0.1, 1.0, 100.0])
def test_prox_leaves_the_projection_on_the_dual_ball(norm: Norm, step: float) -> None:
    Q = norm.prox(U, step)
    assert bool((norm.dual.value(U - Q) <= step * (1 + 1e-12)).all())
    torch.testing.assert_close(((U - Q) * Q).sum(1), step * norm.value(Q))


@pytest.mark.parametrize("norm", [L1, LINF], ids=lambda norm: norm.name)
@pytest.mark.parametrize("d", [1, 2, 4])
def test_a_norm_is_linear_between_its_creases(norm: Norm, d: int) -> None:
    creases = norm.creases(d)
    assert int(torch.linalg.matrix_rank(creases)) == d
    pairs = torch.randn(4000, 2, d, generator=GENERATOR, dtype=torch.float64)
    same = ((pairs @ creases.T > 0)[:, 0] == (pairs @ creases.T > 0)[:, 1]).all(1)
    assert int(same.sum()) > 3
    torch.testing.assert_close(norm.value(pairs[same].sum(1)), norm.value(pairs[same]).sum(1))


def test_names() -> None:
    assert math.isinf(NORMS["linf"].order)
    with pytest.raises(ValueError, match="linear on rays only"):
        L2.creases(2)


@pytest.mark.parametrize("name", NORMS)
def test_a_step_beyond_single_precision_leaves_nothing(name: str) -> None:
    U = torch.tensor([[1.0, -2.0, 0.0]])
    assert not NORMS[name].prox(U, 1e60).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", NORMS.values(), ids=lambda norm: norm.name)
def test_units_are_units_at_any_scale(norm: Norm, dtype: torch.dtype) -> None:
    """Squares of 1e-170 are zero: a quotient by their root would be a neuron of length 1e138 that counts as one."""
    limits = torch.finfo(dtype)
    sizes = torch.logspace(math.log10(limits.tiny) + 1, math.log10(limits.max) - 1, 41, dtype=torch.float64).to(dtype)
    U = torch.tensor([[3.0, -4.0, 0.0]], dtype=dtype) / 4 * sizes[:, None]
    units = norm.unit(torch.cat([U, 0 * U[:1], limits.tiny / 1024 * torch.ones(1, 3, dtype=dtype)]))
    lengths = norm.value(units)
    torch.testing.assert_close(lengths[:-2], torch.ones(len(U), dtype=dtype))
    assert float(lengths[-2]) == 0.0
    assert float(lengths[-1]) <= 1 + 4 * limits.eps


def test_neurons_of_any_size_cost_as_much_as_units() -> None:
    """A price of one for neurons of length 1e138 was a certificate whose primal was below the optimum."""
    X = torch.eye(2, dtype=torch.float64)
    problem = ReluProblem(X, Datafit(LOSSES["squared"](), torch.ones(2, 1, dtype=torch.float64)), 0.5)
    Z = torch.full((2, 1, 1), 0.5, dtype=torch.float64)
    plain, tiny = (certify(problem.restricted_to(size * X), Z, oracle=Faces(X)) for size in (1.0, 1e-170))
    assert tiny.primal == pytest.approx(plain.primal, rel=1e-12)
    assert plain.dual <= tiny.primal
