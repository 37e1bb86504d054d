"""Solution parallel networks: several outputs, more layers, bounds beyond a handful of samples."""

from math import prod

import pytest
import torch
from torch import Tensor

from bidual.architectures import ParallelMLP
from bidual.architectures.modules import ParallelNetwork
from bidual.losses import Huber, Logistic, Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.path_norm import path_norm_of
from bidual.polar import Faces
from bidual.polar.subnetworks.bound import RelaxedBound
from bidual.polar.subnetworks.outputs import AllOutputs
from bidual.polar.subnetworks.pricing import ExactParallel
from bidual.problems.certificate import Scope
from bidual.problems.parallel import ParallelProblem
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.training.parallel.plan import ParallelPlan, relaxed_dual
from bidual.training.relu.plan import ReluPlan
from oracles.parallel_oracle import two_output_optimum


def drawn(n: int, d: int, c: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator).double(), torch.randn(n, c, generator=generator).double()


def teacher(n: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    """PR section 4, "Toy dataset"."""
    generator = torch.Generator().manual_seed(seed)
    sizes = ((n, d), (5, d, 3), (5, 3, 1), (5, 1, 1))
    X, W, w, z = (torch.randn(*size, generator=generator).double() for size in sizes)
    return X, (torch.relu(torch.relu(X @ W) @ w) @ z).sum(0)


def trained_by_adam(X: Tensor, Y: Tensor, beta: float, widths: list[int], seed: int, steps: int = 1500) -> float:
    """The least path-regularised objective on the way of a network of 12 sub-networks."""
    generator = torch.Generator().manual_seed(seed)
    module = ParallelNetwork(X.shape[1], widths, Y.shape[1], 12)
    with torch.no_grad():
        for layer in module.layers:
            layer.copy_(torch.randn(layer.shape, generator=generator) / layer.shape[1] ** 0.5)
    optimiser, best = torch.optim.Adam(module.layers, lr=0.02), float("inf")
    for _ in range(steps):
        optimiser.zero_grad()
        value = 0.5 * (module(X) - Y).square().sum() + beta * path_norm_of(module)
        value.backward()
        optimiser.step()
        best = min(best, value.item())
    return best


@pytest.mark.parametrize(("beta", "seed"), [(0.2, 0), (0.3, 1)])
def test_two_outputs_against_all_cells(beta: float, seed: int) -> None:
    """PR A.11 with the cone-constrained nuclear norm; 20 directions are above the optimum by less than 1 / cos(9)."""
    X, Y = drawn(3, 2, 2, seed)
    done = ParallelPlan(X, 2).train(ParallelProblem(X, Datafit(Squared(), Y), beta, 2), Limits(1e-4))
    certificate = done.certificate
    listed = two_output_optimum(X.numpy(), Y.numpy(), beta, 2, angles=20)
    assert certificate.relative_gap <= 1e-4
    assert certificate.dual <= listed * (1 + 1e-7)
    assert listed <= certificate.primal * 1.013


def test_two_outputs_are_no_worse_than_gradient_descent() -> None:
    X, Y = drawn(4, 2, 2, 3)
    done = ParallelPlan(X, 2).train(ParallelProblem(X, Datafit(Squared(), Y), 0.3, 2), Limits(1e-3))
    adam = min(trained_by_adam(X, Y, 0.3, [2, 1], seed) for seed in range(2))
    assert done.certificate.dual <= adam * (1 + 1e-9)
    assert done.certificate.primal <= adam * (1 + 1e-3)


@pytest.mark.parametrize(("widths", "seed"), [((2, 2), 0), ((2, 1), 1), ((1, 2, 2), 2)])
def test_more_layers(widths: tuple[int, ...], seed: int) -> None:
    """Predictions and path norm of the decoded network are those that were certified, and no descent is below."""
    X, y = teacher(5, 2, seed)
    beta = 0.05
    done = ParallelPlan(X, widths).train(ParallelProblem(X, Datafit(Squared(), y), beta, widths), Limits(1e-4))
    certificate = done.certificate
    module = ParallelMLP(done.neurons, widths).decode(done.Z)
    with torch.no_grad():
        own = 0.5 * float((module(X) - y).square().sum()) + beta * float(path_norm_of(module))
    assert own == pytest.approx(certificate.primal, rel=1e-9)
    assert module.sizes["widths"] == [prod(widths[layer:]) for layer in range(len(widths) + 1)]
    assert certificate.relative_gap <= 0.1
    assert certificate.scope is Scope.ALL_PATTERNS
    shared = trained_by_adam(X, y, beta, [*widths, 1], seed)  # unfolds to trees of these widths
    assert certificate.dual <= shared * (1 + 1e-9)
    two = ReluPlan(X).train(ReluProblem(X, Datafit(Squared(), y), beta / prod(widths) ** 0.5), Limits(1e-6))
    assert certificate.primal <= two.certificate.primal * (1 + 1e-4)


@pytest.mark.parametrize("share", [0.2, 0.02])
def test_a_bound_certifies_what_cannot_be_listed(share: float) -> None:
    """Twenty samples of a teacher, where exact pricing would look at 2^20 second-layer patterns; the smaller beta needs
    branching."""
    X, y = teacher(20, 2, 1)
    problem, trainer = ParallelProblem(X, Datafit(Squared(), y), 1.0, 3), ParallelPlan(X, 3)
    assert not trainer.exact()
    done = trainer.train(problem.with_beta(share * trainer.beta_max(problem)), Limits(1e-5))
    assert done.certificate.relative_gap <= 1e-5
    assert "within the tolerance" in done.status.value


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_bounds_and_exact_pricing_agree(seed: int) -> None:
    """What only was bounded is below the exact optimum, and what was searched above it."""
    X, y = drawn(7, 2, 1, seed) if seed else teacher(7, 2, seed)
    problem = ParallelProblem(X, Datafit(Squared(), y), 0.2, 2)
    exact = ParallelPlan(X, 2, "exact").train(problem, Limits(1e-5)).certificate
    searched = ParallelPlan(X, 2, "search", 200).train(problem, Limits(1e-5)).certificate
    assert searched.dual <= exact.primal * (1 + 1e-12)
    assert exact.dual <= searched.primal * (1 + 1e-12)
    assert searched.dual > 0.3 * exact.dual


def test_the_relaxed_dual_is_better_than_that_of_two_layers() -> None:
    X, y = teacher(20, 2, 1)
    problem = ParallelProblem(X, Datafit(Squared(), y), 0.9, 3)
    oracle = RelaxedBound(X, 3, nodes=0)
    two = ReluPlan(X).train(ReluProblem(X, problem.datafit, 0.9 / 3**0.5), Limits(1e-6), prove=False)
    V = relaxed_dual(problem, Faces(X), two.neurons)
    assert V is not None
    values = []
    for point in (V, two.dual_point):
        scale = min(1.0, problem.beta / oracle.steepest(point).bracket.upper)
        values.append(float(-(0.5 * (scale * point).square() + scale * point * y).sum()))
    assert values[0] > values[1] > 0


def test_what_the_relaxed_dual_is_not_for() -> None:
    X, Y = drawn(6, 2, 2, 0)
    for datafit in (Datafit(Squared(), Y), Datafit(Huber(), Y[:, :1])):
        assert relaxed_dual(ParallelProblem(X, datafit, 0.2, 2), Faces(X), X) is None


def test_logistic_loss_and_an_intercept() -> None:
    X, y = drawn(6, 2, 1, 4)
    problem = ParallelProblem(X, Datafit(Logistic(), y.sign(), None, True), 0.3, 2)
    assert ParallelPlan(X, 2).train(problem, Limits(1e-4)).certificate.relative_gap <= 1e-4


def test_beta_max_is_where_the_zero_network_begins() -> None:
    X, y = teacher(6, 2, 3)
    trainer, problem = ParallelPlan(X, 2), ParallelProblem(X, Datafit(Squared(), y), 1.0, 2)
    top = trainer.beta_max(problem)
    above, below = (trainer.train(problem.with_beta(f * top), Limits(1e-6)) for f in (1.001, 0.98))
    assert not above.Z.any()
    assert below.Z.any()
    assert below.certificate.primal < 0.5 * float(y.square().sum()) * (1 - 1e-6)


def test_callbacks_and_seconds_cover_the_whole_training() -> None:
    X, y = teacher(6, 2, 0)
    seen: list[float] = []
    done = ParallelPlan(X, 2).train(
        ParallelProblem(X, Datafit(Squared(), y), 0.05, 2),
        Limits(1e-5),
        callback=lambda record: seen.append(record.seconds),
    )
    assert seen == sorted(seen)
    assert len(seen) == len(done.history)
    assert done.seconds >= seen[-1]


def test_what_the_plan_refuses() -> None:
    X, y = drawn(40, 5, 1, 0)
    with pytest.raises(
        ValueError, match=r"enumerates 2\^40 second-layer patterns times .* choices of 4 first-layer patterns"
    ):
        ParallelPlan(X, 4, "exact")
    with pytest.raises(ValueError, match="is for three layers, one width"):
        ParallelPlan(X[:4], (2, 2), "exact")
    problem, trainer = ParallelProblem(X, Datafit(Squared(), y), 1.0, 2), ParallelPlan(X, 2)
    with pytest.raises(ValueError, match="solver must"):
        trainer.train(problem, solver="sgd")
    with pytest.raises(ValueError, match="n_starts must be"):
        ParallelPlan(X, 2, "search", 0)
    with pytest.raises(ValueError, match="oracle must be"):
        ParallelPlan(X, 2, "all").train(problem)
    with pytest.raises(ValueError, match="other samples or widths"):
        ParallelPlan(X, 3, "search", 10).train(problem)


@pytest.mark.parametrize("n", [17, 30])
def test_targets_of_one_sign(n: int) -> None:
    """More rows of one sign than exact pricing lists: a bound takes its place, or a refusal comes first."""
    X = torch.rand(n, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1
    done = ParallelPlan(X, 1).train(ParallelProblem(X, Datafit(Squared(), 1 + X**2), 0.1, 1), Limits(1e-4))
    assert done.certificate.relative_gap <= 1e-4
    with pytest.raises(ValueError, match="second-layer patterns"):
        ParallelPlan(X, 1, "exact")


@pytest.mark.parametrize("seed", range(4))
def test_columns_of_very_different_scale_and_rows_that_nearly_agree(seed: int) -> None:
    X, y = drawn(5, 2, 1, seed)
    wide = torch.cat([X * torch.tensor([1e-3, 1e4]).double(), torch.ones(5, 1).double()], 1)
    near = torch.cat([X[:3], -X[:2] * (1 + 1e-10), X[2:3] + 1e-11])[:5]
    for samples in (wide, near):
        problem, trainer = ParallelProblem(samples, Datafit(Squared(), y), 1.0, 2), ParallelPlan(samples, 2)
        done = trainer.train(problem.with_beta(0.1 * trainer.beta_max(problem)), Limits(1e-3))
        assert 0 < done.certificate.dual <= done.certificate.primal


def test_constant_samples_with_an_intercept() -> None:
    X, y = torch.ones(8, 1).double(), ((-1.0) ** torch.arange(8)).double()[:, None]
    done = ParallelPlan(X, 2).train(ParallelProblem(X, Datafit(Squared(), y, None, True), 0.1, 2), Limits(1e-4))
    assert not done.Z.any()


def test_stopped_questions_are_answered_soundly() -> None:
    X, y = drawn(9, 2, 1, 1)
    exact = ExactParallel(X, 3)
    for oracle in (exact, RelaxedBound(X, 3), AllOutputs(exact)):
        stopped, whole = oracle.within(1e-9).steepest(y).bracket, exact.steepest(y).bracket
        assert stopped.upper >= whole.lower
        assert stopped.lower <= whole.upper
