"""Sampled cells, their operator against brute force, and the exact limit of PR (11) against cvxpy."""

from pathlib import Path

import cvxpy as cp
import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

from bidual.architectures import ARCHITECTURES, GatedParallel
from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.estimators.saving import pack, unpack
from bidual.gauges import Group
from bidual.losses import Logistic, Squared
from bidual.losses.datafit import Datafit
from bidual.operators import stacked as operator_room
from bidual.operators.stacked import GatedSubNetworkOperator
from bidual.problems.certificate import Scope
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto
from bidual.testing import own_checks_only


def draw(seed: int, n: int = 12, d: int = 3, count: int = 5, width: int = 4) -> tuple[Tensor, SubNetworkGates]:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=rng, dtype=torch.float64), SubNetworkGates.sample(d, count, width, rng)


def test_a_sampled_network_is_linear_on_its_own_cell() -> None:
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(20, 3, generator=rng, dtype=torch.float64)
    W, w = torch.randn(6, 3, 5, generator=rng).double(), torch.randn(6, 5, generator=rng).double()
    cells = SubNetworkGates.of(W, w)
    network = torch.relu((torch.relu(X @ W) * w[:, None]).sum(2))
    operator = GatedSubNetworkOperator.of(X, *cells.activity(X), 1)
    for k in range(6):
        one = operator.select(torch.tensor([k])).forward(cells.interior[k].reshape(1, -1, 1))[:, 0]
        assert torch.allclose(one, network[k], atol=1e-12)


def test_patterns_are_the_signs_of_the_pre_activations_row_by_row() -> None:
    X, cells = draw(1)
    for k, (W, s) in enumerate(zip(cells.weights.numpy(), cells.signs.numpy(), strict=True)):
        for i, x in enumerate(X.numpy()):
            before = [sum(x[a] * W[a, j] for a in range(3)) for j in range(4)]
            assert [bool(on) for on in cells.activity(X).first[k, :, i]] == [b >= 0 for b in before]
            total = sum(s[j] * max(b, 0.0) for j, b in enumerate(before))
            assert bool(cells.activity(X).second[k, i]) == (total >= 0)


def test_what_is_zero_up_to_rounding_counts_as_on() -> None:
    X = torch.tensor([[0.1, 0.2], [0.0, 0.0]], dtype=torch.float64)
    gate = torch.tensor([[[0.2], [-0.1 - 1e-17]]], dtype=torch.float64)
    cells = SubNetworkGates(gate, torch.tensor([[-1.0]], dtype=torch.float64))
    assert bool(cells.activity(X).first.all())
    assert bool(cells.activity(X).second.all())


def test_product_sampling_joins_every_first_layer_with_every_second() -> None:
    cells = SubNetworkGates.product(3, 4, 5, 2, torch.Generator().manual_seed(0))
    assert len(cells) == 20
    directions = cells.weights / torch.linalg.vector_norm(cells.weights, dim=1, keepdim=True)
    assert torch.allclose(directions[:5], directions[:1].expand(5, -1, -1))
    assert torch.equal(cells.signs[:5], cells.signs[5:10])
    assert not torch.allclose(directions[0], directions[5])


def test_samples_depend_on_their_generator_only() -> None:
    first, second = (SubNetworkGates.sample(3, 4, 2, torch.Generator().manual_seed(7)) for _ in range(2))
    torch.manual_seed(0)
    assert torch.equal(first.weights, second.weights)
    assert set(first.signs.unique().tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("stored", [True, False])
def test_kernels_are_those_of_the_formula(stored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_room, "_SHARE", 0.25 if stored else 0.0)
    X, cells = draw(2)
    operator, eta = (
        GatedSubNetworkOperator.of(X, *cells.activity(X), 2),
        torch.tensor([0.3, 0.0, 2.0, 1.0, 0.5]).double(),
    )
    expected = torch.zeros(12, 12, dtype=torch.float64)
    for k in range(5):
        for i in range(12):
            for j in range(12):
                shared = int((cells.activity(X).first[k, :, i] & cells.activity(X).first[k, :, j]).sum())
                both = bool(cells.activity(X).second[k, i] & cells.activity(X).second[k, j])
                expected[i, j] += eta[k] * float(X[i] @ X[j]) * shared * both
    assert torch.allclose(operator.kernel(eta), expected, atol=1e-12)
    assert (operator._shared is not None) == stored


@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_gated_optimum_is_cvxpy_s(c: int, intercept: bool) -> None:
    X, cells = draw(3, n=15)
    Y = torch.randn(15, c, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    family = GatedParallel(cells)
    problem = Problem(family.lift(X, c), Datafit(Squared(), Y, intercept=intercept), Group(), 0.8)
    solution = solve_auto(problem, Limits(1e-7))
    B = np.hstack([problem.operator.select(torch.tensor([k])).design().numpy() for k in range(5)])
    Z, b = cp.Variable((B.shape[1], c)), cp.Variable((1, c))
    price = sum(cp.norm(Z[12 * k : 12 * (k + 1)], "fro") for k in range(5))
    f = B @ Z + (np.ones((15, 1)) @ b if intercept else 0)
    value = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(f - Y.numpy()) + 0.8 * price)).solve(solver=cp.CLARABEL)
    assert solution.certificate.relative_gap <= 1e-7
    assert solution.certificate.primal == pytest.approx(value, rel=1e-6)
    assert solution.certificate.scope is Scope.BLOCKS
    assert solution.certificate.recheck(problem)


def test_the_plan_ends_with_newton_in_one_variable_per_sub_network() -> None:
    X, cells = draw(4, n=60, count=20, width=30)
    Y = torch.where(X[:, :1] * X[:, 1:2] > 0, 1.0, -1.0).double()
    solution = solve_auto(Problem(GatedParallel(cells).lift(X, 1), Datafit(Squared(), Y), Group(), 0.5))
    assert solution.solver.endswith("eta_newton")
    assert solution.certificate.relative_gap <= 1e-4


def test_other_losses_are_certified_too() -> None:
    X, cells = draw(5, n=30)
    Y = torch.where(X[:, :1] > 0, 1.0, -1.0).double()
    solution = solve_auto(Problem(GatedParallel(cells).lift(X, 1), Datafit(Logistic(), Y), Group(), 0.3))
    assert solution.certificate.relative_gap <= 1e-4


def test_the_model_jumps_where_a_gate_switches_as_no_relu_network_does() -> None:
    cells = SubNetworkGates(draw(6, count=1, width=1)[1].weights, torch.ones(1, 1, dtype=torch.float64))
    Z = torch.tensor([1.0, 2.0, 3.0]).double().reshape(1, 3, 1)
    module, w = GatedParallel(cells).decode(Z), cells.weights[0, :, 0]
    along = torch.linalg.svd(w[None]).Vh[1:2]  # where w^T x = 0
    sides = module(along + 1e-6 * w) - module(along - 1e-6 * w)
    assert float(sides.detach().abs()) > 0.1


def test_architecture_fields_survive_a_model_file_s_header() -> None:
    family, tensors = GatedParallel(draw(7)[1], bias=False), {}
    again = unpack(pack(family.gates, "gates", tensors), tensors)
    assert torch.equal(again.weights, family.gates.weights)
    assert torch.equal(again.signs, family.gates.signs)
    assert ARCHITECTURES["gated_parallel"] is GatedParallel


@pytest.mark.filterwarnings("ignore")
def test_the_network_exports_to_onnx_for_any_number_of_samples(tmp_path: Path) -> None:
    family, X = GatedParallel.example(torch.Generator().manual_seed(8))
    module = family.decode(torch.ones(family.lift(X, 2).block_shape, dtype=torch.float64))
    dynamic = ({0: torch.export.Dim("n")},)
    program = torch.onnx.export(module, (X,), dynamo=True, verbose=False, input_names=["X"], dynamic_shapes=dynamic)
    assert program is not None
    program.save(str(tmp_path / "model.onnx"))
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for rows in (X[:2], X.repeat(3, 1)):
        assert np.allclose(session.run(None, {"X": rows.numpy()})[0], module(rows).detach().numpy(), atol=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SubNetworkGates(torch.ones(2, 3, 4), torch.ones(2, 3)), r"signs \(K, m1\)"),
        (lambda: SubNetworkGates(torch.ones(2, 3, 4), torch.zeros(2, 4)), r"\+1 or -1"),
        (lambda: SubNetworkGates(torch.full((2, 3, 4), torch.nan), torch.ones(2, 4)), "finite"),
        (lambda: SubNetworkGates.sample(3, 0, 2, torch.Generator()), "count must be at least 1, got 0"),
        (lambda: SubNetworkGates.product(3, 1, 1, 0, torch.Generator()), "width must be at least 1"),
        (lambda: draw(0)[1].activity(torch.ones(4, 2)), r"shape \(n, 3\)"),
    ],
)
def test_bad_cells_are_refused(make: object, words: str) -> None:
    with own_checks_only(), pytest.raises(ValueError, match=words):
        make()  # type: ignore[operator]
