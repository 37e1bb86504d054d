"""An ordinary ReLU CNN of the same depth and width, trained from end to end, to stand beside a layerwise network."""

import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from bidual.architectures.modules.base import zeroed
from bidual.architectures.modules.layerwise import Head
from bidual.training.layerwise.checkpoint import Settings
from bidual.training.layerwise.inputs import Moves, as_input


class PlainCNN(nn.Module):
    """Standardised pixels, and for every stage: downsampling where the layerwise network has it, convolution, ReLU."""

    def __init__(self, channels: int, n_outputs: int, settings: Settings, generator: torch.Generator) -> None:
        super().__init__()
        self.downsample, self.layers = settings.downsample, nn.ModuleList()
        width = settings.gates * settings.factors
        self.shift: Tensor
        self.scale: Tensor
        self.register_buffer("shift", torch.zeros(channels, 1, 1))
        self.register_buffer("scale", torch.ones(channels, 1, 1))
        for down in settings.downsample:
            seen = 4 * channels if down else channels
            layer = zeroed(nn.Conv2d, seen, width, settings.kernel, padding=settings.kernel // 2, dtype=torch.float32)
            nn.init.kaiming_normal_(layer.weight, generator=generator)
            self.layers.append(layer)
            channels = width
        self.head = Head(width, settings.grid, n_outputs)
        nn.init.normal_(self.head.output.weight, std=self.head.output.in_features**-0.5, generator=generator)

    def standardise(self, images: Tensor) -> None:
        deviation, mean = torch.std_mean(images.double(), dim=(0, 2, 3))
        self.shift.copy_(mean[:, None, None])
        self.scale.copy_(1 / deviation[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        x = ((x - self.shift) * self.scale).contiguous(memory_format=torch.channels_last)
        for down, layer in zip(self.downsample, self.layers, strict=True):
            x = torch.relu(layer(functional.pixel_unshuffle(x, 2) if down else x))
        return self.head(x)


@dataclass(frozen=True, eq=False)
class EndToEnd:
    """A trained network, and its seconds, epochs and mean loss of the last epoch."""

    network: PlainCNN
    seconds: float
    epochs: int
    loss: float


def train_end_to_end(
    settings: Settings,
    images: Tensor,
    labels: Tensor,
    n_classes: int,
    seconds: float,
    rate: float = 0.05,
    device: str = "cpu",
) -> EndToEnd:
    """SGD with the momentum, weight decay, batches and augmentation of the stages, for a given time.

    The learning rate falls by ``drop`` at three and six tenths and nine tenths of the time, as that of a stage does.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    network = PlainCNN(images.shape[1], n_classes, settings, generator).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.standardise(images[:5000])
    network.to(device)
    optimiser = torch.optim.SGD(
        network.parameters(), lr=rate, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    began, epochs, loss = time.perf_counter(), 0, float("nan")
    while time.perf_counter() - began < seconds:
        losses = []
        for rows in torch.randperm(len(images), generator=generator).split(settings.batch_size):
            spent = (time.perf_counter() - began) / seconds
            for group in optimiser.param_groups:
                group["lr"] = rate * settings.drop ** min(int(spent / 0.3), 3)
            losses.append(_step(network, optimiser, images[rows], labels[rows], settings, generator))
            if spent >= 1:
                break
        epochs, loss = epochs + 1, float(torch.stack(losses).mean())
    return EndToEnd(network, time.perf_counter() - began, epochs, loss)


def _step(
    network: PlainCNN,
    optimiser: torch.optim.SGD,
    images: Tensor,
    labels: Tensor,
    settings: Settings,
    generator: torch.Generator,
) -> Tensor:
    device = network.shift.device
    x = Moves.drawn(len(images), settings.crop, settings.flip, generator)(as_input(images, device))
    loss = functional.cross_entropy(network(x), labels.to(device))
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()
    return loss.detach()
