import cvxpy
import numpy as np
import pytest
import torch

from bidual.architectures.modules.layerwise import LayerwiseNetwork
from bidual.operators import PooledOperator
from bidual.operators.patches import Convolution, ImagePatches
from bidual.operators.stacked import StackedOperator
from bidual.training.layerwise import LayerwiseTrainer
from bidual.training.layerwise.certificates import certify_stage, lifted_point, stage_problem
from helpers.small_images import bars, settings

DECAY = 2e-2


def grown(units: int = 1, side: int = 6, epochs: int = 30, **changes: object) -> LayerwiseNetwork:
    plain = {"gates": 3, "downsample": (True, False), "rates": (0.1, 0.1), "weight_decay": DECAY}
    chosen = settings(**(plain | {"units": units, "epochs": epochs} | changes))
    return LayerwiseTrainer(chosen, *bars(30, side, 1), 3).run().network


@pytest.mark.parametrize("units", [1, 2])
@pytest.mark.parametrize("side", [6, 8])  # a 3 x 3 map has windows that overlap, a 4 x 4 map has not
@pytest.mark.parametrize("count", [1, 2])
def test_program_is_that_of_the_network(units: int, side: int, count: int) -> None:
    """The lifted point predicts what the network does, up to its single precision (BM eq. 130)."""
    network = grown(units, side, epochs=2).upto(count)
    images, labels = bars(30, side, 1)
    problem, Z = stage_problem(network, images, labels, DECAY)
    with torch.no_grad():
        outputs = network(images) - network.heads.last.output.bias
    assert float((problem.operator.forward(Z) - outputs).abs().max()) < 1e-4 * float(outputs.abs().max())
    assert problem.beta == pytest.approx(30 * DECAY)


@pytest.mark.parametrize("units", [1, 2])
@pytest.mark.parametrize("count", [1, 2])
def test_bounds_hold_the_optimum_by_cvxpy(units: int, count: int) -> None:
    """dual <= optimum <= balanced <= objective, the optimum from cvxpy on the dense operator."""
    small = {"gates": 2, "factors": 1, "downsample": (False, False), "grid": 1}
    network = grown(units, epochs=60, **small).upto(count)
    images, labels = bars(12, 6, 1)
    found = certify_stage(network, images, labels, DECAY)
    problem, _ = stage_problem(network, images, labels, DECAY)
    optimum = _optimum(problem.operator.dense().numpy(), problem.operator.block_shape, labels.numpy(), 12 * DECAY)
    assert 0 < found.dual <= optimum * (1 + 1e-4)
    assert optimum * (1 - 1e-4) <= found.balanced <= found.objective * (1 + 1e-6)
    assert found.relative_gap == pytest.approx((found.objective - found.dual) / found.objective)


def _optimum(A: np.ndarray, shape: tuple[int, int, int], labels: np.ndarray, beta: float) -> float:
    blocks = [cvxpy.Variable(shape[1:]) for _ in range(shape[0])]
    bias = cvxpy.Variable((1, 3))
    stacked = cvxpy.hstack([cvxpy.vec(block, order="C") for block in blocks])
    outputs = cvxpy.reshape(A @ stacked, (len(labels), 3), order="C") + np.ones((len(labels), 1)) @ bias
    right = cvxpy.sum(cvxpy.multiply(np.eye(3)[labels], outputs))
    price = sum(cvxpy.normNuc(block) for block in blocks)
    objective = cvxpy.sum(cvxpy.log_sum_exp(outputs, axis=1)) - right + beta * price
    return float(cvxpy.Problem(cvxpy.Minimize(objective)).solve(solver="CLARABEL"))


def test_objective_is_the_networks_own() -> None:
    """Sum of losses + beta/2 the squares of filters, their biases and the head, without the output's bias."""
    network = grown().upto(1)
    images, labels = bars(30, 6, 1)
    double = LayerwiseNetwork.rebuild(network.sizes, network.state_dict()).double()
    priced = [*double.stages.last.hidden.parameters(), double.heads.last.output.weight]
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(double(images), labels, reduction="sum")
        expected = float(loss + 30 * DECAY / 2 * sum(p.square().sum() for p in priced))
    assert certify_stage(network, images, labels, DECAY).objective == pytest.approx(expected, rel=1e-5)


def test_gap_closes_as_training_goes_on() -> None:
    images, labels = bars(30, 6, 1)
    short, long = (certify_stage(grown(epochs=n, drop_every=500).upto(1), images, labels, DECAY) for n in (2, 1000))
    assert long.relative_gap < 0.1 < short.relative_gap
    assert long.dual >= short.dual


def test_price_of_the_point_is_at_most_the_weight_decay() -> None:
    network = grown().upto(1)
    stage, head = network.stages.last, network.heads.last
    Z = lifted_point(stage, head).detach()
    squares = sum(p.detach().double().square().sum() for p in (*stage.hidden.parameters(), head.output.weight))
    assert float(torch.linalg.svdvals(Z).sum()) <= 0.5 * float(squares) * (1 + 1e-12)  # type: ignore[arg-type]


def test_stacked_blocks_are_the_same_map() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(4, 1, 3, 3, generator=generator, dtype=torch.float64)
    patches = ImagePatches(X, Convolution.of(2, 2), bias=True)
    plain = PooledOperator(patches, 2, gates=torch.randn(5, 6, generator=generator, dtype=torch.float64))
    stacked = StackedOperator(plain, 3)
    assert stacked.block_shape == (2, 15, 2)
    Z = torch.randn(stacked.block_shape, generator=generator, dtype=torch.float64)
    V = torch.randn(4, 2, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(stacked.forward(Z), plain.forward(Z.reshape(6, 5, 2)))
    torch.testing.assert_close((stacked.adjoint(V) * Z).sum(), (stacked.forward(Z) * V).sum())
    second = torch.tensor([1])
    torch.testing.assert_close(stacked.select(second).forward(Z[1:]), stacked.forward_of(Z, second))
    size = stacked.adjoint(V).flatten(1).norm(dim=1).max()
    assert float(size) <= stacked.magnitude * float(V.norm())
    assert stacked.to(torch.float32).like.dtype == torch.float32
    with pytest.raises(ValueError, match="6 blocks cannot be stacked by 4"):
        StackedOperator(plain, 4)
