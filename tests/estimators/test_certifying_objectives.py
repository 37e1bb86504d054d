"""Objectives of given networks in exact fractions: the computed ones are not below them, and hardly above."""

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bidual.architectures.modules import ParallelNetwork, ReluAttentionNetwork
from bidual.estimators.certifying.reading import given_network
from bidual.losses import Squared
from bidual.losses.datafit import Datafit

BETA = 2.0**-9
SCALES = [(1.0, 1.0), (2.0**-100, 2.0**100), (2.0**-500, 2.0**450), (2.0**12, 2.0**-9)]


def exact(tensor: Any) -> np.ndarray:
    """The same numbers as fractions."""
    array = np.asarray(tensor.detach() if isinstance(tensor, torch.Tensor) else tensor, dtype=np.float64)
    return np.vectorize(Fraction, otypes=[object])(array)


def relu(values: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda value: max(value, Fraction(0)), otypes=[object])(values)


def squares(*weights: Any) -> Fraction:
    return sum((value**2 for weight in weights for value in exact(weight).ravel()), Fraction(0))


def bounds(module: nn.Module, X: np.ndarray, y: np.ndarray) -> tuple[Fraction, Fraction]:
    """What `certify` says of the network before any search."""
    given = given_network(module)
    data = Datafit(Squared(), torch.tensor(y)[:, None], None, given.output_bias is not None)
    found = given.objective(given.problem(given.samples(X), data, BETA))
    return Fraction(found.least), Fraction(found.most)


def fill(module: nn.Module, parts: list[nn.Parameter], scales: tuple[float, ...], seed: int) -> None:
    """Random weights in pairs whose outputs nearly cancel, scaled."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in module.parameters():
            part.copy_(torch.randn(part.shape, generator=generator, dtype=torch.float64))
        for part, scale in zip(parts, scales, strict=True):
            part.mul_(scale)


def check(found: tuple[Fraction, Fraction], real: Fraction) -> None:
    least, most = found
    assert least <= real <= most
    assert most <= real * (1 + Fraction(1, 10**10))


@pytest.mark.parametrize("scales", SCALES)
def test_a_cnn(scales: tuple[float, float]) -> None:
    for seed in range(5):
        module = nn.Sequential(nn.Conv1d(1, 4, 2), nn.ReLU(), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(8, 1)).double()
        conv, last = module[0], module[4]
        fill(module, [conv.weight, conv.bias, last.weight], (scales[0], scales[0], scales[1]), seed)
        with torch.no_grad():
            conv.weight[2:], conv.bias[2:] = conv.weight[:2].clone(), conv.bias[:2].clone()
            last.weight[:, 4:] = -last.weight[:, :4] * (1 + 1e-9)
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((3, 1, 5)), rng.standard_normal(3)
        x, U, b, V = exact(X)[:, 0], exact(conv.weight)[:, 0], exact(conv.bias), exact(last.weight)[0].reshape(4, 2)
        hidden = relu(np.stack([x[:, k : k + 2] @ U.T + b for k in range(4)], 2))
        pooled = (hidden[:, :, ::2] + hidden[:, :, 1::2]) / 2
        P = (pooled * V).sum((1, 2)) + exact(last.bias)[0]
        real = ((P - exact(y)) ** 2).sum() / 2 + Fraction(BETA) / 2 * squares(conv.weight, conv.bias, last.weight)
        check(bounds(module, X, y), real)


@pytest.mark.parametrize("scales", SCALES)
def test_attention(scales: tuple[float, float]) -> None:
    for seed in range(5):
        module = ReluAttentionNetwork(2, 4, 1, average=1)
        fill(module, [module.mixing, module.value], scales, seed)
        with torch.no_grad():
            module.mixing[2:] = module.mixing[:2].clone()
            module.value[2:] = -module.value[:2] * (1 + 1e-9)
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((3, 4, 2)), rng.standard_normal(3)
        x, U, V = exact(X), exact(module.mixing), exact(module.value)[:, :, 0]
        heads = [relu(one @ u @ one.T) @ one @ v for one in x for u, v in zip(U, V, strict=True)]
        P = np.array(heads).reshape(3, 4, 4).sum((1, 2)) / 4 + exact(module.bias)[0]
        real = ((P - exact(y)) ** 2).sum() / 2 + Fraction(BETA) / 2 * squares(module.mixing, module.value)
        check(bounds(module, X, y), real)


def root(value: Fraction) -> Fraction:
    with localcontext(prec=200, Emin=-9999, Emax=9999):
        return Fraction((Decimal(value.numerator) / Decimal(value.denominator)).sqrt())


@pytest.mark.parametrize("second", [1, 3])
@pytest.mark.parametrize("scales", SCALES)
def test_a_parallel_network(scales: tuple[float, float], second: int) -> None:
    for seed in range(5):
        module = ParallelNetwork(2, [3, second], 1, 4, constant=1)
        fill(module, list(module.layers), (scales[0], 1.0, scales[1]), seed)
        with torch.no_grad():
            module.layers[0][2:], module.layers[1][2:] = module.layers[0][:2].clone(), module.layers[1][:2].clone()
            module.layers[2][2:] = -module.layers[2][:2] * (1 + 1e-9)
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((3, 2)), rng.standard_normal(3)
        x = np.column_stack([exact(X), [Fraction(1)] * 3])
        W, A, V = (exact(layer) for layer in module.layers)
        P = sum(relu(relu(x @ W[k]) @ A[k]) @ V[k][:, 0] for k in range(4)) + exact(module.bias)[0]
        price = sum(root((((W[k] ** 2).sum(0) @ A[k] ** 2) @ V[k] ** 2).sum()) for k in range(4))
        check(bounds(module, X, y), ((P - exact(y)) ** 2).sum() / 2 + Fraction(BETA) * price)
