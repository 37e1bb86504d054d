"""The scripts in ``examples`` run, write their figures, and certify what they train."""

import importlib.util
import math
import sys
from types import ModuleType

import pytest

from helpers.places import ROOT

FOLDER = ROOT / "examples"
PNG = b"\x89PNG\r\n\x1a\n"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def assert_certified(gap: float) -> None:
    assert math.isfinite(gap)
    assert gap <= 1e-2


def test_certify_my_network(tmp_path, capsys):
    found = load("certify_my_network").main(tmp_path / "new", widths=(2,), steps=50, patients=100)[2]
    assert (tmp_path / "new" / "certify_my_network.png").read_bytes().startswith(PNG)
    assert found.lower_bound <= found.better_objective < found.objective
    assert_certified(1 - found.lower_bound / found.better_objective)
    assert f"objective {found.objective:.4f}, no network is below {found.lower_bound:.4f}" in capsys.readouterr().out


def test_finish_a_head(tmp_path, capsys):
    done = load("finish_a_head").main(tmp_path / "new", samples=60, steps=30, more=5, seconds=1.0)
    assert (tmp_path / "new" / "finish_a_head.png").read_bytes().startswith(PNG)
    assert done.certificate.lower_bound <= done.objective < done.certificate.objective
    assert done.verdict in capsys.readouterr().out


def test_pick_beta(tmp_path, capsys):
    path, chosen = load("pick_beta").main(tmp_path / "new", n_betas=6, n_gates=15)
    assert (tmp_path / "new" / "pick_beta.png").read_bytes().startswith(PNG)
    assert path.n_neurons[0] == 0 < path.n_neurons[-1]
    for solution in path.solutions:
        assert_certified(solution.certificate.relative_gap)
    assert chosen.beta_ in path.betas
    assert f"cross-validation picks beta/beta_max {chosen.beta_ / path.beta_max:.4f}" in capsys.readouterr().out


def test_exact_small_network(tmp_path, capsys):
    exact, reached = load("exact_small_network").main(tmp_path / "new", seeds=2, steps=300)
    assert (tmp_path / "new" / "exact_small_network.png").read_bytes().startswith(PNG)
    assert exact.certificate_.scope.name == "ALL_PATTERNS"
    assert exact.certificate_.relative_gap <= 1e-8
    assert reached.min() >= exact.certificate_.dual
    assert "28 activation patterns of 14 samples" in capsys.readouterr().out  # 2 n: all of the line


def test_digits_cnn(tmp_path, capsys):
    network = load("digits_cnn").main(tmp_path / "new", gates=(1, 8), samples=300)
    assert (tmp_path / "new" / "digits_cnn.png").read_bytes().startswith(PNG)
    assert_certified(network.certificate_.relative_gap)
    assert "module_ and predict agree on 450 of 450 digits" in capsys.readouterr().out


def test_reproduce_a_figure(tmp_path, capsys):
    result = load("reproduce_a_figure").main(tmp_path)
    folder = tmp_path / "smoke" / "cp_figure_1"
    assert (folder / "figure.png").read_bytes().startswith(PNG)
    printed = capsys.readouterr().out
    assert result.claims
    assert all(claim.paper in printed and claim.ours in printed for claim in result.claims)
    assert f"file: {folder / 'result.json'}" in printed


def test_digits_filters(tmp_path, capsys):
    result = load("digits_filters").main(tmp_path / "new", n_gates=8, tol=1e-2, samples=300)
    assert (tmp_path / "new" / "digits_filters.png").read_bytes().startswith(PNG)
    assert_certified(result.network.certificate_.relative_gap)
    assert result.accuracy > 0.9
    assert f"test accuracy {result.accuracy:.4f}" in capsys.readouterr().out


def test_importance_adds_up_to_the_weight_decay():
    result = load("digits_filters").run(n_gates=4, tol=1e-2, samples=100)
    network = result.network
    price = network.architecture_.regulariser(network.module_)
    assert float(result.importance.sum()) == pytest.approx(price, rel=1e-6)


@pytest.fixture(scope="module")
def denoised(tmp_path_factory):
    out = tmp_path_factory.mktemp("figures")
    return load("denoising_attention").main(out, train=40, test=40, decades=2, tol=1e-2, relu=False), out


def test_denoising_attention(denoised):
    result, out = denoised
    assert (out / "denoising_attention.png").read_bytes().startswith(PNG)
    certified = [one for one in result.denoisers if one.certificate is not None]
    assert len(certified) == 4
    for one in certified:
        assert_certified(one.certificate.relative_gap)
        assert one.error < result["noisy tokens"].error, one.name


def test_heads_reach_the_convex_optimum(denoised):
    """BM Corollary 3.10."""
    result, _ = denoised
    assert result.factored.primal == pytest.approx(result.convex.primal, rel=2e-6)


def test_shares_add_up_to_the_output_without_its_bias(denoised):
    result, _ = denoised
    example, network = load("denoising_attention"), result["gated attention"].network
    x = example.torch.tensor(result.test.inputs[0])
    output = network(x[None])[0].detach()
    without = ((output - network.bias.detach()) * output).sum(1) / output.square().sum(1)
    assert example.shares(network, x).sum(1).numpy() == pytest.approx(without.numpy())


@pytest.mark.slow
def test_relu_attention_is_certified_over_all_patterns():
    certificate = load("denoising_attention").small_relu(0.3).certificate_
    assert certificate.scope.name == "ALL_PATTERNS"
    assert_certified(certificate.relative_gap)
