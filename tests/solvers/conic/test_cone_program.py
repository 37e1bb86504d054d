"""CP (9) and (10) are solved to the optimum that cvxpy finds for the program as printed, and give real networks."""

import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from bidual.losses import LOSSES, Loss, Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.cone_pca import steepest
from bidual.patterns import enumerate as enumerate_patterns
from bidual.patterns.cones import pattern_cone
from bidual.problems.certificate import certify
from bidual.problems.problem import ReluProblem
from bidual.solvers.conic import cone_program
from bidual.solvers.conic.cone_program import ConeSolution, solve_cone_program
from helpers.draws import normal
from oracles.cone_oracle import cone_optimum
from oracles.problems import SHAPES, random_targets

SCALAR = [loss for loss in LOSSES if loss != "softmax"]


def relu_problem(X: Tensor, loss: Loss, *, intercept: bool = False, weighted: bool = False, share: float = 0.1):
    """A problem with random targets at a share of beta_max over the patterns' own directions, and all patterns."""
    generator = torch.Generator().manual_seed(1)
    targets = random_targets(loss, len(X), 1, generator)
    weight = 0.5 + torch.rand(len(X), generator=generator, dtype=torch.float64) if weighted else None
    problem, patterns = ReluProblem(X, Datafit(loss, targets, weight, intercept), 1.0), enumerate_patterns(X)
    return problem.with_beta(share * problem.restricted_to(patterns.directions).beta_max or 0.1), patterns.active


def assert_a_network(problem: ReluProblem, solution: ConeSolution) -> None:
    """The objective is that of the neurons, evaluated by the certificate's routine and by hand."""
    judged = certify(problem.restricted_to(solution.neurons), solution.lifted, (solution.dual,))
    assert judged.primal == pytest.approx(solution.objective, rel=1e-12)
    outputs = (problem.X @ solution.neurons.T).clamp(min=0) @ solution.weights
    price = (solution.neurons.norm(dim=1) * solution.weights.norm(dim=1)).sum()
    assert solution.objective == pytest.approx(problem.datafit.value(outputs) + problem.beta * float(price), rel=1e-12)


@pytest.mark.parametrize("complete", [False, True], ids=["all_rows", "facets"])
@pytest.mark.parametrize("intercept", [False, True], ids=["no_intercept", "intercept"])
@pytest.mark.parametrize("loss", SCALAR)
def test_agrees_with_cvxpy(loss: str, intercept: bool, complete: bool) -> None:
    problem, patterns = relu_problem(normal(8, 3), LOSSES[loss](), intercept=intercept, weighted=intercept)
    solution = solve_cone_program(problem, patterns, complete=complete)
    assert solution.objective == pytest.approx(cone_optimum(problem, patterns), rel=1e-7)
    assert_a_network(problem, solution)


OPPOSITE = torch.cat([normal(4, 2), -normal(2, 2), 2 * normal(1, 2), torch.zeros(1, 2, dtype=torch.float64)])


@pytest.mark.parametrize("loss", ["squared", "hinge"])
@pytest.mark.parametrize("X", [*SHAPES.values(), OPPOSITE], ids=[*SHAPES, "opposite, collinear and zero rows"])
def test_degenerate_shapes(X: Tensor, loss: str) -> None:
    problem, patterns = relu_problem(X[:9], LOSSES[loss]())
    solution = solve_cone_program(problem, patterns, complete=True)
    assert solution.objective == pytest.approx(cone_optimum(problem, patterns), rel=1e-7)
    assert_a_network(problem, solution)


@pytest.mark.parametrize("loss", SCALAR)
@pytest.mark.parametrize("share", [0.5, 0.01])
def test_the_dual_is_feasible_over_all_neurons_and_closes_the_gap(loss: str, share: float) -> None:
    problem, patterns = relu_problem(normal(10, 3), LOSSES[loss](), share=share)
    solution = solve_cone_program(problem, patterns, complete=True)
    V = problem.datafit.into_domain(solution.dual)
    cones = [(pattern_cone(problem.X.numpy(), D.numpy()), (problem.X * D[:, None]).T @ V) for D in patterns]
    peak = max(steepest(cone, cone.basis.T @ G.numpy(), cone.inner[None]).upper for cone, G in cones)
    assert peak <= problem.beta * (1 + 1e-7)
    assert -problem.datafit.conjugate(V) == pytest.approx(solution.objective, rel=1e-8)


def train_the_network(problem: ReluProblem, neurons: int, seed: int) -> float:
    """L-BFGS on the weights of the non-convex network itself (CP eq. 5)."""
    d, y = problem.X.shape[1], problem.datafit.targets
    start = torch.randn(neurons * (d + 1), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def objective(flat):
        w = torch.tensor(flat, requires_grad=True)
        U, v = w[: neurons * d].reshape(neurons, d), w[neurons * d :]
        value = 0.5 * ((problem.X @ U.T).clamp(min=0) @ v - y[:, 0]).square().sum()
        value = value + 0.5 * problem.beta * w.square().sum()
        value.backward()
        return float(value.detach()), w.grad.numpy()

    return float(minimize(objective, start.numpy(), jac=True, method="L-BFGS-B", options={"maxiter": 500}).fun)


@pytest.mark.parametrize("d", [1, 2])
def test_training_never_ends_below_and_can_end_there(d: int) -> None:
    problem, patterns = relu_problem(normal(6, d), Squared(), share=0.3)
    optimum = solve_cone_program(problem, patterns, complete=True).objective
    reached = min(train_the_network(problem, 8, seed) for seed in range(12))
    assert optimum * (1 - 1e-9) <= reached <= optimum * (1 + 1e-3)


WHITENED = torch.linalg.qr(normal(6, 4)).Q.T.contiguous()


@pytest.mark.parametrize("X", [torch.diag(normal(1, 4)[0].abs()), WHITENED], ids=["diagonal", "whitened"])
def test_spike_free_data_need_one_pattern(X: Tensor) -> None:
    problem, patterns = relu_problem(X, Squared())
    one = torch.ones(1, len(X), dtype=torch.bool)
    values = [solve_cone_program(problem, D).objective for D in (one, patterns)]
    assert values[0] == pytest.approx(values[1], rel=1e-9)


def test_one_pattern_is_not_enough_for_other_data() -> None:
    problem, patterns = relu_problem(normal(8, 3), Squared())
    one = torch.ones(1, 8, dtype=torch.bool)
    assert solve_cone_program(problem, one).objective > 1.01 * solve_cone_program(problem, patterns).objective


@pytest.mark.parametrize("loss", SCALAR)
def test_from_beta_max_on_there_are_no_neurons(loss: str) -> None:
    problem, patterns = relu_problem(normal(8, 2), LOSSES[loss]())
    solution = solve_cone_program(problem.with_beta(1e4), patterns)
    assert len(solution.neurons) == 0
    assert solution.objective == pytest.approx(problem.datafit.value(torch.zeros(8, 1, dtype=torch.float64)))


@pytest.mark.parametrize("loss", SCALAR)
def test_few_neurons(loss: str) -> None:
    problem, patterns = relu_problem(normal(12, 3), LOSSES[loss](), share=0.01)
    assert 0 < len(solve_cone_program(problem, patterns, complete=True).neurons) <= 24


def test_patterns_that_are_off_everywhere_make_the_zero_network() -> None:
    problem, _ = relu_problem(normal(5, 2), Squared())
    solution = solve_cone_program(problem, torch.zeros(1, 5, dtype=torch.bool))
    assert solution.objective == pytest.approx(problem.datafit.scale)


def test_zero_data() -> None:
    problem = ReluProblem(torch.zeros(4, 2, dtype=torch.float64), Datafit(Squared(), normal(4, 1)), 1.0)
    solution = solve_cone_program(problem, torch.ones(1, 4, dtype=torch.bool))
    assert solution.objective == pytest.approx(problem.datafit.scale)


def test_a_time_limit_still_returns_a_network() -> None:
    problem, patterns = relu_problem(normal(15, 3), Squared())
    assert_a_network(problem, solve_cone_program(problem, patterns, time_limit=1e-3))


def test_float32_data_are_solved_in_float64() -> None:
    X = normal(8, 2).float()
    problem = ReluProblem(X, Datafit(Squared(), normal(8, 1).float()), 0.5)
    assert solve_cone_program(problem, enumerate_patterns(X).active).neurons.dtype == torch.float64


def test_refuses_several_outputs() -> None:
    problem = ReluProblem(normal(5, 2), Datafit(Squared(), normal(5, 3)), 1.0)
    with pytest.raises(ValueError, match="one output, got 3"):
        solve_cone_program(problem, torch.ones(1, 5, dtype=torch.bool))


def test_refuses_patterns_of_other_data() -> None:
    problem, _ = relu_problem(normal(5, 2), Squared())
    with pytest.raises(ValueError, match=r"one column per sample \(5\), got 6"):
        solve_cone_program(problem, torch.ones(1, 6, dtype=torch.bool))


def test_refuses_what_does_not_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cone_program, "available_bytes", lambda device: 1000)
    problem, patterns = relu_problem(normal(8, 2), Squared())
    with pytest.raises(ValueError, match=r"16 patterns make .* 64 variables and 256 inequalities"):
        solve_cone_program(problem, patterns)
