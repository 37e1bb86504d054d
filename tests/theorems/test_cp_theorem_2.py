"""CP Theorem 2: on whitened data the optimal ReLU network is a soft-thresholded SVD. Where it holds, and where not."""

import itertools
from collections.abc import Callable

import cvxpy as cp
import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits
from torch import Tensor

from bidual.estimators.whitening import ZCAWhitening
from bidual.losses import Absolute, Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.demeaned_form import _distance_to_demeaned, _polar_demeaned, closed_form_demeaned
from bidual.polar import steepness
from bidual.polar.exact.orthogonal_rows import polar_bound_orthogonal_rows
from bidual.problems.problem import ReluProblem
from bidual.training.relu.closed_form import ClosedForm, closed_form
from helpers.draws import normal


def white(n: int, d: int) -> Tensor:
    """X X^T = I."""
    return torch.linalg.qr(normal(d, n))[0].T


def demeaned(n: int, d: int) -> Tensor:
    """X X^T = I - 1 1^T / n, as de-meaning and whitening leave it."""
    return white(n, d) - white(n, d).mean(0)


def one_hot(counts: list[int]) -> Tensor:
    return torch.eye(len(counts), dtype=torch.float64).repeat_interleave(torch.tensor(counts), 0)


def squared(X: Tensor, Y: Tensor, beta: float, *, intercept: bool = False) -> ReluProblem:
    return ReluProblem(X, Datafit(Squared(), Y, intercept=intercept), beta)


def trained(problem: ReluProblem, m: int = 8, starts: int = 3) -> float:
    """The best of several trainings by L-BFGS: an upper bound of the optimum that knows nothing of convexity."""
    X, Y = problem.X.numpy(), problem.datafit.targets.numpy()
    d, c = X.shape[1], Y.shape[1]

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        U, W = flat[: m * d].reshape(d, m), flat[m * d :].reshape(m, c)
        hidden = np.maximum(X @ U, 0)
        R = hidden @ W - Y
        R = R - R.mean(0) if problem.datafit.intercept else R
        slope = np.concatenate([(X.T @ ((R @ W.T) * (hidden > 0))).ravel(), (hidden.T @ R).ravel()])
        return 0.5 * (R**2).sum() + 0.5 * problem.beta * (flat**2).sum(), slope + problem.beta * flat

    rng, options = np.random.default_rng(0), {"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-7}
    points = rng.normal(size=(starts, m * (d + c)))
    with threadpool_limits(1):
        runs = [minimize(value, point, jac=True, options=options, method="L-BFGS-B") for point in points]
    return min(float(run.fun) for run in runs)


def all_patterns_optimum(X: Tensor, y: Tensor, beta: float) -> float:
    """CP eq. (9) over all 2^n patterns of independent rows, by cvxpy."""
    A, fit, price, cones = X.numpy(), 0, 0, []
    for signs in itertools.product([1.0, -1.0], repeat=len(A)):
        w, v = cp.Variable(A.shape[1]), cp.Variable(A.shape[1])
        on, sign = np.maximum(signs, 0), np.array(signs)
        fit, price = fit + cp.multiply(on, A @ (w - v)), price + cp.norm(w) + cp.norm(v)
        cones += [cp.multiply(sign, A @ w) >= 0, cp.multiply(sign, A @ v) >= 0]
    model = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(fit - y.numpy()) + beta * price), cones)
    return float(model.solve(solver=cp.CLARABEL))


def assert_optimal(form: ClosedForm, problem: ReluProblem, tol: float = 1e-9) -> None:
    """The network costs the objective, and a feasible dual point is worth as much: nothing is left to doubt."""
    assert form.applies, form.reason
    P = (problem.X @ form.neurons.T).clamp(min=0) @ form.weights
    decay = float(form.neurons.square().sum() + form.weights.square().sum()) / 2
    assert problem.datafit.value(P) + problem.beta * decay == pytest.approx(form.objective, rel=tol)
    assert form.polar <= problem.beta * (1 + tol)
    assert -problem.datafit.conjugate(form.dual_point) == pytest.approx(form.objective, rel=tol)
    assert float(steepness(problem.X, form.dual_point, normal(2000, problem.X.shape[1])).max()) <= form.polar
    if len(form.neurons):
        at_neurons = steepness(problem.X, form.dual_point, form.neurons)
        torch.testing.assert_close(at_neurons, torch.full_like(at_neurons, problem.beta))


@pytest.mark.parametrize(("counts", "optimum"), [([10, 10, 10], 4.36842), ([5, 10, 15], 4.26066)])
def test_one_hot_labels(counts: list[int], optimum: float) -> None:
    problem = squared(white(30, 40), one_hot(counts), 0.5)
    form = closed_form(problem)
    assert_optimal(form, problem)
    assert form.objective == pytest.approx(optimum, abs=1e-5)
    assert form.objective == pytest.approx(trained(problem), rel=1e-5)


def test_the_paper_s_formula_for_one_hot_labels() -> None:
    """V* = X^T Y diag((1 - beta / |y_k|)_+), CP eq. (16) in the class basis."""
    X, Y = white(12, 15), one_hot([2, 4, 6])
    form = closed_form(squared(X, Y, 1.5))  # beta > sqrt(2): the smallest class gets no neuron
    shrink = (1 - 1.5 / torch.linalg.vector_norm(Y, dim=0)).clamp(min=0)
    torch.testing.assert_close(form.neurons.T @ form.weights, X.T @ Y * shrink)
    assert len(form.neurons) == 2


def test_equal_singular_values_make_the_basis_arbitrary() -> None:
    """Any rotation of the singular vectors of balanced classes is an SVD; the condition fails in it, V* does not."""
    X, Y, beta = white(30, 40), one_hot([10, 10, 10]), 0.5
    rotation = torch.linalg.qr(normal(3, 3))[0]
    left, sigma = X.T @ Y @ rotation / 10**0.5, 10**0.5
    torch.testing.assert_close(sigma * left @ rotation.T, X.T @ Y)
    assert not bool(((X @ left >= -1e-9).all(0) | (X @ left <= 1e-9).all(0)).all())
    form = closed_form(squared(X, Y, beta))
    torch.testing.assert_close(form.neurons.T @ form.weights, (sigma - beta) * left @ rotation.T)


@pytest.mark.parametrize(
    "Y",
    [
        one_hot([4, 3, 5]) @ torch.linalg.qr(normal(3, 3))[0],
        one_hot([4, 3, 5]) @ torch.diag(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)),
        one_hot([4, 4, 4]) - 1 / 3,
        normal(12, 1),
        normal(12, 1).sign(),
        normal(12, 3) * one_hot([4, 3, 5]),
    ],
    ids=["rotated", "columns flipped and scaled", "centred", "one output", "labels +-1", "one output per sample"],
)
def test_the_class_basis_beyond_one_hot_labels(Y: Tensor) -> None:
    problem = squared(white(12, 14), Y, 0.3)
    form = closed_form(problem)
    assert_optimal(form, problem)
    assert form.reason.startswith("class basis")
    assert form.objective <= trained(problem, starts=2) * (1 + 1e-9)


def test_one_output_against_all_patterns() -> None:
    X, y = white(4, 5), normal(4, seed=3)
    form = closed_form(squared(X, y[:, None], 0.2))
    assert form.objective == pytest.approx(all_patterns_optimum(X, y, 0.2), rel=1e-6)


def test_singular_vectors_above_beta() -> None:
    """CP Remark 5.2: with Y Y^T >= 0 and beta above the second singular value the condition holds (Perron)."""
    Y = normal(10, 3).abs()
    sigma = torch.linalg.svdvals(Y)
    problem = squared(white(10, 12), Y, float(sigma[1]) * 1.01)
    form = closed_form(problem)
    assert_optimal(form, problem)
    assert form.reason.startswith("singular vectors")
    assert len(form.neurons) == 1
    assert form.objective == pytest.approx(trained(problem), rel=1e-5)
    assert not closed_form(problem.with_beta(float(sigma[1]) * 0.9)).applies


def test_scale_of_the_data() -> None:
    """X X^T = s^2 I at s beta is X X^T = I at beta."""
    X, Y = white(12, 14), one_hot([4, 3, 5])
    scaled = squared(7 * X, Y, 7 * 0.3)
    assert_optimal(closed_form(scaled), scaled)
    assert closed_form(scaled).objective == pytest.approx(closed_form(squared(X, Y, 0.3)).objective)


def test_intercept_where_the_residual_sums_to_zero() -> None:
    balanced = squared(white(12, 14), one_hot([4, 4, 4]), 0.3, intercept=True)
    assert_optimal(closed_form(balanced), balanced)
    assert closed_form(balanced).objective == pytest.approx(trained(balanced), rel=1e-5)
    assert "intercept" in closed_form(squared(white(12, 14), one_hot([2, 4, 6]), 0.3, intercept=True)).reason


def test_beta_above_its_maximum_is_the_zero_network() -> None:
    for Y in (one_hot([4, 3, 5]), normal(12, 3).abs()):
        problem = squared(white(12, 14), Y, 100.0)
        assert_optimal(closed_form(problem), problem)
        assert len(closed_form(problem).neurons) == 0


@pytest.mark.parametrize(("counts", "optimum"), [([10, 10, 10], 5.24698), ([5, 10, 15], None), ([15, 15], None)])
def test_demeaned_data_are_another_problem(counts: list[int], optimum: float | None) -> None:
    problem = squared(demeaned(30, 40), one_hot(counts), 0.5)
    refused, form = closed_form(problem), closed_form_demeaned(problem)
    assert not refused.applies
    assert "de-meaned" in refused.reason
    assert_optimal(form, problem)
    assert form.objective == pytest.approx(optimum or form.objective, abs=1e-5)
    assert form.objective == pytest.approx(trained(problem), rel=1e-5)
    theorem_2 = sum(0.5 * count**0.5 - 0.125 for count in counts)
    assert form.objective > 1.1 * theorem_2


def test_the_constant_column_restores_theorem_2() -> None:
    X = torch.from_numpy(ZCAWhitening().fit_transform(normal(30, 40).numpy()))
    assert closed_form(squared(X, one_hot([10, 10, 10]), 0.5)).objective == pytest.approx(4.36842, abs=1e-5)


def test_demeaned_data_with_a_class_above_half() -> None:
    """[3, 7, 20]: the formula's dual point is infeasible by sqrt(1.125), so the form must refuse."""
    X, Y, counts = demeaned(30, 40), one_hot([3, 7, 20]), torch.tensor([3.0, 7.0, 20.0]).double()
    assert not closed_form_demeaned(squared(X, Y, 0.5)).applies
    V = -Y * 0.5 / (counts * (1 - counts / 30)).sqrt()
    half = torch.cat([torch.zeros(15), torch.ones(15)]).double()
    assert float(steepness(X, V, (X.T @ half)[None])) ** 2 == pytest.approx(1.125 * 0.5**2)


@pytest.mark.parametrize(
    ("y", "beta", "printed", "optimum"), [([1.0, -1.0], 0.1, 0.136421, 0.19), ([1.0, 0.5, -0.4], 0.1, None, None)]
)
def test_the_nuclear_norm_printed_in_cp_15_is_too_cheap(
    y: list[float], beta: float, printed: float | None, optimum: float | None
) -> None:
    """On X = I the hull of u g^T with u >= 0 is everything, so CP (15) as printed is a linear network."""
    Y = torch.tensor(y, dtype=torch.float64)[:, None]
    Z = cp.Variable(Y.shape)
    linear = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(Z - Y.numpy()) + beta * cp.normNuc(Z))).solve(
        solver=cp.CLARABEL
    )
    X = torch.eye(len(y), dtype=torch.float64)
    form = closed_form(squared(X, Y, beta))
    assert linear == pytest.approx(printed or linear, abs=1e-6)
    assert form.objective == pytest.approx(optimum or form.objective, abs=1e-9)
    assert form.objective == pytest.approx(all_patterns_optimum(X, Y[:, 0], beta), rel=1e-6)
    assert form.objective == pytest.approx(trained(squared(X, Y, beta), m=4, starts=10), rel=1e-6)
    assert linear < 0.9 * form.objective


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda X, Y: ReluProblem(X, Datafit(Absolute(), Y), 0.5), "squared loss"),
        (lambda X, Y: ReluProblem(X, Datafit(Squared(), Y, 2 * Y.sum(1)), 0.5), "weights"),
        (lambda X, Y: squared(0 * X, Y, 0.5), "zero"),
        (lambda X, Y: squared(X[:, :7], Y, 0.5), "multiple of the identity"),
        (lambda X, Y: squared(X, normal(12, 3), 0.5), "acute angle"),
    ],
)
def test_refusals(change: Callable[[Tensor, Tensor], ReluProblem], reason: str) -> None:
    form = closed_form(change(white(12, 14), one_hot([4, 3, 5])))
    assert not form.applies
    assert reason in form.reason
    assert np.isnan(form.objective)


def test_the_polar_bound_holds_for_any_data() -> None:
    for seed in range(40):
        n, d, c = 2 + seed % 6, 1 + seed % 4, 1 + seed % 3
        X, V = normal(n, d, seed=seed) * (seed % 3 + normal(n, 1, seed=seed)), normal(n, c, seed=seed + 100)
        assert float(steepness(X, V, normal(5000, d)).max()) <= polar_bound_orthogonal_rows(X, V)


def test_the_polar_bound_is_attained_on_orthogonal_rows_of_any_length() -> None:
    X = torch.diag(torch.tensor([1.0, 2.0, 0.0, 5.0], dtype=torch.float64))
    V = torch.tensor([[1.0], [1.0], [9.0], [-0.3]], dtype=torch.float64)
    assert polar_bound_orthogonal_rows(X, V) == pytest.approx(5**0.5)  # the lengths of (1, 2) and of 1.5
    assert float(steepness(X, V, torch.tensor([[1.0, 2.0, 0.0, 0.0]]).double())) == pytest.approx(5**0.5)


@pytest.mark.parametrize("counts", [[3, 3, 3], [2, 3, 4], [1, 1, 7]])
def test_the_polar_on_demeaned_data_is_bounded_for_any_dual_point(counts: list[int]) -> None:
    """Also for rows of V that differ within groups or make acute angles, by the rows of V alone."""
    n, groups = sum(counts), torch.repeat_interleave(torch.arange(3), torch.tensor(counts))
    centring = torch.eye(n, dtype=torch.float64) - 1 / n
    for seed, noise in itertools.product(range(3), (0.0, 1e-6, 0.3)):
        V = one_hot(counts) / torch.tensor(counts).double()[groups, None].sqrt() + noise * normal(n, 3, seed=seed)
        found = _polar_demeaned(V, groups, 4.0)
        if 2 * max(counts) > n:
            assert found == np.inf
            continue
        U = torch.cat([normal(5000, n, seed=seed), (centring @ V).T])
        steepest = float(steepness(2 * centring, V, U).max())
        assert steepest <= found
        assert noise > 1e-3 or found <= steepest * (1 + 1e-12 + 20 * noise)
    assert _polar_demeaned(one_hot(counts), groups - 1, 1.0) == np.inf  # rows outside of groups must be zero


@pytest.mark.parametrize("off", [0.0, 1e-10, 1e-3])
def test_the_distance_to_demeaned_data_holds_for_the_nearest_of_them(off: float) -> None:
    X = 3 * demeaned(6, 9) + off * normal(6, 9, seed=5)
    bound = _distance_to_demeaned(X, 9.0)
    with mpmath.workdps(40):
        basis = mpmath.matrix(6, 5)  # an orthonormal basis of what is orthogonal to 1
        for k in range(5):
            for i in range(k + 2):
                basis[i, k] = (1 if i <= k else -(k + 1)) / mpmath.sqrt((k + 1) * (k + 2))
        left, _, right = mpmath.svd_r(basis.T * mpmath.matrix(X.tolist()))
        nearest = 3 * basis * left * right
        distance = mpmath.svd_r(mpmath.matrix(X.tolist()) - nearest, compute_uv=False)[0]
        assert distance <= bound <= 20 * distance + 1e-12
