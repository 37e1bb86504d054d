import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bidual.architectures.modules.layerwise import GatedStage, Head, LayerwiseNetwork
from bidual.training.layerwise.inputs import Moves
from bidual.training.layerwise.trainer import draw, standardise
from helpers.small_images import settings


def drawn(units: int = 1, factors: int = 2, downsample: bool = True) -> tuple[GatedStage, Head]:
    stage = GatedStage(2, 3, factors, units, 3, downsample)
    head = Head(stage.channels, 2, 4)
    draw(stage, head, torch.Generator().manual_seed(1))
    return stage, head


def by_hand(stage: GatedStage, x: Tensor) -> Tensor:
    """Channel (r, k) = D_2k sum_j D_1jk (x * u_rjk), one at a time (BM eq. 126, PR eq. 11)."""
    seen = functional.conv2d(x, stage.gate.weight, stage.gate.bias, padding=1)
    linear = functional.conv2d(x, stage.hidden.weight, stage.hidden.bias, padding=1)
    channels = []
    for r in range(stage.factors):
        for k in range(stage.gates):
            own = [j * stage.gates + k for j in range(stage.units)]
            second = sum(stage.signs[j, k] * seen[:, i].clamp(min=0) for j, i in enumerate(own)) >= 0
            sums = sum((seen[:, i] >= 0) * linear[:, r * stage.units * stage.gates + i] for i in own)
            channels.append(sums * (second if stage.units > 1 else 1))
    return torch.stack(channels, 1)


@pytest.mark.parametrize("units", [1, 3])
@pytest.mark.parametrize("factors", [1, 2])
def test_channels_are_those_of_the_papers(units: int, factors: int) -> None:
    stage, _ = drawn(units, factors)
    x = torch.randn(5, 8, 4, 6, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        torch.testing.assert_close(stage.gated(x, stage.activity(x)), by_hand(stage, x))


@pytest.mark.parametrize("units", [1, 3])
@pytest.mark.parametrize("side", [4, 5])  # windows that overlap, and not
def test_pooled_channels_and_their_slope_are_those_of_the_plain_network(units: int, side: int) -> None:
    stage, head = drawn(units, downsample=False)
    x = torch.randn(5, 2, side, 6, generator=torch.Generator().manual_seed(2))
    weights = [*stage.hidden.parameters(), *head.parameters()]
    ways = [head(stage.gated(x, stage.activity(x))), head.of_pooled(stage.pooled(x, stage.activity(x), 2))]
    torch.testing.assert_close(*ways)
    for plain, quick in zip(*(torch.autograd.grad(way.square().sum(), weights) for way in ways), strict=True):
        torch.testing.assert_close(plain, quick)


def test_second_layer_gates_close_some_sub_networks() -> None:
    stage, _ = drawn(units=3)
    x = torch.randn(5, 8, 4, 6, generator=torch.Generator().manual_seed(2))
    first = stage.gate(x) >= 0
    assert bool((stage.activity(x) != first).any())
    assert not bool((stage.activity(x) & ~first).any())


def test_downsampling_is_invertible() -> None:
    stage, _ = drawn()
    x = torch.randn(3, 2, 6, 4, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(functional.pixel_shuffle(stage.spread(x), 2), x)


def test_odd_maps_cannot_be_downsampled() -> None:
    with pytest.raises(ValueError, match=r"needs an even height and width, got \(5, 4\)"):
        drawn()[0].spread(torch.zeros(1, 2, 5, 4))


def test_inputs_are_standardised_and_constant_channels_stay_finite() -> None:
    stage, _ = drawn(downsample=False)
    x = torch.randn(50, 2, 4, 4, generator=torch.Generator().manual_seed(4)) * 7 + 3
    x[:, 1] = 5
    standardise(stage, x.split(17))
    seen = stage.prepare(x)
    assert abs(float(seen[:, 0].mean())) < 1e-5
    assert abs(float(seen[:, 0].std(correction=0)) - 1) < 1e-5
    assert bool((seen[:, 1] == 0).all())


def network(units: int = 1) -> LayerwiseNetwork:
    found = LayerwiseNetwork(**settings(units=units).sizes(2, 3, 3))
    generator = torch.Generator().manual_seed(5)
    for stage, head in zip(found.stages, found.heads, strict=True):
        draw(stage, head, generator)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("units", [1, 2])
def test_network_is_rebuilt_from_its_sizes(units: int) -> None:
    made = network(units)
    again = LayerwiseNetwork.rebuild(made.sizes, made.state_dict())
    x = torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(6))
    assert torch.equal(made(x), again(x))
    assert made.n_neurons == 8


def test_first_stages_are_a_network_of_their_own() -> None:
    made, x = network(), torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(6))
    assert torch.equal(made.upto(3)(x), made(x))
    torch.testing.assert_close(made.upto(1)(x), made.heads[0](made.stages[0](x)))
    with pytest.raises(ValueError, match="has stages 1 to 3, got 4"):
        made.upto(4)


def test_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    network()
    assert torch.equal(before, torch.random.get_rng_state())


def test_network_is_scriptable_by_export() -> None:
    made, x = network(), torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(6))
    program = torch.export.export(made.eval(), (x,))
    torch.testing.assert_close(program.module()(x), made(x))


def test_crops_are_windows_and_flips_are_mirror_images() -> None:
    x = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5) + 1
    generator = torch.Generator().manual_seed(0)
    flips = [bool(torch.equal(Moves.drawn(len(x), 0, True, generator)(x)[0], x[0].flip(2))) for _ in range(40)]
    assert 5 < sum(flips) < 35
    padded = functional.pad(x, (2, 2, 2, 2))
    windows = {(i, j): padded[0, :, i : i + 4, j : j + 5].numpy().tobytes() for i in range(5) for j in range(5)}
    seen = {np.ascontiguousarray(Moves.drawn(len(x), 2, False, generator)(x)[0].numpy()).tobytes() for _ in range(300)}
    assert seen == set(windows.values())
