"""CP Fig. 5 on small synthetic images: linear and ReLU networks, their optima and bounds."""

import math

import cvxpy as cp
import numpy as np
import pytest
import torch

from bidual.papers.experiments import cp_figure_5
from bidual.papers.experiments.cp_figure_5 import Row, Settings
from bidual.papers.experiments.generated_labels import Task, labelled, linear_optimum, relu_certificate
from bidual.papers.experiments.whitened_descent import SGD
from bidual.papers.experiments.whitened_images import Setting, Whitened, split
from bidual.training.copositive import relax

BETAS = (0.01, 0.1, 3.0)
SETTINGS = Settings(
    "tiny",
    BETAS,
    hidden=50,
    sgd=SGD(60, 100, 1e-2, 0.95, records=1),
    descents=(SGD(60, 1500, 0.3, 0.95, size=0.3, records=1),),
    relaxation=True,
    max_time=None,
)


def whitened(setting: Setting) -> Whitened:
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(2, dtype=np.uint8), 6)
    pixels, others = rng.integers(0, 256, (2, 12, 1, 4, 4), dtype=np.uint8)
    return split(pixels, labels, others, labels, per_class=6).whitened(setting)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return cp_figure_5.run([whitened(Setting.CORRECTED), whitened(Setting.LITERAL)], SETTINGS)


def small(setting: Setting = Setting.CORRECTED) -> Task:
    return labelled(whitened(setting), hidden=50, outputs=3)


def test_labels_are_those_of_one_network() -> None:
    task = small()
    doubled = labelled(Whitened(Setting.CORRECTED, *(2 * part for part in _parts(task.data))), hidden=50, outputs=3)
    torch.testing.assert_close(doubled.Y, 2 * task.Y)
    torch.testing.assert_close(doubled.Y_test, 2 * task.Y_test)


def _parts(data: Whitened) -> tuple[torch.Tensor, ...]:
    return data.X, data.labels, data.X_test, data.labels_test


@pytest.mark.parametrize("setting", list(Setting))
def test_linear_optimum_against_cvxpy(setting: Setting) -> None:
    task, beta = small(setting), 0.05
    fit, certificate = linear_optimum(task, beta)
    V = cp.Variable((task.data.X.shape[1], 3))
    value = 0.5 * cp.sum_squares(task.data.X.numpy() @ V - task.Y.numpy()) + beta * cp.normNuc(V)
    assert fit.objective == pytest.approx(cp.Problem(cp.Minimize(value)).solve(solver=cp.CLARABEL), rel=1e-5)
    assert certificate.relative_gap <= 1e-9
    assert fit.test == pytest.approx(task.test_loss(task.data.X_test @ torch.from_numpy(V.value)), rel=1e-2)


def test_every_relu_network_has_a_linear_twin_that_costs_no_more() -> None:
    X = whitened(Setting.CORRECTED).X
    u = torch.randn(500, X.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    hidden = (X @ u.T).clamp(min=0)
    twins = X.T @ hidden
    torch.testing.assert_close(X @ twins, hidden)
    assert bool((torch.linalg.vector_norm(twins, dim=0) <= torch.linalg.vector_norm(u, dim=1)).all())
    literal = whitened(Setting.LITERAL).X
    behind = (literal @ u[:, :-1].T).clamp(min=0)
    assert float((literal @ (literal.T @ behind) - behind).abs().max()) > 0.01


def test_the_bound_is_the_linear_optimum_and_below_the_relaxation() -> None:
    """On X X^T = I; CP (20) is the better bound, and descent is above both."""
    task, beta = small(), 0.05
    neurons = task.Y.T @ task.data.X
    certificate = relu_certificate(task, beta, neurons, torch.eye(3, dtype=torch.float64))
    assert certificate.dual == pytest.approx(linear_optimum(task, beta)[0].objective, rel=1e-6)
    assert certificate.dual <= relax(task.relu(beta), "spike_free").dual * (1 + 1e-7)


def test_linear_is_no_lower_bound_on_demeaned_data(rows: list[Row]) -> None:
    """There a ReLU network can be better than every linear one; the certified bound stays below it."""
    literal = [row for row in rows if row.setting is Setting.LITERAL]
    assert any(row.relu.objective < 0.99 * row.linear.objective for row in literal)
    assert all(row.lower_bound <= row.relu.objective for row in literal)


def test_optima_are_below_every_run(rows: list[Row]) -> None:
    for row in rows:
        assert row.linear_gap <= 1e-9
        assert row.linear.objective <= row.linear_sgd.objective * (1 + 1e-9)
        assert row.lower_bound <= min(row.relu.objective, row.relu_sgd.objective) * (1 + 1e-9)
        if row.setting is Setting.CORRECTED:
            assert row.linear.objective <= row.lower_bound * (1 + 1e-7)
            assert row.gap <= 0.01
            assert math.isnan(row.theorem_2) or row.theorem_2 == pytest.approx(row.relu.objective, rel=1e-3)


def test_large_beta_leaves_the_zero_network(rows: list[Row]) -> None:
    for row in rows[len(BETAS) - 1 :: len(BETAS)]:
        assert row.beta == 3
        assert row.linear.objective == pytest.approx(row.zero.objective)
        assert row.linear.test == row.zero.test
        assert row.relu.objective == pytest.approx(row.zero.objective)
        assert row.lower_bound == pytest.approx(row.zero.objective)


def test_table_and_figure(rows: list[Row]) -> None:
    lines = cp_figure_5.table(rows).splitlines()
    assert len(lines) == 2 + 2 * len(BETAS)
    assert {line.count("|") for line in lines} == {13}
    assert "tiny, n = 12" in lines[2]
    assert cp_figure_5.draw(rows).startswith(b"\x89PNG")
