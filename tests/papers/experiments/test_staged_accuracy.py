import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from bidual.io.datasets import ImageData
from bidual.papers.experiments import bm_figure_1, pr_figure_6
from bidual.papers.experiments.end_to_end import PlainCNN, train_end_to_end
from bidual.papers.experiments.staged_accuracy import Plan, accuracy, draw, grow, keep, kept, table
from bidual.training.layerwise import Settings

SMALL = Settings(gates=6, downsample=(False, True), epochs=6, batch_size=16, rates=(0.1, 0.1), crop=0, flip=False)


def bright_halves(n: int = 120) -> ImageData:
    """Noise whose left or right half is brighter."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 120, (2 * n, 1, 8, 8), dtype=np.uint8)
    labels = np.arange(2 * n) % 2
    images[labels == 0, :, :, :4] += 100
    images[labels == 1, :, :, 4:] += 100
    return ImageData("halves", images[:n], labels[:n], images[n:], labels[n:], ("left", "right"))


def test_every_stage_is_measured_and_rows_come_back(tmp_path) -> None:
    data = bright_halves()
    row = grow(Plan(SMALL, images=100, end_to_end=True, certified=20), data, "cpu")
    assert row.images == 100
    assert len(row.test) == len(row.train) == len(row.gaps) == 2
    assert min(row.test) > 0.9
    assert row.end_to_end > 0.9
    assert all(0 <= gap <= 1 for gap in row.gaps)
    keep([row], tmp_path / "rows.json")
    assert kept((tmp_path / "rows.json").read_text()) == [row]
    text = table([row, replace(row, end_to_end=math.nan, gaps=())])
    assert "P = 6, m = 1" in text
    assert f"{row.test[0]:.4f} | {row.test[1]:.4f}" in text
    assert draw({"halves": [row]}).startswith(b"\x89PNG")


def test_accuracy_counts_what_is_right() -> None:
    data = bright_halves()

    class Left(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([torch.ones(len(x)), torch.zeros(len(x))], 1)

    assert accuracy(Left(), data) == pytest.approx(0.5)


def test_rival_has_the_same_depth_and_width_and_leaves_the_global_generator_alone() -> None:
    state = torch.random.get_rng_state()
    network = PlainCNN(3, 5, SMALL, torch.Generator().manual_seed(0))
    assert [layer.out_channels for layer in network.layers] == [6, 6]
    assert [layer.in_channels for layer in network.layers] == [3, 24]
    assert network.head.output.in_features == 24
    data = bright_halves(20)
    done = train_end_to_end(SMALL, torch.tensor(data.train_images), torch.tensor(data.train_labels), 2, 0.05)
    assert done.epochs >= 1
    assert math.isfinite(done.loss)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("module", [bm_figure_1, pr_figure_6])
def test_configurations(module) -> None:
    for configuration in ("paper", "cpu"):
        for name in module.SETS:
            assert all(plan.settings.n_stages >= 3 for plan in module.plans(configuration, name))
    assert module.plans("paper", "cifar-10")[0].settings.n_stages == 5


def test_papers_own_settings() -> None:
    """BM C.2: 256 gates, 50 epochs, drop by 0.2 every 15, batch 128, momentum 0.9, weight decay 5e-4."""
    for plan, m in zip(bm_figure_1.plans("paper", "cifar-10"), (1, 2, 4), strict=True):
        chosen = plan.settings
        assert (chosen.gates, chosen.factors, chosen.epochs, chosen.batch_size) == (256, m, 50, 128)
        assert (chosen.momentum, chosen.weight_decay, chosen.drop, chosen.drop_every) == (0.9, 5e-4, 0.2, 15)
        assert chosen.rates == (1e-1, 1e-2, 1e-3, 1e-2, 1e-2)
    assert all(plan.settings.units == 3 for plan in pr_figure_6.plans("cpu", "cifar-10")[:1])
