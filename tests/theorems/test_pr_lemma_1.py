"""PR Lemma 1: rescaled layers are the same function, and the path norm becomes the norm of the last layer."""

from itertools import pairwise

import pytest
import torch

from bidual.architectures.parallel import squared_paths
from bidual.papers.methods.path_norm import path_norm, rescaled

SHAPES = [(3, 4, 1), (3, 2, 3, 1), (2, 3, 2, 2, 1), (3, 2, 2, 4)]


def outputs(layers: list[torch.Tensor], X: torch.Tensor) -> torch.Tensor:
    for layer in layers[:-1]:
        X = torch.relu(X @ layer)
    return (X @ layers[-1]).sum(0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(5))
def test_function_and_norm_are_kept(shape: tuple[int, ...], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    layers = [torch.randn(3, a, b, generator=generator, dtype=torch.float64) for a, b in pairwise(shape)]
    layers[-2][0, :, 0] = 0.0  # a unit that no path reaches
    scaled = rescaled(layers)
    X = torch.randn(9, shape[0], generator=generator, dtype=torch.float64)
    torch.testing.assert_close(outputs(scaled, X), outputs(layers, X))
    assert float(path_norm(scaled)) == pytest.approx(float(path_norm(layers)), rel=1e-12)
    last = torch.linalg.vector_norm(scaled[-1], dim=(1, 2)).sum()
    assert float(last) == pytest.approx(float(path_norm(layers)), rel=1e-12)
    reached = squared_paths(scaled[:-1])
    assert reached[0, 0] == 0
    torch.testing.assert_close(reached[1:], torch.ones_like(reached[1:]))
