from collections.abc import Sequence
from math import inf

import pytest
import torch

from bidual.losses import Logistic, Loss, Squared
from bidual.papers.experiments import pr_table_2
from bidual.papers.experiments.pr_table_2 import ToyRow, make_toy
from bidual.papers.methods.parallel_descent import ParallelDescent
from bidual.papers.methods.path_norm import path_norm, path_norm_of


@pytest.fixture(scope="module")
def rows() -> Sequence[ToyRow]:
    steps = {"sgd": (0.005, 0.05), "adam": (0.01,)}
    return pr_table_2.run(seeds=(2, 3), networks=(5, 20), trials=2, epochs=200, steps=steps)


def test_no_run_is_below_the_certified_optimum(rows: Sequence[ToyRow]) -> None:
    for row in rows:
        assert row.optimum.gap <= 1e-6
        assert min(row.values) >= row.optimum.lower_bound
        assert row.count_at_most(row.optimum.value) == 0
        assert max(row.best("sgd").values) < inf
    assert any(min(row.values) < 1.5 * row.optimum.value for row in rows)


def test_the_tuned_rate_is_no_worse_than_the_paper_s(rows: Sequence[ToyRow]) -> None:
    assert all(min(row.best("sgd").values) <= min(row.best("paper").values) for row in rows)
    assert {row.best("paper").step for row in rows} == {0.005}


def test_table_and_figure(rows: Sequence[ToyRow]) -> None:
    lines = pr_table_2.table(rows).splitlines()
    assert [line[: line.index("0.0")] for line in lines[2:]] == [
        f"| {seed} | {K} | " for seed in (2, 3) for K in (5, 20)
    ]
    assert all(line.endswith("0 of 6 | 0 |") for line in lines[2:])
    assert pr_table_2.summary(rows).splitlines()[-1].startswith("| 20 |")
    assert pr_table_2.draw(rows).startswith(b"\x89PNG")


def test_larger_sets_are_certified() -> None:
    larger = pr_table_2.run_larger(n=5, seeds=(0,), betas=(0.1,))
    assert [row.labels for row in larger] == ["teacher", "random"]
    assert all(row.optimum.gap <= 1e-6 for row in larger)
    assert "| 5 | random | 0 | 0.1 |" in pr_table_2.larger_table(larger)


@pytest.mark.parametrize("loss", [Squared(), Logistic()])
@pytest.mark.parametrize("mean", [False, True])
def test_gradients_are_those_of_autograd(loss: Loss, mean: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    X, y = (torch.randn(3, 7, k, generator=generator, dtype=torch.float64) for k in (4, 2))
    method = ParallelDescent(5, 3, mean=mean, loss=loss, second_width=2, epochs=0)
    layers = method.run(X, y.sign(), 0.3, (0, 1, 2)).layers
    values, slopes = method.slope(X, y.sign(), 0.3, layers)
    tracked = [layer.clone().requires_grad_() for layer in layers]
    for trial in range(3):
        first, second, third = (layer[trial] for layer in tracked)
        losses = loss.value(((X[trial] @ first).relu() @ second).relu().matmul(third).sum(0), y[trial].sign())
        value = (losses.mean() if mean else losses.sum()) + 0.3 * path_norm([first, second, third])
        torch.testing.assert_close(value.detach(), values[trial])
        value.backward()
    for layer, slope in zip(tracked, slopes, strict=True):
        torch.testing.assert_close(layer.grad, slope)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_steps_are_those_of_torch(optimiser: str) -> None:
    X, y = make_toy()
    method = ParallelDescent(4, 3, "adam" if optimiser == "adam" else "sgd", 0.01, 20)
    start = ParallelDescent(4, 3, epochs=0).run(X, y, 0.1, (3,)).network(0)
    weights = list(start.layers)
    theirs = torch.optim.Adam(weights, lr=0.01) if optimiser == "adam" else torch.optim.SGD(weights, 0.01, 0.9)
    for _ in range(20):
        theirs.zero_grad()
        (0.5 * (start(X) - y).square().sum() + 0.1 * path_norm_of(start)).backward()
        theirs.step()
    for ours, layer in zip(method.run(X, y, 0.1, (3,)).network(0).layers, weights, strict=True):
        torch.testing.assert_close(ours.detach(), layer.detach())


def test_trials_do_not_interact() -> None:
    """Also with mini-batches, and in float32; the objective is that of the network which comes out."""
    X, y = make_toy(9)
    method = ParallelDescent(4, 2, "adam", 0.01, 30, batch_size=4)
    together, alone = method.run(X, y, 0.1, (1, 2, 3)), method.run(X, y, 0.1, (2,))
    torch.testing.assert_close(together.objective[1], alone.objective[0])
    network = alone.network(0)
    value = (0.5 * (network(X) - y).square().sum() + 0.1 * path_norm_of(network)).detach()
    torch.testing.assert_close(alone.final[0], value)
    assert method.run(X.float(), y.float(), 0.1, (2,)).final.dtype is torch.float32


def test_accuracy_counts_signs() -> None:
    X, y = make_toy(40)
    runs = ParallelDescent(10, 3, "adam", 0.01, 500, mean=True).run(X, y.sign(), 1e-3, (0, 1))
    right = (runs.network(1)(X).sign() == y.sign()).double().mean()
    assert float(runs.accuracy(X, y.sign())[1]) == pytest.approx(float(right))
    assert float(runs.accuracy(X, y.sign()).min()) > 0.8
