import math
from pathlib import Path

import numpy as np
import pytest
import torch

from bidual.io.datasets import ImageData
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.experiments import pr_figure_7
from bidual.papers.experiments.pr_figure_7 import Spectrum, spectrum
from bidual.papers.methods.low_rank import guarantee
from bidual.papers.reproduction import Context, Scale
from bidual.problems.parallel import ParallelProblem
from bidual.problems.solution import Limits
from bidual.training.parallel.plan import ParallelPlan
from helpers.places import SHARED


def made_up(values: np.ndarray) -> Spectrum:
    return Spectrum("made up", "none", "cpu", len(values), len(values), values, 1.0)


def test_singular_values_are_those_of_the_pixels() -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (50, 1, 3, 4), dtype=np.uint8), rng.integers(0, 3, 50)
    images[..., 0] = images[..., 1]  # rank 9
    one = spectrum(images, labels, "x", "50 training", "cpu")
    X = images.reshape(50, 12) / 255
    assert (one.n, one.d, one.rank) == (50, 12, 9)
    np.testing.assert_allclose(one.sigma, np.linalg.svd(X)[1][:9], rtol=1e-10)
    assert one.steepest == pytest.approx(np.linalg.norm(np.eye(3)[labels].T @ X, 2))


def test_slices_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    images, labels = rng.integers(0, 256, (30, 7), dtype=np.uint8), rng.integers(0, 2, 30)
    whole = spectrum(images, labels, "x", "", "cpu")
    monkeypatch.setattr(pr_figure_7, "_SLICE", 4)
    np.testing.assert_array_equal(spectrum(images, labels, "x", "", "cpu").sigma, whole.sigma)


def test_an_exponential_and_a_power_law_are_told_apart() -> None:
    k = np.arange(1, 101)
    exponential, power = made_up(7 * 10 ** (-0.02 * k)).fits()
    assert exponential == pytest.approx((0.02, 0, 1), abs=1e-9)
    assert power.r2 < 0.9
    exponential, power = made_up(3.0 * k**-1.5).fits()
    assert power == pytest.approx((1.5, 0, 1), abs=1e-9)
    assert exponential.error > 0.2


def test_head_and_tail_meet_where_99_percent_are() -> None:
    k = np.arange(1, 2001)
    one = made_up(np.where(k <= 200, 1.0 / k, np.exp(-0.01 * (k - 200)) / 200))
    assert one.energy_rank(0.5) == 1
    k99 = one.energy_rank(0.99)
    energy = one.sigma**2
    assert energy[: k99 - 1].sum() < 0.99 * energy.sum() <= energy[:k99].sum()
    assert one.fits("head")[1].rate == pytest.approx(1)
    assert one.fits("tail")[0].r2 > one.fits("tail")[1].r2


def test_flat_and_short_spectra_have_no_fit() -> None:
    assert all(math.isnan(fit.rate) for fit in (*made_up(np.ones(9)).fits(), *made_up(np.ones(1)).fits("tail")))


@pytest.fixture(scope="module")
def tiny() -> tuple[Spectrum, torch.Tensor, torch.Tensor]:
    """Six samples with three pixels, in two classes."""
    rng = np.random.default_rng(3)
    images, labels = rng.integers(0, 256, (6, 3), dtype=np.uint8), np.array([0, 1, 0, 1, 1, 0])
    return spectrum(images, labels, "x", "", "cpu"), torch.from_numpy(images / 255.0), torch.eye(2).double()[labels]


@pytest.mark.parametrize("width", [1, 2])
def test_the_factor_is_the_corrected_theorem_2(tiny: tuple[Spectrum, torch.Tensor, torch.Tensor], width: int) -> None:
    one, X, Y = tiny
    for rank, fraction in ((1, 0.1), (2, 0.3), (3, 0.1)):
        beta = fraction * math.sqrt(width) * one.steepest
        known = guarantee(ParallelProblem(X, Datafit(Squared(), Y), beta, width), rank)
        assert one.factor(rank, fraction) == pytest.approx(known.factor)


def test_steepest_is_beta_max(tiny: tuple[Spectrum, torch.Tensor, torch.Tensor]) -> None:
    one, X, Y = tiny
    for multiple in (0.97, 1.001):
        problem = ParallelProblem(X, Datafit(Squared(), Y), multiple * one.steepest, 1)
        certificate = ParallelPlan(X, 1).train(problem, Limits(1e-6)).certificate
        zero = 0.5 * float(Y.square().sum())
        assert (certificate.primal < zero - 1e-6) == (multiple < 1)
        assert certificate.dual >= min(multiple, 1) * zero - 1e-5  # concave in beta


def test_ranks_of_the_guarantee() -> None:
    one = made_up(10 ** (-0.1 * np.arange(100)))
    rank = one.rank_within(1.1, 0.1)
    assert one.factor(rank, 0.1) <= 1.1 < one.factor(rank - 1, 0.1)
    rank = one.rank_vacuous(0.1)
    assert one.factor(rank + 1, 0.1) < 10 <= one.factor(rank, 0.1)
    assert one.factor(100, 0.1) == 1


def images_of(self: Context, name: str, part: str) -> ImageData:
    """Fashion-MNIST with training images, MNIST without."""
    if name == "mnist" and part == "train":
        raise FileNotFoundError("no training images")
    rng = np.random.default_rng(5)
    full = rng.integers(0, 256, (12_000, 1, 2, 5), dtype=np.uint8), rng.integers(0, 10, 12_000)
    empty = full[0][:0], full[1][:0]
    return ImageData(
        name, *(full if part == "train" else empty), *(empty if part == "train" else full), tuple("0123456789")
    )


@pytest.mark.parametrize(("configuration", "count"), [("cpu", "10,000"), ("paper", "12,000")])
def test_scales(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, configuration: Scale, count: str) -> None:
    monkeypatch.setattr(Context, "images", images_of)
    spectra = pr_figure_7.run(configuration, Context(tmp_path), ("mnist", "fashion-mnist"))
    assert [one.images for one in spectra] == [f"{count} test", f"{count} training"]
    assert {one.configuration for one in spectra} == {configuration}
    text = pr_figure_7.table(spectra)
    assert f"| MNIST | {configuration} | {count} test | 10 | 10 |" in text
    assert len(text.splitlines()) == 3 * 2 + 2 + 2 * (1 + 3 + 2)
    assert pr_figure_7.draw(spectra).startswith(b"\x89PNG")


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="must not be all black"):
        spectrum(np.zeros((3, 4), np.uint8), np.zeros(3, np.int64), "x", "", "cpu")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the official files are not in ../shared/data")
def test_mnist_decays_like_a_power_first(tmp_path: Path) -> None:
    (one,) = pr_figure_7.run("cpu", Context(tmp_path, SHARED), ("mnist",))
    exponential, power = one.fits("head")
    assert one.rank == 661 or "training" in one.images
    assert power.error < 0.1 < exponential.error
