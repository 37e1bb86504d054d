import numpy as np
import pytest
import torch

from bidual.io.foreign import TwoLayerWeights, read_network
from helpers.foreign_tools import X, agrees, network

H, W = torch.ones(5, 3).double(), torch.ones(2, 5).double()


def test_forward_is_the_formula() -> None:
    h, a, o, b = (torch.randn(s, dtype=torch.float64) for s in ((5, 3), (5,), (2, 5), (2,)))
    weights = TwoLayerWeights(h, o, a, b)
    assert (weights.n_features, weights.n_neurons, weights.n_outputs) == (3, 5, 2)
    assert agrees(weights, lambda X: torch.clamp(X @ h.T + a, min=0) @ o.T + b)
    assert weights.forward(X.float()).dtype == torch.float64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((H, torch.ones(2, 6).double()), "the hidden layer has 5 neurons, but the output layer takes 6"),
        ((H, W, torch.ones(4).double()), r"hidden_bias must have shape \(5,\)"),
        ((H, W, None, torch.ones(2, 1).double()), r"output_bias must have shape \(2,\)"),
        ((H[0], W), "hidden must be a matrix"),
        ((H[:0], W[:, :0]), "hidden must be a matrix with at least one row"),
        ((H.float(), W), "hidden must be float64"),
        ((H, W * torch.nan), "output holds NaN or infinity"),
        ((H, W, torch.full((5,), torch.inf).double()), "hidden_bias holds NaN or infinity"),
    ],
)
def test_weights_that_do_not_fit(arguments: tuple[torch.Tensor, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TwoLayerWeights(*arguments)


def test_samples_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"X must have shape \(n, 3\), got \(4, 2\)"):
        TwoLayerWeights(H, W).forward(torch.zeros(4, 2))


def test_weights_are_copies_in_float64() -> None:
    module = network(dtype=torch.float32)
    weights = read_network(module)
    before = weights.hidden.clone()
    with torch.no_grad():
        module[0].weight.mul_(2)
    torch.testing.assert_close(weights.hidden, before, rtol=0, atol=0)
    assert TwoLayerWeights.of(np.ones((5, 3), dtype=np.float32), np.ones((2, 5))).hidden.dtype == torch.float64
    with pytest.raises(ValueError, match=r"must be floating point numbers, got torch\.int64"):
        TwoLayerWeights.of([[1, 2]], [[1]])


def test_one_door() -> None:
    weights = TwoLayerWeights(H, W)
    assert read_network(weights) is weights
    with pytest.raises(TypeError, match="cannot read a network from a dict; give a torch module"):
        read_network({"hidden": H})  # type: ignore[arg-type]
