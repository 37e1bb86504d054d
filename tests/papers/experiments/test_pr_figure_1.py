import pytest
import torch

from bidual.papers.experiments import pr_figure_1
from bidual.papers.experiments.pr_figure_1 import Setting, outputs, run, solve


def test_without_a_constant_column_regions_are_cones_and_with_one_both_depths_fit() -> None:
    rows = {(row.model, row.bias): row for row in run()}
    assert all(row.gap <= 1e-6 for row in rows.values())
    assert rows["two_layer", False].loss > 10
    for model in ("weight_decay", "path"):
        assert rows[model, False].loss < 1e-3
        assert rows[model, False].spiral_accuracy < 0.6  # it fits the samples, and has learnt nothing
    for model in pr_figure_1.TITLES:
        assert rows[model, True].train_accuracy == 1.0  # two layers too: the contrast of PR Fig. 1 is not there
        assert rows[model, True].spiral_accuracy > 0.75
    assert pr_figure_1.draw(list(rows.values())).startswith(b"\x89PNG")
    text = pr_figure_1.table(list(rows.values()))
    assert text.count("\n") == 7
    assert "| three layers, path norm | yes | 0 |" in text


def test_a_network_without_a_constant_column_is_positively_homogeneous() -> None:
    setting = Setting(n=12, firsts=3, seconds=3)
    found = solve("path", False, 0, setting)
    X, _ = setting.spiral()
    assert torch.allclose(outputs(found.module, 3 * X), 3 * outputs(found.module, X))


def test_the_path_norm_is_the_cheaper_price_on_the_same_cells() -> None:
    setting = Setting(n=12, firsts=4, seconds=3, beta=1e-2)
    path, decay = (solve(model, True, 1, setting) for model in ("path", "weight_decay"))
    assert path.objective < decay.objective <= setting.width**0.5 * path.objective


def test_the_spiral_has_two_arms_and_no_two_samples_on_one_ray() -> None:
    X, y = Setting().spiral()
    assert X.shape == (30, 2)
    assert float(y.sum()) == 0
    unit = X / torch.linalg.vector_norm(X, dim=1, keepdim=True)
    cosine = unit @ unit.T - 2 * torch.eye(30, dtype=torch.float64)
    assert float(cosine.max()) < 1 - 1e-4
    with pytest.raises(ValueError, match="even number"):
        Setting(n=7).spiral()
