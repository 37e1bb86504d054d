"""Corrections to the papers that no theorem's own file shows, and a check that docs/corrections.md names real tests.

Judges are closed forms, grids and cvxpy; numbers are small enough to follow by hand.
"""

import ast
import math
import re
from itertools import combinations_with_replacement
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar

from bidual import ConvexCNNRegressor
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.reproduction import ROWS
from bidual.patterns import count_bound
from bidual.patterns import enumerate as all_patterns
from bidual.polar import Faces
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.training.relu.column_generation import ColumnGeneration
from helpers.places import ROOT
from oracles import parallel_oracle
from oracles.parallel_cases import data

PAGE = ROOT / "docs" / "corrections.md"
BETA = 0.1


# --------------------------------------------------------------------------------------------------------------- BM


def test_bm_lemma_3_1_needs_as_many_factors_as_the_rank() -> None:
    """X = Y = I_2: the convex optimum has rank 2 and value 0.19, one pair reaches 0.595; so (52) needs rank <= m."""

    def value(flat: np.ndarray, m: int) -> float:
        U, W = flat.reshape(2, 2, m)
        return 0.5 * np.sum((U @ W.T - np.eye(2)) ** 2) + BETA / 2 * np.sum(flat**2)

    starts = np.random.default_rng(0).normal(size=(10, 8))
    one, two = (min(minimize(value, start[: 4 * m], m).fun for start in starts) for m in (1, 2))
    assert two == pytest.approx(2 * (BETA - BETA**2 / 2), abs=1e-6)
    assert one == pytest.approx(0.5 + BETA - BETA**2 / 2, abs=1e-6)


def test_bm_a_5_rank_many_factors_suffice_for_l2_only() -> None:
    """C = l2, R = l1: the gauge is the sum of the columns' lengths, and three directions need three factors."""
    Z = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    gauge = np.linalg.norm(Z, axis=0).sum()
    turns = np.linspace(0, np.pi, 400, endpoint=False)
    units = np.stack([np.cos(turns), np.sin(turns)], 1)
    first, second = np.triu_indices(len(turns), 1)
    W = np.linalg.solve(np.stack([units[first], units[second]], 2), np.broadcast_to(Z, (len(first), 2, 3)))
    assert np.linalg.matrix_rank(Z) == 2
    assert gauge == pytest.approx(2 + math.sqrt(2))
    assert np.abs(W).sum((1, 2)).min() > gauge + 0.5


@pytest.mark.parametrize("kept", [(0,), (1,), (0, 1)])
def test_bm_a_7_and_a_8_at_stationary_points(kept: tuple[int, ...]) -> None:
    """F = 1/2 |Z - diag(3, 2)|^2 and some of its singular pairs: (56) sums squares of columns, and |grad| >= beta."""
    beta, Y = 0.5, np.diag([3.0, 2.0])
    U = np.diag([math.sqrt(Y[k, k] - beta) if k in kept else 0.0 for k in range(2)])
    grad = U @ U.T - Y
    assert np.abs(grad @ U + beta * U).max() < 1e-12  # stationary, with W = U
    lengths = np.linalg.norm(U, axis=0)
    assert -np.sum(grad * (U @ U.T)) / beta == pytest.approx(np.sum(lengths**2))
    assert np.linalg.norm(grad, 2) >= beta * (1 - 1e-12)
    if len(kept) == 2:
        assert np.sum(lengths) ** 2 > 1.5 * np.sum(lengths**2)  # what "sum of norms, squared" would be


def test_bm_a_4_has_no_strong_convexity_in_gated_networks() -> None:
    """mu is the least eigenvalue of A^T A with A = [D_1 X ... D_P X]: zero once P d > n, and L / mu infinite."""
    rng = np.random.default_rng(0)
    X, gates = rng.normal(size=(20, 3)), rng.normal(size=(3, 8))
    A = np.hstack([(X @ gate >= 0)[:, None] * X for gate in gates.T])
    assert A.shape[1] > A.shape[0]
    assert np.linalg.eigvalsh(A.T @ A)[0] == pytest.approx(0, abs=1e-12)
    assert np.linalg.eigvalsh(X.T @ X)[0] > 1  # a linear network has mu > 0


def two_signs() -> tuple[np.ndarray, float]:
    """X = I_2, y = (1, -1): |v^T u_+| <= beta for unit u bounds the lengths of v_+ and v_-, so p* = 2 beta - beta^2."""
    return np.array([1.0, -1.0]), 2 * BETA - BETA**2


def test_bm_86_to_90_need_a_sign_less_and_the_cones() -> None:
    """Weak duality is by -F*; without the cones of (90) the constraint of (88) is |v| <= beta, its value too low."""
    y, optimum = two_signs()
    turns = np.linspace(0, 2 * np.pi, 721)
    units = np.stack([np.cos(turns), np.sin(turns)])
    v = cp.Variable(2)

    def best(hidden: np.ndarray) -> float:
        dual = cp.Maximize(v @ y - 0.5 * cp.sum_squares(v))  # -F*(-v)
        return float(cp.Problem(dual, [cp.abs(hidden.T @ v) <= BETA]).solve(solver=cp.CLARABEL))

    assert best(np.maximum(units, 0)) == pytest.approx(optimum, rel=1e-5)
    assert best(units) == pytest.approx(math.sqrt(2) * BETA - BETA**2 / 2, rel=1e-4)
    feasible = BETA * y  # one entry of each sign, each of length beta
    assert 0.5 * feasible @ feasible + feasible @ y > optimum  # +F* is no lower bound


def test_bm_112_needs_many_neurons_and_not_few() -> None:
    """Strong duality asks for m >= m*: one neuron serves one sign only, and leaves 0.595 where the dual is 0.19."""
    y, optimum = two_signs()
    turns = np.linspace(0, 2 * np.pi, 721)
    hidden = np.maximum(np.stack([np.cos(turns), np.sin(turns)]), 0)
    steep = np.maximum(np.abs(y @ hidden) - BETA, 0)
    lengths = np.maximum(np.sum(hidden**2, axis=0), 1e-12)
    one = 0.5 * y @ y - np.max(steep**2 / lengths) / 2
    assert one == pytest.approx(0.5 + BETA - BETA**2 / 2, rel=1e-9)
    assert one > 3 * optimum


def test_bm_6_sums_where_it_says_average() -> None:
    """Over windows of q patches an average at beta has the optimum of a sum at q beta, and not at beta."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 1, 6)), rng.normal(size=12)

    def optimum(pooling: object, beta: float) -> float:
        network = ConvexCNNRegressor(kernel_size=3, activation="linear", pooling=pooling, beta=beta, tol=1e-9)
        return network.fit(X, y).certificate_.primal

    average, q = optimum("global", 0.2), 4
    assert average == pytest.approx(optimum(np.ones((1, q)), q * 0.2), rel=1e-7)
    assert average > 1.01 * optimum(np.ones((1, q)), 0.2)


# --------------------------------------------------------------------------------------------------------------- CP


def one_sample(y: float = 1.0, beta: float = 0.4) -> float:
    """X = 1: min 1/2 (u v - y)^2 + beta/2 (u^2 + v^2) = beta y - beta^2 / 2."""
    return beta * y - beta**2 / 2


def test_cp_27_has_beta_and_not_half_of_it() -> None:
    """Minimising over gamma leaves beta |u| |v|."""
    y, beta = 1.0, 0.4
    found = minimize_scalar(lambda gamma: beta / 2 * (gamma**2 * 3.0**2 + 2.0**2 / gamma**2), (0.1, 1)).fun
    assert found == pytest.approx(beta * 3 * 2)
    w = np.linspace(0, 2, 200_001)
    right, printed = (np.min(0.5 * (w - y) ** 2 + factor * w) for factor in (beta, beta / 2))
    assert right == pytest.approx(one_sample(y, beta), abs=1e-9)
    assert printed < 0.6 * right


def test_cp_34_is_a_minimum_over_measures_of_maxima() -> None:
    """X = 1: min_mu max_Z -1/2 (Z - y)^2 + 1/2 y^2 + mu (beta - |Z|) is p*; as printed, min over Z has no bound."""
    y, beta = 1.0, 0.4
    Z, mu = np.linspace(-3, 3, 3001)[:, None], np.linspace(0, 2, 2001)[None]
    corrected = -0.5 * (Z - y) ** 2 + 0.5 * y**2 + mu * (beta - np.abs(Z))
    assert corrected.max(0).min() == pytest.approx(one_sample(y, beta), abs=1e-5)
    far = np.array([1e3, 1e6])
    printed = -0.5 * (far - y) ** 2 - 0.5 * y**2 + 2.0 * (np.abs(far) - beta)
    assert printed[1] < printed[0] < -1e5


def test_cp_59_is_concave_in_z() -> None:
    """-1/2 |Z - Y|^2 - sum lambda tr(Z^T D X U X^T D Z): a midpoint is never below the mean of its ends."""
    rng = np.random.default_rng(0)
    A, Y = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))

    def value(Z: np.ndarray) -> float:
        return float(-0.5 * np.sum((Z - Y) ** 2) - 0.7 * np.sum((A.T @ Z) ** 2))

    for _ in range(50):
        a, b = rng.normal(size=(2, 6, 2))
        assert value((a + b) / 2) > (value(a) + value(b)) / 2


def test_cp_78_needs_the_conjugate_of_half_the_loss() -> None:
    """l = (f - y)^2 has l*(z) = z^2 / 4 + z y. On X = 1, |Z| <= beta, -l*(Z) exceeds p*, -1/2 l*(2 Z) attains it."""
    y, beta = 1.0, 0.4
    Z = np.linspace(-beta, beta, 2001)

    def conjugate(z: np.ndarray) -> np.ndarray:
        return z**2 / 4 + z * y

    assert (-0.5 * conjugate(2 * Z)).max() == pytest.approx(one_sample(y, beta))
    assert (-conjugate(Z)).max() > 1.1 * one_sample(y, beta)


DIRECTIONS = {  # which g is the steepest for what neurons see, and how far the loss then is from the right one
    "|g|_2 <= 1": (lambda seen: seen / np.linalg.norm(seen, axis=1, keepdims=True), 0.99, 1.01),
    "|g|_1 <= 1": (lambda seen: np.sign(seen) * (np.abs(seen) == np.abs(seen).max(1, keepdims=True)), 1.05, np.inf),
    "|g|_inf <= 1": (np.sign, 0.0, 0.98),
    "|g|_2 <= 2": (lambda seen: 2 * seen / np.linalg.norm(seen, axis=1, keepdims=True), 0.0, 0.95),
}


@pytest.mark.parametrize("bound", DIRECTIONS)
def test_cp_algorithm_1_needs_a_bounded_output_direction(bound: str) -> None:
    """Algorithm 1 at the price of the certified optimum comes to its loss with |g|_2 <= 1, and with no other bound."""
    steepest, least, most = DIRECTIONS[bound]
    X, Y = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 8, 2)))
    done = solve(ReluProblem(X, Datafit(Squared(), Y), BETA), ColumnGeneration(Faces(X)), Limits(1e-8))
    t = done.problem.gauge.value(done.Z)
    turns = np.linspace(0, 2 * np.pi, 721)
    hidden, f = np.maximum(X.numpy() @ np.stack([np.cos(turns), np.sin(turns)]), 0), np.zeros(Y.shape)
    for step in range(1500):
        seen = hidden.T @ (Y.numpy() - f) + 1e-300
        g = steepest(seen)
        best = np.argmax(np.sum(seen * g, axis=1))
        f += 2 / (step + 2) * (t * np.outer(hidden[:, best], g[best]) - f)
    right = done.certificate.primal - BETA * t
    assert least <= 0.5 * np.sum((f - Y.numpy()) ** 2) / right <= most


@pytest.mark.parametrize("loss", ["absolute", "hinge"])
def test_cp_a_6_not_every_subgradient_serves(loss: str) -> None:
    """A group lasso at its optimum: signs of residuals, scaled into the dual, leave a gap; multipliers leave none."""
    rng = np.random.default_rng(1)
    A, beta = rng.normal(size=(30, 8)), 1.0
    y = (
        A @ rng.normal(size=8) + 0.5 * rng.standard_t(2, size=30)
        if loss == "absolute"
        else np.sign(rng.normal(size=30))
    )
    w, r = cp.Variable(8), cp.Variable(30)
    fit = r == A @ w
    term = cp.sum(cp.abs(r - y)) if loss == "absolute" else cp.sum(cp.pos(1 - cp.multiply(y, r)))
    model = cp.Problem(cp.Minimize(term + beta * cp.norm(w)), [fit])
    optimum = model.solve(solver=cp.CLARABEL)
    margin = r.value - y if loss == "absolute" else y * r.value - 1
    naive = np.sign(margin) if loss == "absolute" else -y * (margin < 0)

    def gap(V: np.ndarray) -> float:
        """l*(v) is v y for |f - y|, and v y = -p for the hinge: both losses have the dual -<V, y> on their domain."""
        V = np.clip(V, -1, 1) if loss == "absolute" else -y * np.clip(-y * V, 0, 1)
        scale = min(1.0, beta / max(np.linalg.norm(A.T @ V), 1e-300))
        return float(1 + scale * V @ y / optimum)  # never negative: whatever V was, it is feasible now

    assert gap(naive) > 0.1
    assert min(gap(fit.dual_value), gap(-fit.dual_value)) < 1e-5


# --------------------------------------------------------------------------------------------------------------- PR


def test_pr_theorem_1_runs_over_tuples_of_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one pattern for all units of a sub-network the program is dearer than what two patterns reach."""
    X, y = (part.numpy() for part in data(4, 5, "alternating"))
    tuples = parallel_oracle.three_layer_optimum(X, y[:, 0], 0.01, 2)

    def same_pattern(units: list, width: int) -> list:
        every = combinations_with_replacement(units, width)
        return [chosen for chosen in every if all(np.array_equal(D, chosen[0][0]) for D, _ in chosen)]

    monkeypatch.setattr(parallel_oracle, "combinations_with_replacement", same_pattern)
    assert parallel_oracle.three_layer_optimum(X, y[:, 0], 0.01, 2) > 1.2 * tuples


def listed(X: torch.Tensor) -> int:
    """P_2-bar (2 P_1)^2 of PR (25) for m_1 = 2: the most patterns of [D_1 X, D_2 X], and all pairs with their signs."""
    first = all_patterns(X).active
    pairs = (torch.cat([a[:, None] * X, b[:, None] * X], 1) for a, b in combinations_with_replacement(first, 2))
    return max(len(all_patterns(pair)) for pair in pairs) * (2 * len(first)) ** 2


def cells(X: torch.Tensor) -> int:
    """How many patterns of both layers with signs m_1 = 2 units have, by the hyperplanes that bound them."""
    zero, count = torch.zeros_like(X), 0
    for sign in (1, -1):
        walls = torch.cat([torch.cat(pair, 1) for pair in ((X, zero), (zero, X), (X, sign * X))])
        found = all_patterns(walls)
        before = found.directions @ walls.T
        a, b = before[:, : len(X)], before[:, len(X) : 2 * len(X)]
        both = torch.cat([a > 0, b > 0, a.clamp(min=0) + sign * b.clamp(min=0) > 0], 1)
        count += 2 * len(torch.unique(both, dim=0))  # and the opposite signs
    return count


def test_pr_25_counts_more_than_it_prints_and_than_there_is() -> None:
    """m_1 = r = 2: from n = 4 to 8 what (25) multiplies grows faster than n^(m_1 r), what networks have slower."""
    rng = np.random.default_rng(0)
    few, many = (torch.from_numpy(rng.normal(size=(n, 2))) for n in (4, 8))
    assert listed(many) > 2**4 * listed(few)
    assert cells(many) < 2**3 * cells(few)
    assert cells(many) < min(listed(many), 4 * count_bound(3 * 8, 4))


def test_pr_25_misses_no_cell() -> None:
    """The patterns of random units are among those that hyperplanes bound."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(4, 2)))
    w = torch.from_numpy(rng.normal(size=(200_000, 2, 2)))
    on = torch.einsum("nd,kjd->kjn", X, w).clamp(min=0)
    signs = [(s, t) for s in (1, -1) for t in (1, -1)]
    seen = [torch.cat([on[:, 0] > 0, on[:, 1] > 0, s * on[:, 0] + t * on[:, 1] > 0], 1) for s, t in signs]
    drawn = sum(len(torch.unique(patterns, dim=0)) for patterns in seen)
    assert 0.95 * cells(X) <= drawn <= cells(X)


def test_pr_a_6_losses_are_not_subadditive() -> None:
    """L(a + b) <= L(a) + L(b) fails for |f - 1| at a = b = 10; L(a + b) <= L(b) + R |a| is what the proof needs."""
    a = b = 10.0
    assert abs(a + b - 1) > abs(a - 1) + abs(b - 1)
    points = np.random.default_rng(0).normal(scale=10, size=(1000, 2))
    assert np.all(np.abs(points.sum(1) - 1) <= np.abs(points[:, 1] - 1) + np.abs(points[:, 0]) + 1e-12)
    assert (a + b) ** 2 / 2 > b**2 / 2 + 1.0 * a  # squared loss has no such R


# ---------------------------------------------------------------------------------------------------------- the page


def rows() -> list[list[str]]:
    lines = (line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| "))
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return [[cell.strip() for cell in row] for row in cells if row[0].strip() != "where"]


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_every_correction_names_a_test_that_exists() -> None:
    """Or, where it is about an experiment, a row of docs/reproduction.md, whose claims are predicates."""
    assert len(rows()) > 40
    for row in rows():
        where, shown = row[0], row[-1]
        tests, experiments = re.findall(r"`(\w[\w/]*\.py)(?:::(\w+))?`", shown), re.findall(r"\bR\d+\b", shown)
        assert tests or experiments, f"{where} names no test"
        assert set(experiments) <= set(ROWS), where
        for file, name in tests:
            path = ROOT / "tests" / file
            assert path.is_file(), f"{where} names {file}, which is not there"
            assert not name or name in functions(path), f"{where}: {file} has no {name}"
            assert not name or name.startswith("test_"), f"{where}: {name} is no test"


def test_every_correction_of_this_file_is_on_the_page() -> None:
    own = {name for name in functions(Path(__file__)) if re.match(r"test_(bm|cp|pr)_", name)}
    assert own <= set(re.findall(r"test_corrections\.py::(\w+)`", PAGE.read_text(encoding="utf-8")))
