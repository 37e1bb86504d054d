"""Stages of deep networks that are grown one by one: the bound of a stage against stages with the same gates."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator
from torch.nn import functional

from bidual.architectures.modules.layerwise import LayerwiseNetwork
from bidual.training.layerwise.certificates import certify_stage
from soundness.cases import BREAKDOWNS, Bound, Issued, labels
from soundness.extended import data_term, wide

_CLASSES = 3
_ROUNDING = 1e-12


def stage_case(rng: Generator) -> Iterator[Issued]:
    """Random stages on random images, single precision as networks have it; then a few steps downhill."""
    n, side, grid = int(rng.integers(2, 9)), 4, int(rng.choice([1, 2]))
    units, factors, gates = int(rng.choice([1, 2])), int(rng.integers(1, 3)), int(rng.integers(1, 4))
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    network = LayerwiseNetwork(1, _CLASSES, [gates], [factors], [units], [0], 3, grid)
    images = torch.randint(0, 256, (n, 1, side, side), generator=generator, dtype=torch.uint8)
    classes = torch.randint(0, _CLASSES, (n,), generator=generator)
    decay = float(10.0 ** rng.uniform(-4, 1))
    _draw(network, generator, float(10.0 ** rng.uniform(-2, 1)))
    told = labels(
        architecture=f"stage with {units} units",
        loss="softmax",
        gauge="nuclear",
        solver="none",
        dtype=torch.float32,
        scope="BLOCKS",
        data="images",
    )
    issued, duals = Issued(told), []
    try:
        for steps in (0, 30):
            _descend(network, images, classes, decay * n, steps)
            duals.append(_certified(issued, network, images, classes, decay))
        issued.bounds += [Bound("dual of a stage", min(issued.attained), np.longdouble(dual)) for dual in duals]
    except BREAKDOWNS as error:
        issued.refused = type(error).__name__
    yield issued


def _draw(network: LayerwiseNetwork, generator: torch.Generator, size: float) -> None:
    stage, output = network.stages.last, network.heads.last.output
    with torch.no_grad():
        for parameter in (*stage.gate.parameters(), *stage.hidden.parameters(), *output.parameters()):
            parameter.copy_(size * torch.randn(parameter.shape, generator=generator))
        stage.signs.copy_(torch.randint(0, 2, stage.signs.shape, generator=generator) * 2.0 - 1)
        stage.shift.fill_(127.0)
        stage.scale.fill_(0.02)


def _certified(
    issued: Issued, network: LayerwiseNetwork, images: torch.Tensor, classes: torch.Tensor, decay: float
) -> float:
    """The lower bound, which holds for all networks with these gates; the other claims are checked at once."""
    found = certify_stage(network, images, classes, decay)
    own = _objective(network, images, classes, found.beta)
    issued.attained.append(own)
    most = own * (1 + _ROUNDING)
    issued.bounds += [
        Bound("objective of a stage", most, np.longdouble(found.objective)),
        Bound("objective of a stage", found.objective * (1 + _ROUNDING), own),
        Bound("balanced stage", most, np.longdouble(found.balanced)),
    ]
    return found.dual


def _objective(network: LayerwiseNetwork, images: torch.Tensor, classes: torch.Tensor, beta: float) -> np.longdouble:
    """Losses and half of beta times the squares, from what the stage sees and what its gates say."""
    stage, head = network.stages.last, network.heads.last
    with torch.no_grad():
        x = stage.prepare(images.float())
        on = stage.activity(x).numpy()
        rows = functional.unfold(x.double(), 3, padding=1).mT.numpy()
    (n, places, _), side = rows.shape, x.shape[2]
    U, a, W, b = (wide(p.detach().double().numpy()) for p in (*stage.hidden.parameters(), *head.output.parameters()))
    seen = (wide(rows) @ U.reshape(len(U), -1).T + a).transpose(0, 2, 1)
    parts = seen.reshape(n, stage.factors, stage.units, stage.gates, places)
    maps = (parts * on.reshape(n, 1, stage.units, stage.gates, places)).sum(2).reshape(n, -1, side, side)
    P = _pooled(maps, head.grid) @ W.T + b
    squares = (U**2).sum() + (a**2).sum() + (W**2).sum()
    loss = data_term("softmax", 1.0, P, wide(np.eye(_CLASSES)[classes.numpy()]), wide(np.ones(n)))
    return loss + wide(beta) * squares / 2


def _pooled(maps: ndarray, grid: int) -> ndarray:
    """Averages over a grid that divides the map."""
    n, channels, side, _ = maps.shape
    window = side // grid
    return maps.reshape(n, channels, grid, window, grid, window).mean((3, 5)).reshape(n, -1)


def _descend(network: LayerwiseNetwork, images: torch.Tensor, classes: torch.Tensor, beta: float, steps: int) -> None:
    stage, output = network.stages.last, network.heads.last.output
    priced = [*stage.hidden.parameters(), output.weight]
    optimiser = torch.optim.Adam([*priced, output.bias], lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = functional.cross_entropy(network(images.float()), classes, reduction="sum")
        (loss + 0.5 * beta * sum(p.square().sum() for p in priced)).backward()
        optimiser.step()
