import pytest
import torch
from torch import Tensor

from bidual.architectures.modules import NETWORKS, GatedNetwork, LinearNetwork, RebuildableModule, ReluNetwork


def randomise(module: RebuildableModule, seed: int = 0) -> RebuildableModule:
    rng = torch.Generator().manual_seed(seed)
    state = module.state_dict()
    for name, tensor in state.items():
        if tensor.is_floating_point():
            state[name] = torch.randn(tensor.shape, generator=rng, dtype=tensor.dtype)
    module.load_state_dict(state)
    return module


def gated() -> GatedNetwork:
    module = randomise(GatedNetwork(n_features=3, n_gates=2, n_neurons=4, n_outputs=2))
    module.gate_index.copy_(torch.tensor([0, 1, 1, 0]))
    return module


def samples() -> Tensor:
    return torch.randn(7, 3, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def test_gated_network_is_the_sum_over_neurons() -> None:
    net, X, expected = gated(), samples(), torch.zeros(7, 2, dtype=torch.float64)
    for j, p in enumerate(net.gate_index):
        on = X @ net.gates.weight[p] + net.gates.bias[p] >= 0
        expected += (on * (X @ net.hidden.weight[j] + net.hidden.bias[j]))[:, None] * net.output.weight[:, j]
    torch.testing.assert_close(net(X), expected + net.output.bias)


def test_linear_network_is_a_matrix_product() -> None:
    net, X = randomise(LinearNetwork(3, 2, 2)), samples()
    product = X @ net.hidden.weight.T @ net.output.weight.T + net.output.weight @ net.hidden.bias + net.output.bias
    torch.testing.assert_close(net(X), product)


@pytest.mark.parametrize("net", [randomise(LinearNetwork(3, 2, 2)), gated()], ids=lambda net: net.kind)
def test_rebuild_from_sizes_and_state(net: RebuildableModule) -> None:
    again = NETWORKS[net.kind].rebuild(net.sizes, net.state_dict())
    assert type(again) is type(net)
    assert torch.equal(again(samples()), net(samples()))


def test_gates_are_constants_and_weights_are_not() -> None:
    trainable = {name for name, parameter in gated().named_parameters() if parameter.requires_grad}
    assert trainable == {"hidden.weight", "hidden.bias", "output.weight", "output.bias"}


@pytest.mark.parametrize("wrong", [2, -1])
def test_a_damaged_gate_index_is_refused(wrong: int) -> None:
    net = gated()
    state = net.state_dict() | {"gate_index": torch.tensor([0, wrong, 1, 0])}
    with pytest.raises(ValueError, match="damaged"):
        GatedNetwork.rebuild(net.sizes, state)


def test_single_precision_samples_are_taken() -> None:
    net = gated()
    torch.testing.assert_close(net(samples().float()), net(samples().float().double()))


def test_building_a_network_draws_no_random_numbers() -> None:
    before = torch.get_rng_state()
    assert not any(bool(p.any()) for p in GatedNetwork(3, 2, 4, 1).parameters())
    assert torch.equal(before, torch.get_rng_state())


def test_a_module_without_sizes_says_so() -> None:
    with pytest.raises(TypeError, match="does not say its sizes"):
        _ = RebuildableModule().sizes


def test_layers_of_any_size_take_no_memory_on_the_meta_device() -> None:
    """Loading a model compares the shapes that its header announces, before any tensor of them exists."""
    with torch.device("meta"):
        network = ReluNetwork(2**30, 2**12, 3)
    assert all(parameter.is_meta for parameter in network.parameters())
