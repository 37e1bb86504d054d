"""What a certificate of a given network says in words, and the better network in the user's own module."""

import math
import re
from decimal import Decimal

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from bidual import NetworkCertificate, certify
from bidual.estimators.certifying.verdict import Comparison
from bidual.io.foreign import from_module

rng = np.random.default_rng(0)
X = rng.standard_normal((30, 2))
Y = np.abs(X[:, 0]) - X[:, 1]


def module(width: int, dtype: torch.dtype = torch.float64, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Linear(2, width, bias), nn.ReLU(), nn.Linear(width, 1, bias)
    return nn.Sequential(*layers).to(dtype)


@pytest.fixture(scope="module")
def found() -> NetworkCertificate:
    return certify(module(4), X, Y, 0.3)


def test_the_words_of_a_tight_proof() -> None:
    words = str(Comparison(100.0, 87.65, 87.0, 200.0, how="9 neurons"))
    assert words.startswith("Your network can be improved by 12.3 %: a network with objective 87.65 instead of 100 was")
    assert words.endswith("found (9 neurons). No two-layer ReLU network of any width is better than that one by more "
                          "than 0.742 %.")  # fmt: skip


def test_the_words_of_a_loose_proof_claim_nothing_about_the_network() -> None:
    gain, rest, context = Comparison(1.0, 1.0, 0.25, 100.0).sentences
    assert gain == "No network better than yours was found; its objective is 1."
    assert rest.startswith("The proof is loose: it excludes only that")
    assert "better than yours by more than 75 %" in rest
    assert "nothing is known about objectives between 0.25 and 1" in rest
    assert context.endswith("your network removes 99 %, and no network removes more than 99.75 %.")


@pytest.mark.parametrize(
    ("comparison", "words"),
    [
        (Comparison(2.0, 2.0, 2.0), "No two-layer ReLU network of any width is better than yours: it is optimal"),
        (Comparison(2.0, 2.0, 1.9999), "by more than 0.005 %. It is optimal for all practical purposes."),
        (Comparison(2.0, 1.0, 0.0), "Nothing is proved about others: the bound is 0"),
        (Comparison(math.inf, 1.0, 0.99), "beyond all numbers; one with objective 1 was found"),
        (Comparison(3.0, 1.0, 0.99, 2.0), "worse than a constant output, without neurons: that has objective 2"),
        (Comparison(3.0, 2.0, 2.0, 2.0), "this weight decay leaves no neurons"),
        (Comparison(3.0, 2.0, 1.9, 2.0), "constant output: no neurons were found to be worth their weight decay"),
        (Comparison(0.0, 0.0, 0.0), "optimal, up to rounding"),
        (Comparison(2.0, 1.0, 0.9, kind="attention network"), "No attention network is better"),
    ],
)
def test_the_words_of_other_cases(comparison: Comparison, words: str) -> None:
    assert words in str(comparison)


@pytest.mark.parametrize("seed", range(40))
def test_percentages_never_claim_more_than_is_proved(seed: int) -> None:
    """Gains are rounded down and what is open is rounded up, by less than a hundredth of the number."""
    rng = np.random.default_rng(seed)
    objective = float(10 ** rng.uniform(-6, 6))
    best = objective * (1 - 10 ** rng.uniform(-9, 0))
    bound = best * (1 - 10 ** rng.uniform(-9, 0))
    gain, rest, *_ = Comparison(objective, best, bound).sentences
    gained = Decimal(re.search(r"improved by (\S+) %", gain)[1]) / 100
    open_ = Decimal(re.search(r"by more than (\S+) %", rest)[1]) / 100
    exact_gain = (Decimal(objective) - Decimal(best)) / Decimal(objective)
    exact_open = (Decimal(best) - Decimal(bound)) / Decimal(best)
    slack = Decimal("1e-15")  # of subtracting floats
    assert exact_gain * Decimal("0.99") - slack <= gained <= exact_gain + slack
    assert exact_open - slack <= open_ <= exact_open * Decimal("1.01") + slack


def test_the_verdict_has_the_numbers_of_the_result(found: NetworkCertificate) -> None:
    assert found.verdict == str(Comparison.of(found))
    gained = float(re.search(r"improved by (\S+) %", found.verdict)[1])
    assert gained == pytest.approx(100 * (1 - found.better_objective / found.objective), rel=0.01)
    constant = 0.5 * float(((Y - Y.mean()) ** 2).sum())
    assert found.constant_objective == pytest.approx(constant, rel=1e-9)
    assert f"{found.better.n_neurons} neurons" in found.verdict


def test_printing_a_result_prints_no_tensors(found: NetworkCertificate) -> None:
    assert "tensor(" not in repr(found)
    assert f"primal={found.certificate.primal!r}" in repr(found)


def test_objectives_are_those_of_the_training_loop() -> None:
    """Mean squared error with torch's weight decay, as torch computes it."""
    mine = module(4)
    found = certify(mine, X, Y, weight_decay=0.05)
    with torch.no_grad():
        fit = (mine(torch.tensor(X))[:, 0] - torch.tensor(Y)).square().mean()
        objective = float(fit + 0.025 * sum(value.square().sum() for value in mine.parameters()))
    assert Comparison.of(found).objective == pytest.approx(objective, rel=1e-9)
    assert f"instead of {objective:.6g} was found" in found.verdict


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_better_network_in_a_wider_module(found: NetworkCertificate, dtype: torch.dtype) -> None:
    mine = module(found.better.n_neurons + 3, dtype)
    before = {name: id(parameter) for name, parameter in mine.named_parameters()}
    found.load_into(mine)
    inputs = torch.tensor(X)
    expected = found.better(inputs)
    torch.testing.assert_close(mine(inputs.to(dtype)).double(), expected, rtol=1e-5, atol=1e-5)
    assert {name: id(parameter) for name, parameter in mine.named_parameters()} == before
    assert {parameter.dtype for parameter in mine.parameters()} == {dtype}
    again = certify(mine, X, Y, 0.3)
    assert again.objective == pytest.approx(found.better_objective, rel=1e-6)
    assert int((from_module(mine).output != 0).any(0).sum()) == found.better.n_neurons


def test_what_does_not_fit_is_refused_and_left_unchanged(found: NetworkCertificate) -> None:
    width = found.better.n_neurons
    parametrised = module(width + 1)
    parametrizations.weight_norm(parametrised[0])
    deep = nn.Sequential(nn.Linear(2, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 1))
    wrong = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 1))
    for mine, words in (
        (module(2), rf"has {width} neurons and your module has room for 2; use result.better"),
        (module(width, bias=False), "has a bias in its .* layer and your module has none; use result.better"),
        (wrong, "has 2 features and 1 outputs, your module 3 and 1"),
        (parametrised, "has a parameter '0.parametrizations.weight.original0'"),
        (deep, "not a two-layer ReLU network"),
    ):
        before = [parameter.clone() for parameter in mine.parameters()]
        with pytest.raises(ValueError, match=words):
            found.load_into(mine)
        assert all(torch.equal(*pair) for pair in zip(before, mine.parameters(), strict=True))


def test_there_is_nothing_to_load_where_nothing_better_was_found(found: NetworkCertificate) -> None:
    best = certify(found.better, X, Y, 0.3)
    assert best.better is None
    with pytest.raises(ValueError, match="nothing to load"):
        best.load_into(module(50))


class Deep(nn.Module):
    """A frozen layer and a head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body, self.fc1, self.fc2 = nn.Linear(2, 3), nn.Linear(3, width), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(torch.tanh(self.body(x)))))


def test_a_better_head_in_its_module() -> None:
    torch.manual_seed(0)
    narrow, wide = Deep(3), Deep(100)
    wide.body.load_state_dict(narrow.body.state_dict())
    found = certify(narrow, X, Y, 0.5, head=("fc1", "fc2"), max_time=2)
    found.load_into(wide)
    again = certify(wide, X, Y, 0.5, head=("fc1", "fc2"), proof=found, max_time=2)
    assert again.objective == pytest.approx(found.better_objective, rel=1e-6)
    assert torch.equal(wide.body.weight, narrow.body.weight)
    with pytest.raises(ValueError, match="has no layer 'fc1'"):
        found.load_into(module(100))


def test_the_words_of_filters() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv1d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6, 1))
    found = certify(network, rng.standard_normal((9, 1, 4)), Y[:9], 0.5, max_time=0.5)
    assert f"{found.better.n_neurons} filters, by training on" in found.verdict
    assert found.kind == "convolutional ReLU network of any number of filters of this size and pooling"


@pytest.mark.parametrize(
    ("hidden", "output", "decayed", "words"),
    [
        (True, True, True, "width"),
        (False, False, True, "width without biases"),
        (False, True, True, "width without hidden biases"),
        (True, False, True, "width without an output bias"),
        (True, False, False, "width"),  # a free hidden bias is an output bias too
    ],
)
def test_nothing_is_claimed_about_networks_with_more_biases(
    hidden: bool, output: bool, decayed: bool, words: str
) -> None:
    mine = nn.Sequential(nn.Linear(2, 3, bias=hidden), nn.ReLU(), nn.Linear(3, 1, bias=output))
    for head, shared in ((None, ""), (("0", "2"), " on the same features")):
        found = certify(mine, X[:6], Y[:6], 0.3, decayed_bias=decayed, head=head, max_time=0.1)
        assert found.kind == f"two-layer ReLU network of any {words.replace('width', 'width' + shared)}"
