"""Decoding the gated model into real networks: exact on the samples, and as cheap as cvxpy says."""

import time

import cvxpy as cp
import pytest
import torch
from torch import Tensor

from bidual.architectures import GatedParallel, ParallelMLP
from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.architectures.modules import ParallelNetwork
from bidual.gauges import Group
from bidual.losses import Logistic, Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.cone_split import _Woodbury, shortest_split
from bidual.papers.methods.decoding import real_sub_networks, violation
from bidual.papers.methods.gate_cones import GateCones
from bidual.papers.methods.gated_report import gated_report
from bidual.papers.methods.path_norm import path_norm_of
from bidual.problems.certificate import Scope
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto


def draw(seed: int, n: int = 15, d: int = 3, count: int = 4, width: int = 3) -> tuple[Tensor, SubNetworkGates]:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=rng, dtype=torch.float64), SubNetworkGates.sample(d, count, width, rng)


def blocks(cells: SubNetworkGates, c: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    k, d, m = cells.weights.shape
    return torch.randn(k, m * d, c, generator=rng, dtype=torch.float64)


def least_split(cone: GateCones, u: Tensor) -> float:
    """min |u + p| + |p| over the cone, by cvxpy."""
    X, p, inside = cone.X.numpy(), cp.Variable(tuple(u.shape)), []
    for z in (p, p + u.numpy()):
        linear = z @ X.T
        inner = cp.sum(cp.multiply(cone.on[0].numpy(), linear), axis=0)
        inside += [cp.multiply(cone.sides[0].numpy(), linear) >= 0, cp.multiply(cone.outer[0].numpy(), inner) >= 0]
    price = cp.norm(p, "fro") + cp.norm(p + u.numpy(), "fro")
    return float(cp.Problem(cp.Minimize(price), inside).solve(solver=cp.CLARABEL))


@pytest.mark.parametrize(("n", "d", "m"), [(15, 3, 3), (40, 5, 8), (6, 8, 2), (25, 2, 1)])
def test_the_shortest_split_is_cvxpy_s(n: int, d: int, m: int) -> None:
    X, cells = draw(n, n, d, 3, m)
    for k, u in enumerate(blocks(cells, 1, 1).reshape(3, 1, m, d)):
        cone = GateCones.of(cells, X)[torch.tensor([k])]
        p, least = shortest_split(cone, u), least_split(cone, u[0])
        assert cone.holds(p, 1e-12)
        assert cone.holds(u + p, 1e-12)
        assert least * (1 - 1e-6) <= float(cone.price(p, u)) <= least * (1 + 2e-3)
        assert float(cone.price(p, u)) <= float(cone.price(cone.split(u), u))


def test_block_diagonal_plus_low_rank_is_solved() -> None:
    rng = torch.Generator().manual_seed(0)
    root, U = (torch.randn(3, 4, k, generator=rng, dtype=torch.float64) for k in (4, 5))
    b, sign = torch.randn(3, 4, generator=rng, dtype=torch.float64), torch.tensor([1.0, 1, 1, -1, -1]).double()
    blocks = root @ root.mT + 0.1 * torch.eye(4)
    dense = torch.block_diag(*blocks) + U.flatten(0, 1) @ torch.diag(sign) @ U.flatten(0, 1).T
    assert torch.allclose(dense @ _Woodbury.of(blocks, U, sign)(b).flatten(), b.flatten(), atol=1e-9)


def test_the_closed_form_is_the_first_point_of_its_ray() -> None:
    X, cells = draw(1)
    cones, u = GateCones.of(cells, X), blocks(cells, 1, 2).reshape(4, 3, 3)
    reach = cones._reach(u)
    on_ray, short = (u + factor * reach[:, None, None] * cones.interior for factor in (1.0, 1 - 1e-6))
    assert cones.holds(on_ray)
    for k in range(4):
        one = torch.tensor([k])
        assert reach[k] == 0 or not cones[one].holds(short[one])
    assert cones.holds(cones.split(u))
    assert cones.holds(u + cones.split(u))


def test_a_point_of_the_cone_needs_no_split() -> None:
    X, cells = draw(2)
    cones = GateCones.of(cells, X)
    for sign in (1.0, -1.0):
        u = sign * cones.interior
        assert torch.allclose(cones.price(cones.split(u), u), torch.linalg.vector_norm(u, dim=(1, 2)))
    assert violation(cells, X, cones.interior.reshape(4, -1, 1)).share == 0
    assert violation(cells, X, -cones.interior.reshape(4, -1, 1)).size == 0


def test_violation_counts_wrong_signs() -> None:
    cells = SubNetworkGates(torch.tensor([[[1.0], [0.0]]]).double(), torch.ones(1, 1, dtype=torch.float64))
    X = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, -3.0], [-1.0, 0.0]]).double()
    found = violation(cells, X, torch.tensor([0.0, 1.0]).double().reshape(1, 2, 1))
    # pre-activations 0, 1, -3, 0 in the first layer, and the same in the second; -U is nearer than U
    assert found.share == pytest.approx(2 / 8)
    assert found.size == pytest.approx(2 / 8)


@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_the_decoded_network_predicts_on_the_samples_what_the_gated_model_does(c: int, bias: bool) -> None:
    X, cells = draw(3, d=3 - bias)
    cells = SubNetworkGates.sample(3, 4, 3, torch.Generator().manual_seed(3))
    family, Z = GatedParallel(cells, bias), blocks(cells, c, 4)
    Z[1] = 0.0
    samples = torch.cat([X, torch.ones(15, 1).double()], 1) if bias else X
    for max_time in (0.0, None):
        parts = real_sub_networks(cells, samples, Z, max_time=max_time)
        module = ParallelMLP(parts.neurons, 3, bias).decode(parts.weights)
        assert isinstance(module, ParallelNetwork)
        gated = family.lift(X, c).forward(Z)
        assert torch.allclose(module(X), gated, atol=1e-9 * float(path_norm_of(module).detach()))
        assert float(path_norm_of(module).detach()) == pytest.approx(float(parts.weights.abs().sum()))
        assert parts.shortened == (0 if max_time == 0.0 else 3 * c)


def test_shorter_splits_make_cheaper_networks() -> None:
    X, cells = draw(5, n=30)
    Z = blocks(cells, 1, 6)
    closed, short = (real_sub_networks(cells, X, Z, max_time=t).weights.abs().sum() for t in (0.0, None))
    assert short < 0.5 * closed


def test_the_deadline_is_kept() -> None:
    X, cells = draw(6, n=300, d=20, count=10, width=40)
    began = time.monotonic()
    parts = real_sub_networks(cells, X, blocks(cells, 1, 7), max_time=0.5)
    assert time.monotonic() - began < 5
    assert parts.shortened < 10


def test_a_cell_sampled_on_its_own_border_is_refused() -> None:
    cells = SubNetworkGates(torch.tensor([[[1.0], [0.0]]]).double(), torch.ones(1, 1, dtype=torch.float64))
    X = torch.tensor([[0.0, 1.0], [0.0, -1.0]]).double()
    with pytest.raises(ValueError, match="on the border of its own cone"):
        GateCones.of(cells, X).split(torch.tensor([[[0.0, 1.0]]]).double())


@pytest.mark.parametrize("loss", [Squared(), Logistic()])
def test_the_report_compares_objectives_of_one_problem(loss: Squared | Logistic) -> None:
    X, cells = draw(8, n=25, count=12, width=4)
    Y = torch.where(X[:, :1] * X[:, 1:2] > 0, 1.0, -1.0).double()
    family, data = GatedParallel(cells), Datafit(loss, Y, intercept=True)
    report = gated_report(family, X, data, 0.3, test=(X[:10], Y[:10]), max_time=5.0)
    exact = solve_auto(Problem(family.lift(X, 1), data, Group(), 0.3), Limits(1e-6)).certificate
    assert report.gated.objective == pytest.approx(exact.primal, rel=2e-4)
    assert report.certificate.scope is Scope.BLOCKS
    assert report.real_certificate.scope is Scope.ALL_PATTERNS
    for model in (report.decoded, report.real):
        module = model.module
        assert isinstance(module, ParallelNetwork)
        f = module(X).detach()
        assert model.objective == pytest.approx(float(loss.value(f, Y).sum()) + 0.3 * model.price, rel=1e-6)
        assert model.price == pytest.approx(float(path_norm_of(module).detach()))
        assert model.train_accuracy == float(((f > 0) == (Y > 0)).double().mean())
    assert torch.allclose(report.decoded.module(X), report.gated.module(X), atol=1e-6)
    assert report.decoded.price >= report.gated.price
    assert report.real.objective == pytest.approx(report.real_certificate.primal, rel=1e-9)
    assert report.real.objective < report.zero
    text = str(report)
    assert "not a ReLU network" in text
    assert "signs contradict the gates" in text


def test_above_beta_max_everything_is_the_zero_network() -> None:
    X, cells = draw(9)
    Y = torch.where(X[:, :1] > 0, 1.0, -1.0).double()
    report = gated_report(GatedParallel(cells), X, Datafit(Squared(), Y), 1e4)
    for objective in (report.gated.objective, report.decoded.objective, report.zero):
        assert 7.5 <= objective <= 7.5 * (1 + 1e-13)
    assert report.decoded_times_zero == pytest.approx(1.0, rel=1e-13)
