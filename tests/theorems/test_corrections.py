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
from scipy.optimize import minimize, minimize_scalar

from bidual import ConvexCNNRegressor
from bidual.reproduction import ROWS
from oracles import parallel_oracle
from oracles.parallel_cases import data

ROOT = Path(__file__).parents[2]
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


def test_cp_algorithm_1_needs_a_bounded_output_direction() -> None:
    """Step 2(a) is linear in g: without |g| <= 1 its maximum is infinite; with it, the length of the residual seen."""
    rng = np.random.default_rng(0)
    seen = np.maximum(rng.normal(size=(5, 2)) @ np.array([0.6, 0.8]), 0) @ rng.normal(size=(5, 3))
    g = seen / np.linalg.norm(seen)
    assert g @ seen == pytest.approx(np.linalg.norm(seen))
    assert (10 * g) @ seen > 5 * np.linalg.norm(seen)
    assert all(other @ seen <= g @ seen for other in rng.normal(size=(200, 3)) if np.linalg.norm(other) <= 1)


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


def test_pr_8_adds_up_blocks() -> None:
    """X-tilde is 1_M^T kron X_s, a prediction per sample from all weights; I_M kron X_s has n M rows."""
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    added = np.kron(np.ones((1, 5)), X) @ Z.ravel()
    assert added == pytest.approx(sum(X @ z for z in Z))
    assert (np.kron(np.eye(5), X) @ Z.ravel()).shape == (20,)


def test_pr_theorem_1_runs_over_tuples_of_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one pattern for all units of a sub-network the program is dearer than what two patterns reach."""
    X, y = (part.numpy() for part in data(4, 5, "alternating"))
    tuples = parallel_oracle.three_layer_optimum(X, y[:, 0], 0.01, 2)

    def same_pattern(units: list, width: int) -> list:
        every = combinations_with_replacement(units, width)
        return [chosen for chosen in every if all(np.array_equal(D, chosen[0][0]) for D, _ in chosen)]

    monkeypatch.setattr(parallel_oracle, "combinations_with_replacement", same_pattern)
    assert parallel_oracle.three_layer_optimum(X, y[:, 0], 0.01, 2) > 1.2 * tuples


@pytest.mark.parametrize(("m", "r"), [(1, 2), (2, 3)])
def test_pr_25_has_twice_the_exponent(m: int, r: int) -> None:
    """The middle of (25), (e (n - 1))^(2 m r) up to constants, grows like n^(2 m r) and not like n^(m r)."""
    n = np.array([1e4, 1e6])
    logs = 2 * m * r * np.log(np.e * (n - 1))
    assert np.diff(logs)[0] / np.log(100) == pytest.approx(2 * m * r, rel=1e-4)


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
