import math

import numpy as np
import pytest
import torch

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.experiments import cp_figure_4
from bidual.papers.experiments.cp_figure_4 import ImageRow, Settings, blobs, noise
from bidual.problems.problem import ReluProblem
from bidual.training.copositive import relax
from bidual.training.copositive.relaxed import Compact

Y = blobs(12, side=6)


@pytest.fixture(scope="module")
def rows() -> list[ImageRow]:
    return cp_figure_4.run(Y, (0.3, 1.01), Settings(n_neurons=100, epochs=500, max_time=None))


def test_relaxation_is_below_every_network(rows: list[ImageRow]) -> None:
    assert len(rows) == 3
    for row in rows:
        assert row.lower_bound <= row.network
        assert row.lower_bound <= row.descent
        assert row.above(row.network) == pytest.approx(row.gap / (1 - row.gap), abs=1e-9)


def test_networks_are_close_to_the_relaxation(rows: list[ImageRow]) -> None:
    for row in rows:
        assert row.above(row.network) <= (1e-6 if row.multiple > 1 else 0.01)
        assert row.above(row.descent) <= 0.05


def test_closed_form_is_the_relaxation_from_the_second_singular_value_on(rows: list[ImageRow]) -> None:
    assert [math.isnan(row.closed_form) for row in rows] == [True, False, False]
    for row in rows[1:]:
        assert row.closed_form == pytest.approx(row.lower_bound, rel=1e-6)


def test_above_the_first_singular_value_the_network_is_zero(rows: list[ImageRow]) -> None:
    assert rows[-1].network == pytest.approx(0.5 * float(Y.square().sum()), rel=1e-9)


def test_the_optimum_depends_on_products_only() -> None:
    """Full size, reduced by hand, and with the identity in the place of X."""
    X, beta = noise(*Y.shape), 0.3 * float(torch.linalg.svdvals(Y)[1])
    torch.testing.assert_close(X @ X.T, torch.eye(12, dtype=X.dtype))
    full = ReluProblem(X, Datafit(Squared(), Y), beta)
    small = Compact.of(full).problem
    assert small.X.shape == small.datafit.targets.shape == (12, 12)
    plain = ReluProblem(torch.eye(12, dtype=X.dtype), small.datafit, beta)
    duals = [relax(problem, "spike_free").dual for problem in (full, small, plain)]
    assert duals == pytest.approx([duals[0]] * 3, rel=1e-6)


def test_targets_are_as_many_images_of_each_class() -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (8, 5, 5), dtype=np.uint8), np.repeat([4, 7], 4).astype(np.uint8)
    found = cp_figure_4.targets(images, labels, per_class=2)
    assert found.shape == (4, 25)
    known = {tuple(row) for row in (images.reshape(8, -1) / 255.0).tolist()}
    assert {tuple(row) for row in found.tolist()} <= known
    with pytest.raises(ValueError, match="class 4 has 4 images, fewer than 5"):
        cp_figure_4.targets(images, labels, per_class=5)
    with pytest.raises(ValueError, match="as many, got 8 and 7"):
        cp_figure_4.targets(images, labels[:7])


def test_table_and_figure(rows: list[ImageRow]) -> None:
    lines = cp_figure_4.table(rows).splitlines()
    assert len(lines) == 2 + 3
    assert {line.count("|") for line in lines} == {12}
    assert "does not apply" in lines[2]
    assert cp_figure_4.draw({"blobs": rows}).startswith(b"\x89PNG")
