from dataclasses import replace

import numpy as np
import pytest
import torch

from bidual.architectures import GatedParallel
from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.io.datasets import ImageData, load_images
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.experiments import image_panels, pr_figure_5
from bidual.papers.experiments.image_race import NetworkModel, PenaltyModel, Race, Samples, Watch, stepper
from bidual.papers.experiments.pr_figure_5 import CONFIGS, Result
from bidual.papers.experiments.race_results import TITLES, Config, Panel
from bidual.papers.methods.penalty import PenaltyForm
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto
from helpers.places import SHARED

DATA = SHARED
TINY = Config("tiny", 3, 4, 60, 20, 60.0, validation=20, tuning_seconds=0.02, decoded=True, certified=30, max_epochs=40)


def samples(n: int = 14, d: int = 5, c: int = 3) -> Samples:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return Samples.of(X, torch.randint(c, (n,), generator=generator), c)


def model(data: Samples, beta: float = 0.01, lam: float = 0.3, scale: float = 1.0) -> PenaltyModel:
    generator = torch.Generator().manual_seed(1)
    found = PenaltyModel.start(SubNetworkGates.sample(data.X.shape[1], 3, 4, generator), data, beta, lam)
    with torch.no_grad():
        found.both.copy_(scale * torch.randn(found.both.shape, generator=generator, dtype=torch.float64))
    return found


def form(of: PenaltyModel) -> PenaltyForm:
    """The same point in the project's own, differentiable statement of (11)."""
    found = PenaltyForm(of.cells, Squared(), len(of.data) * of.beta, of.lam, of.data.Y.shape[1])
    K, m = of.cells.signs.shape
    with torch.no_grad():
        found.both.copy_(of.both.unflatten(1, (2, K, -1, m)).permute(1, 2, 4, 0, 3))
    return found


def images(name: str = "blobs", n: int = 90) -> ImageData:
    """Three classes with a mean image each."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=2 * n)
    means = rng.integers(40, 200, size=(3, 1, 4, 4))
    pixels = np.clip(means[labels] + rng.normal(0, 40, size=(2 * n, 1, 4, 4)), 0, 255).astype(np.uint8)
    return ImageData(name, pixels[:n], labels[:n], pixels[n:], labels[n:], ("a", "b", "c"))


@pytest.fixture(scope="module")
def panel() -> Panel:
    return image_panels.race_on(images(), TINY)


@pytest.mark.parametrize("lam", [0.0, 0.3])
def test_the_gradient_by_hand_is_that_of_the_penalty_form(lam: float) -> None:
    data = samples()
    mine, rows = model(data, lam=lam), torch.tensor([2, 7, 3, 11, 0])
    theirs = form(mine)
    mine.slope(rows)
    (theirs.objective(data.X[rows], data.Y[rows], len(rows) / len(data)) / len(data)).backward()
    assert mine.both.grad is not None
    assert theirs.both.grad is not None
    expected = theirs.both.grad.permute(3, 0, 1, 4, 2).flatten(1)
    torch.testing.assert_close(mine.both.grad, expected, rtol=1e-10, atol=1e-12)


def test_objective_and_outputs_are_those_of_the_penalty_form() -> None:
    data, other = samples(), torch.randn(6, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    mine = model(data)
    theirs = form(mine)
    assert mine.objective() == pytest.approx(theirs.value(data.X, data.Y) / len(data), rel=1e-12)
    torch.testing.assert_close(mine.outputs(other), theirs(other))
    torch.testing.assert_close(mine.lifted, theirs.lifted)


def test_a_lifted_variable_is_put_back_where_it_was_taken() -> None:
    mine = model(samples())
    Z = mine.lifted
    mine.put(Z)
    torch.testing.assert_close(mine.lifted, Z)
    assert not bool(mine.both.view(5, 2, -1)[:, 1].any())


@pytest.mark.parametrize("decay", [False, True])
def test_the_gradient_of_a_network_is_that_of_its_objective(decay: bool) -> None:
    data = samples()
    network = NetworkModel.start(data, 6, 4, 0.05, torch.Generator().manual_seed(0), decay)
    network.slope(torch.arange(len(data)))
    value = Squared().value(network.outputs(data.X), data.Y).mean() + network.beta * network._price()
    slopes = torch.autograd.grad(value, network.layers)
    assert network.objective() == pytest.approx(float(value.detach()), rel=1e-12)
    for layer, slope in zip(network.layers, slopes, strict=True):
        torch.testing.assert_close(layer.grad, slope, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("name", "rate"), [("sgd", 0.02), ("adam", 0.02), ("adagrad", 0.1), ("adadelta", 0.3)])
def test_no_optimiser_takes_the_penalty_form_below_its_certified_bound(name: str, rate: float) -> None:
    data = samples(40)
    mine = model(data, beta=0.05, lam=1e-5, scale=0.0)
    family = GatedParallel(mine.cells)
    problem = Problem(family.lift(data.X, 3), Datafit(Squared(), data.Y), family.gauge(), len(data) * mine.beta)
    dual = solve_auto(problem, Limits(1e-8)).certificate.dual / len(data)
    race, optimiser = Race(40, Watch("wall", torch.device("cpu")), 400), stepper(name, mine.parameters, rate, 0.9)
    values = race.run(mine, optimiser, [1e-9, 600.0], lambda *_: mine.objective(), torch.Generator().manual_seed(0))
    assert dual <= min(values)
    assert values[-1] <= 1.2 * dual  # so near that a bound that is too high by a fifth would show


def test_every_method_lowers_its_objective(panel: Panel) -> None:
    assert [curve.method for curve in panel.curves] == list(TITLES)
    for curve in panel.curves:
        assert curve.points[-1].objective < curve.points[0].objective
        assert curve.points[-1].epochs == pytest.approx(40)
        assert len(curve.tried) == len(image_panels.GRID)
        assert max(curve.tried, key=lambda pair: pair[1])[0] == curve.rate


def test_the_certified_bound_is_below_descent_and_the_exact_point(panel: Panel) -> None:
    found = panel.certified
    assert found is not None
    assert found.n == 30
    assert 0 < found.dual <= found.gated <= found.exact
    assert found.dual <= found.descent
    assert 1 - found.dual / found.gated <= 1e-2


def test_the_decoded_network_agrees_on_training_images_and_costs_more(panel: Panel) -> None:
    found = panel.decoded
    assert found is not None
    assert found.train == pytest.approx(found.gated_train)
    assert found.gated_test == panel.curves[0].points[-1].accuracy
    assert found.growth > 1
    assert 0 < found.violation < 1


def test_learning_rates_are_the_papers_without_validation_images() -> None:
    config = replace(TINY, validation=0, decoded=False, certified=0, max_epochs=2)
    panel = image_panels.race_on(images("cifar-10"), config)
    assert {curve.method: curve.rate for curve in panel.curves} == image_panels.RATES["cifar-10"]
    assert panel.curves[0].optimiser == "sgd"
    assert panel.decoded is None
    assert panel.certified is None


def test_the_same_seed_gives_the_same_ends() -> None:
    config = replace(TINY, validation=0, decoded=False, certified=0, max_epochs=3, clock="processor")
    panels = [image_panels.race_on(images("fashion-mnist"), config, seed=seed) for seed in (5, 5, 6)]
    ends = [[curve.points[-1].objective for curve in panel.curves] for panel in panels]
    assert ends[0] == ends[1] != ends[2]


def test_training_and_validation_images_are_apart_and_scaled_by_the_former() -> None:
    train, validation, test = image_panels.split(images(), TINY)
    assert (len(train), len(validation), len(test)) == (60, 20, 90)
    assert abs(float(train.X.mean())) < 1e-5
    assert float(train.X.std()) == pytest.approx(1, abs=1e-2)
    assert float(torch.cdist(train.X, validation.X).min()) > 0


def test_figure_and_table_say_what_ran(panel: Panel) -> None:
    result = Result(TINY, "cpu", (panel, panel))
    text = pr_figure_5.table(result)
    assert "`tiny` on cpu: K = 3, m_1 = 4" in text
    assert all(text.count(f"| {title} |") == 2 for title in TITLES.values())
    assert text.count("Decoded ReLU network") == text.count("(certified)") == 2
    assert pr_figure_5.draw(result).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"n_networks": 0}, "n_networks must be positive, got 0"),
        ({"beta": float("nan")}, "beta must be positive, got nan"),
        ({"images": 0}, "images must be at least 1, got 0"),
        ({"lam": -1.0}, "lam must not be negative, got -1.0"),
        ({"tuning_seconds": 0.0}, "tuning_seconds must be positive, got 0.0"),
        ({"clock": "sun"}, "clock must be .* got 'sun'"),
    ],
)
def test_bad_configurations_are_refused(changes: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        replace(TINY, **changes)


def test_what_cannot_be_run_is_refused_before_any_work() -> None:
    with pytest.raises(ValueError, match="processor's clock does not see device 'cuda'"):
        image_panels.race_on(images(), CONFIGS["cpu"], device="cuda")
    with pytest.raises(ValueError, match="blobs has 90 training images, fewer than 80 training and 20 validation"):
        image_panels.race_on(images(), replace(TINY, images=80))
    with pytest.raises(ValueError, match="no learning rates for 'blobs'"):
        image_panels.race_on(images(), replace(TINY, validation=0))


def test_the_configurations_are_the_papers_and_a_smaller_one() -> None:
    paper, small = CONFIGS["paper"], CONFIGS["cpu"]
    assert (paper.n_networks, paper.width, paper.images, paper.batch_size) == (40, 100, None, 1000)
    assert (paper.beta, paper.lam, paper.momentum) == (small.beta, small.lam, small.momentum) == (1e-3, 1e-5, 0.9)


@pytest.mark.skipif(not (DATA / "fashion-mnist").is_dir(), reason="no Fashion-MNIST in ../shared/data")
def test_a_second_on_real_images_beats_guessing() -> None:
    small = Config("small", 4, 5, 1000, 200, 60.0, validation=200, tuning_seconds=0.05, max_epochs=5)
    panel = image_panels.race_on(load_images("fashion-mnist", DATA), small)
    assert panel.d == 784
    assert panel.curves[0].points[-1].accuracy > 0.5
