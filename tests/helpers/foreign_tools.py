"""Networks that every test of this folder may use."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bidual.architectures.modules import ReluNetwork
from bidual.io.foreign import TwoLayerWeights

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def network(
    bias: bool = True, output_bias: bool = True, outputs: int = 2, dtype: torch.dtype = torch.float64
) -> nn.Sequential:
    """Linear(3, 5), ReLU, Linear(5, outputs) with weights from a generator of its own."""
    layers = nn.Linear(3, 5, bias=bias, dtype=dtype), nn.Linear(5, outputs, bias=output_bias, dtype=dtype)
    return randomise(nn.Sequential(layers[0], nn.ReLU(), layers[1]))


def randomise(module: nn.Sequential) -> nn.Sequential:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module.eval()


def agrees(weights: TwoLayerWeights, forward: Callable[[Tensor], Tensor], tolerance: float = 1e-12) -> bool:
    """Whether the weights predict what ``forward`` does, on samples whose hidden neurons are both on and off."""
    with torch.no_grad():
        expected = forward(X).to(torch.float64).reshape(len(X), -1)
    torch.testing.assert_close(weights.forward(X), expected, rtol=tolerance, atol=tolerance)
    return True


class Functional(nn.Module):
    """The usual way to write one by hand; ``act`` is what sits between the layers."""

    def __init__(self, act: object = F.relu) -> None:
        super().__init__()
        self.fc1, self.fc2, self.act = nn.Linear(3, 5).double(), nn.Linear(5, 2).double(), act

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))  # type: ignore[operator]


def own(outputs: int = 2) -> ReluNetwork:
    """A ReLU network as this package decodes them."""
    module = ReluNetwork(3, 5, outputs)
    source = network(outputs=outputs)
    for layer, values in ((module.hidden, source[0]), (module.output, source[2])):
        layer.load_state_dict(values.state_dict())
    return module
