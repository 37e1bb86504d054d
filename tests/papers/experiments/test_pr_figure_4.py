import pytest
import torch

from bidual.losses import LOSSES
from bidual.losses.datafit import Datafit
from bidual.papers.experiments import pr_figure_4
from bidual.papers.experiments.pr_figure_4 import Figure4, make_data
from bidual.papers.methods.low_rank import truncated
from bidual.problems.parallel import ParallelProblem
from bidual.problems.solution import Limits
from bidual.training.parallel.plan import ParallelPlan


@pytest.fixture(scope="module")
def result() -> Figure4:
    return pr_figure_4.run(dimensions=(2, 4), seeds=(0,), losses=("squared", "logistic"), n=8)


def test_the_ratio_is_within_the_corrected_bound(result: Figure4) -> None:
    for row in result.ratios:
        assert row.gap <= 1e-4
        assert row.ratio >= 1
        assert (row.factor is None) == (row.loss == "squared")
        assert row.factor is None or row.ratio <= row.factor < row.printed
    assert max(row.ratio for row in result.ratios) > 1.1


def test_patterns_are_those_of_general_position(result: Figure4) -> None:
    """2 sum_{k<r} C(n-1, k) with n = 8: the rank-r part has fewer."""
    assert [(row.full, row.low) for row in result.patterns] == [(16, 2), (128, 16)]


def test_data_have_the_singular_values_of_the_paper() -> None:
    X, _ = make_data(6, 3)
    values = torch.linalg.svdvals(X)
    assert float(values[2]) > 1.5
    torch.testing.assert_close(values[3:], torch.ones(3).to(values))
    assert torch.linalg.matrix_rank(truncated(X, 3)) == 3


def test_one_unit_per_layer_is_a_two_layer_network() -> None:
    """The three-layer program with m_1 = 1 has the optimum that the figure takes from two-layer training."""
    X, y = make_data(2, 1, n=6)
    data = Datafit(LOSSES["huber"](), y)
    three = ParallelPlan(X, 1).train(ParallelProblem(X, data, pr_figure_4.BETA, 1), Limits(1e-5)).certificate
    two = pr_figure_4.optimum(X, data, 1e-5)
    assert three.primal == pytest.approx(two.primal, rel=3e-5)


def test_squared_loss_breaks_the_printed_bound() -> None:
    small, large = pr_figure_4.run_scaled(sizes=(1.0, 100.0))
    assert small.ratio < small.printed < large.ratio
    assert "| 100 |" in pr_figure_4.scaled_table([small, large])


def test_table_and_figure(result: Figure4) -> None:
    lines = pr_figure_4.table(result).splitlines()
    assert len(lines) == 2 + 4 + 1 + 2 + 2
    assert lines[2].startswith("| 2 | 1 | squared |")
    assert pr_figure_4.draw(result).startswith(b"\x89PNG")
