"""CP Fig. 2 and 6 on small synthetic images, and the closed form on the real ones."""

import math

import cvxpy as cp
import numpy as np
import pytest
import torch

from bidual.io.datasets import load_images
from bidual.papers.experiments import cp_figure_2, whitened_form
from bidual.papers.experiments.whitened_descent import SGD, Pixels, Samples
from bidual.papers.experiments.whitened_form import Row, Settings, theorem_2
from bidual.papers.experiments.whitened_images import Setting, Split, Whitened, split, split_of, without_constant
from helpers.places import SHARED

CIFAR = SHARED / "cifar-10-batches-bin"
FAST = SGD(n_neurons=60, epochs=400, step=3e-2, momentum=0.9)
SETTINGS = Settings(
    "tiny",
    timed=(FAST, SGD(n_neurons=60, epochs=100, step=3e-2, batch=8, seed=1)),
    others=(FAST, SGD(n_neurons=60, epochs=400, step=3e-2)),
)


def images(per_class: int, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noise around a picture of each class."""
    rng = np.random.default_rng(seed)
    mean = np.random.default_rng(9).integers(40, 200, (classes, 2, 4, 4))
    labels = np.repeat(np.arange(classes, dtype=np.uint8), per_class)
    noise = rng.integers(-40, 40, (len(labels), 2, 4, 4))
    return (mean[labels] + noise).astype(np.uint8), labels


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(*images(12), *images(20, seed=1), per_class=8)


@pytest.fixture(scope="module")
def rows(parts: Split) -> list[Row]:
    return whitened_form.measure([parts.whitened(setting) for setting in Setting], SETTINGS)


def test_split_is_balanced_and_normalised_by_all_images(parts: Split) -> None:
    assert parts.train.shape == (24, 32)
    assert parts.test.shape == (60, 32)
    assert np.bincount(parts.labels).tolist() == [8, 8, 8]
    everything = split(*images(12), *images(20, seed=1), per_class=12).train.reshape(36, 2, 16)
    np.testing.assert_allclose(everything.mean((0, 2)), 0, atol=1e-12)
    np.testing.assert_allclose(everything.std((0, 2)), 1)


def test_settings_are_what_they_say(parts: Split) -> None:
    corrected, uncentred, literal = (parts.whitened(setting) for setting in Setting)
    assert max(corrected.defect, uncentred.defect) < 1e-10
    assert literal.defect == pytest.approx(1)
    torch.testing.assert_close(literal.X.sum(0), torch.zeros(32, dtype=torch.float64))
    with pytest.raises(ValueError, match="constant column to drop, got UNCENTRED"):
        without_constant(uncentred)


def test_refusals(parts: Split) -> None:
    pixels, labels = images(12)
    with pytest.raises(ValueError, match="as many, got 36 and 35"):
        split(pixels, labels[:35], pixels, labels)
    with pytest.raises(ValueError, match="class 0 has 12 images, fewer than 13"):
        split(pixels, labels, pixels, labels, per_class=13)
    with pytest.raises(ValueError, match="every channel of the images must vary"):
        split(np.zeros_like(pixels), labels, pixels, labels, per_class=3)
    with pytest.raises(ValueError, match=r"X X\^T must be I or I - 1 1\^T / n, got a defect"):
        Samples.of(torch.eye(3) + 1, torch.eye(3))


def test_closed_forms_are_certified_and_no_run_goes_below(rows: list[Row]) -> None:
    for row in rows:
        assert row.gap <= 1e-9
        assert row.neurons == 3
        assert all(point.objective >= row.dual * (1 - 1e-9) for run in row.runs for point in run.points)
        assert row.best is not None
        assert row.above(row.best.lowest) <= (0.05 if row.setting is Setting.LITERAL else 1e-3)


def test_theorem_2_holds_where_the_rows_are_orthonormal_only(rows: list[Row]) -> None:
    """De-meaned data: the formula's number is not attained, its V costs more, and beta_k is beta / sqrt(1 - 1/3)."""
    corrected, uncentred, literal = rows
    by_hand = 3 * (math.sqrt(8) - 0.5)
    for row in (corrected, uncentred):
        assert row.optimum == pytest.approx(row.theorem_2, rel=1e-9) == pytest.approx(by_hand)
        assert row.svd.linear == pytest.approx(by_hand)
    decay = 1 / math.sqrt(1 - 1 / 3)
    assert literal.theorem_2 == pytest.approx(by_hand)
    assert literal.optimum == pytest.approx(3 * (decay * math.sqrt(8) - decay**2 / 2), rel=1e-9)
    assert literal.theorem_2 < 0.95 * literal.optimum
    assert min(literal.svd.linear, literal.svd.relu) > 1.05 * literal.optimum


def test_the_optimum_against_the_copositive_program() -> None:
    """CP (17) on X = I with three samples, where completely positive matrices are the doubly non-negative ones."""
    Y, beta = np.diag([1.0, 2.0, 0.3]), 0.4
    U = cp.Variable((3, 3), PSD=True)
    fit = sum(cp.matrix_frac(column, np.eye(3) + 2 * U) for column in Y.T) / 2
    value = cp.Problem(cp.Minimize(fit + beta**2 * cp.trace(U)), [U >= 0]).solve(solver=cp.CLARABEL)
    assert value == pytest.approx(theorem_2(torch.from_numpy(Y), beta), rel=1e-6)


@pytest.mark.parametrize("setting", list(Setting))
@pytest.mark.parametrize("batch", [None, 5])
def test_both_coordinates_have_the_same_iterates(parts: Split, setting: Setting, batch: int | None) -> None:
    data = parts.whitened(setting)
    sgd = SGD(n_neurons=10, epochs=30, step=2e-2, momentum=0.9, batch=batch)
    one, two = (
        sgd.run(where, data.one_hot, 0.7, data.accuracy).points
        for where in (Pixels(data.X, data.X_test), Samples.of(data.X, data.X_test))
    )
    assert [point.objective for point in one] == pytest.approx([point.objective for point in two], rel=1e-4)
    assert [point.score for point in one] == pytest.approx([point.score for point in two], abs=0.04)


def test_small_steps_never_wake_a_sample(parts: Split) -> None:
    """On X X^T = I a negative pre-activation only shrinks: without momentum patterns can lose samples, not win any."""
    data = parts.whitened(Setting.CORRECTED)
    samples = Samples.of(data.X, data.X_test)
    for momentum, wakes in ((0.0, False), (0.9, True)):
        sgd = SGD(n_neurons=20, step=2e-2, momentum=momentum)
        U, W = sgd._start(samples, data.one_hot, torch.Generator().manual_seed(0))
        state, asleep = (U, W, torch.zeros_like(U), torch.zeros_like(W)), U < 0
        for _ in range(200):
            sgd._step(samples, state, data.one_hot.float(), slice(None), 1.0)
        assert bool((U[asleep] > 0).any()) is wakes


def test_a_run_that_diverges_ends(parts: Split) -> None:
    data = parts.whitened(Setting.CORRECTED)
    done = SGD(n_neurons=10, epochs=50, step=5.0).run(Samples.of(data.X, data.X_test), data.one_hot, 1.0)
    assert done.points[-1].epoch < 50


def test_table_and_figure(rows: list[Row]) -> None:
    forms, runs = cp_figure_2.table(rows).split("\n\n")
    assert len(forms.splitlines()) == 2 + 3
    assert len(runs.splitlines()) == 2 + 12
    assert {line.count("|") for line in forms.splitlines()} == {11}
    assert {line.count("|") for line in runs.splitlines()} == {12}
    assert "tiny, n = 24" in forms
    assert cp_figure_2.draw(rows).startswith(b"\x89PNG")


@pytest.mark.skipif(not CIFAR.is_dir(), reason="needs the binary version of CIFAR-10 in ../shared/data")
def test_closed_form_on_real_images() -> None:
    parts = split_of(load_images("cifar-10", CIFAR.parent), per_class=10)
    small = Split(parts.train, parts.labels, parts.test[:500], parts.labels_test[:500])
    data: list[Whitened] = [small.whitened(setting) for setting in Setting]
    corrected, uncentred, literal = whitened_form.measure(data, Settings("none", (), ()))
    assert max(row.gap for row in (corrected, uncentred, literal)) <= 1e-9
    assert corrected.optimum == pytest.approx(10 * (math.sqrt(10) - 0.5)) == pytest.approx(uncentred.optimum)
    assert literal.optimum > 1.01 * corrected.optimum
    assert corrected.best is None
    assert corrected.times_faster == (math.inf, math.inf)
