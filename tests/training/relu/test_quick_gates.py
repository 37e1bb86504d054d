"""Gates from a quick ReLU training: whose patterns they have, what they depend on, and what they do not."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bidual.losses import LOSSES
from bidual.losses.datafit import Datafit
from bidual.operators.patches import Convolution, ImagePatches
from bidual.patterns import activations, with_constant
from bidual.problems.problem import ReluProblem
from bidual.training.relu import quick_gates
from bidual.training.relu.fold_networks import FoldPaths
from bidual.training.relu.plan import ReluPlan
from bidual.training.relu.quick_gates import gates_of_quick_training
from oracles.problems import random_targets


def some_problem(loss: str, n: int, d: int, c: int, seed: int, weighted: bool = False) -> ReluProblem:
    """Normal samples and random targets."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    weight = 0.5 + torch.rand(n, generator=generator, dtype=torch.float64) if weighted else None
    targets = random_targets(LOSSES[loss](), n, c, generator)
    return ReluProblem(X, Datafit(LOSSES[loss](), targets, weight, True), 1.0)


def patterns(X: Tensor, gates: Tensor) -> set[tuple[bool, ...]]:
    return {tuple(pattern) for pattern in activations(X, gates).tolist()}


@pytest.mark.parametrize(("loss", "outputs"), [("squared", 1), ("logistic", 1), ("softmax", 3), ("poisson", 1)])
def test_every_neuron_of_every_network_is_a_gate(loss: str, outputs: int) -> None:
    problem = some_problem(loss, 30, 6, outputs, seed=0, weighted=True)
    gates = gates_of_quick_training(problem, 3)
    problem = quick_gates._merged(problem)
    found = patterns(problem.X, gates)
    assert len(found) == gates.shape[1] > 3
    beta_max = ReluPlan(problem.X, "search", quick_gates._STARTS, 3).beta_max(problem)
    paths = FoldPaths(problem, torch.ones(1, 30, dtype=torch.float64), 3)
    for [network] in paths.networks([share * beta_max for share in quick_gates.FRACTIONS]):
        own = patterns(problem.X, network.neurons.T) - {(False,) * 30}
        assert own
        assert own <= found


def test_the_seed_alone_decides() -> None:
    problem = some_problem("squared", 30, 6, 1, seed=1)
    before = torch.random.get_rng_state()
    gates = gates_of_quick_training(problem, 0)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(5)
    torch.testing.assert_close(gates_of_quick_training(problem.with_beta(7.0), 0), gates, rtol=0, atol=0)
    assert not torch.equal(gates_of_quick_training(problem, 1), gates)


def test_what_weighs_next_to_nothing_is_not_seen() -> None:
    problem = some_problem("squared", 30, 4, 1, seed=2, weighted=True)
    fit = problem.datafit
    weight = fit.weights[:, 0].clone()
    weight[:5] = 1e-14
    targets = fit.targets.clone()
    targets[:5] *= -1
    light, flipped = (replace(problem, datafit=Datafit(fit.loss, Y, weight, True)) for Y in (fit.targets, targets))
    seen = patterns(problem.X[5:], gates_of_quick_training(light, 0))
    assert seen == patterns(problem.X[5:], gates_of_quick_training(flipped, 0))
    assert seen != patterns(problem.X[5:], gates_of_quick_training(problem, 0))


def test_samples_of_many_features_are_seen_in_the_space_of_their_rows() -> None:
    problem = some_problem("squared", 12, 5, 1, seed=6)
    wide = torch.linalg.qr(torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q.T
    gates = gates_of_quick_training(replace(problem, X=problem.X @ wide), 0)
    assert gates.shape[0] == 40
    torch.testing.assert_close(wide.T @ (wide @ gates), gates)
    assert gates.shape[1] > 2


def test_a_weight_of_two_is_a_repeated_sample_in_any_order() -> None:
    problem = some_problem("squared", 20, 4, 1, seed=7)
    fit, twice = problem.datafit, 1.0 + torch.arange(20, dtype=torch.float64) % 2
    rows = torch.arange(20).repeat_interleave(twice.long()).flip(0)
    targets = fit.targets + fit.shift
    weighted = replace(problem, datafit=Datafit(fit.loss, targets, twice, True))
    repeated = replace(problem, X=problem.X[rows], datafit=Datafit(fit.loss, targets[rows], None, True))
    ours, theirs = gates_of_quick_training(weighted, 0), gates_of_quick_training(repeated, 0)
    assert patterns(problem.X, ours) == patterns(problem.X, theirs)
    assert patterns(problem.X, ours) != patterns(problem.X, gates_of_quick_training(problem, 0))


def test_no_gates_where_the_best_network_is_zero() -> None:
    X = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    constant = Datafit(LOSSES["squared"](), torch.full((8, 1), 3.0, dtype=torch.float64), None, True)
    assert gates_of_quick_training(ReluProblem(X, constant, 1.0), 0).shape == (3, 0)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_samples_of_any_size_give_gates_that_are_finite(scale: float) -> None:
    problem = some_problem("squared", 12, 3, 1, seed=3)
    gates = gates_of_quick_training(replace(problem, X=with_constant(scale * problem.X)), 0)
    assert gates.isfinite().all()


def test_of_many_samples_a_part_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ReluProblem] = []
    whole = quick_gates._neurons
    monkeypatch.setattr(quick_gates, "_neurons", lambda problem, *rest: seen.append(problem) or whole(problem, *rest))
    monkeypatch.setattr(quick_gates, "_NUMBERS", 100)
    monkeypatch.setattr(quick_gates, "_FEWEST_ROWS", 20)
    problem = some_problem("logistic", 40, 4, 1, seed=4, weighted=True)
    gates = gates_of_quick_training(problem, 0)
    assert len(patterns(problem.X, gates)) == gates.shape[1]
    [part] = seen
    rows = [int((row == problem.X).all(1).nonzero()) for row in part.X]
    assert len(set(rows)) == 25
    torch.testing.assert_close(part.datafit.targets, problem.datafit.targets[rows])
    torch.testing.assert_close(part.datafit.weights, problem.datafit.weights[rows])


def test_a_limit_of_time_ends_descents_early() -> None:
    problem = some_problem("squared", 30, 6, 1, seed=5)
    hasty, patient = gates_of_quick_training(problem, 0, 1e-9), gates_of_quick_training(problem, 0, 1e9)
    assert patterns(problem.X, hasty) != patterns(problem.X, patient)
    assert patterns(problem.X, patient) == patterns(problem.X, gates_of_quick_training(problem, 0))


def test_networks_on_patches_are_refused() -> None:
    patches = ImagePatches(torch.randn(4, 1, 3, 3), Convolution((2, 2), (1, 1), (0, 0), (1, 1)), False)
    fit = Datafit(LOSSES["squared"](), torch.ones(4, 1, dtype=torch.float64))
    with pytest.raises(ValueError, match="gates_of_quick_training is for networks without a readout"):
        gates_of_quick_training(ReluProblem.on(patches, fit, 1.0), 0)
