"""Losses in torch: the numbers behind weight decay, against torch itself and the table of docs/certify.md."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from bidual.losses import LOSSES, Loss, Squared, TorchForm
from bidual.testing import example_targets
from helpers.draws import normal

N, C = 7, 3
OWN = {name: cls for name, cls in LOSSES.items() if cls.__module__.startswith("bidual.")}
KNOWN = sorted(name for name, cls in OWN.items() if cls().torch_form is not None)


def by_torch(name: str, reduction: str, P: Tensor, Y: Tensor) -> Tensor:
    """From the module that the form names; labels as torch codes them."""
    form = OWN[name]().torch_form
    assert form is not None
    module, _, settings = form.module.removesuffix(")").partition("(")
    numbers = {"delta": 1.0, "margin": 1, "log_input": True}
    given = {word: numbers[word] for word in (part.split("=")[0] for part in settings.split(",") if part)}
    loss: nn.Module = getattr(nn, module)(reduction=reduction, **given)
    if name == "hinge":
        return loss(P, torch.zeros_like(P), Y)
    if name == "softmax":
        return loss(P, Y.argmax(1))
    return loss(P, (Y + 1) / 2 if name == "logistic" else Y)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", KNOWN)
def test_torch_computes_so_many_times_as_much_up_to_a_constant(name: str, reduction: str) -> None:
    loss = OWN[name]()
    form = loss.torch_form
    assert form is not None
    Y = example_targets(loss, N, C, torch.Generator().manual_seed(0))
    P, Q = normal(N, C, seed=1), normal(N, C, seed=2)
    ours = float((loss.value(P, Y) - loss.value(Q, Y)).sum())
    theirs = float(by_torch(name, reduction, P, Y) - by_torch(name, reduction, Q, Y))
    assert theirs == pytest.approx(form.times / form.divisor(reduction, N, C) * ours, rel=1e-12)


def test_the_table_of_the_docs_has_every_form() -> None:
    """| loss | in torch.nn | times | D | beta of the mean | beta of the sum |"""
    text = (Path(__file__).parents[2] / "docs" / "certify.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith('| `"')
    ]
    table = {row[0].split("`")[1].strip('"'): row[1:] for row in rows}
    assert sorted(table) == KNOWN
    for name, (module, times, divisor, of_mean, of_sum) in table.items():
        form = OWN[name]().torch_form
        assert form is not None
        assert module == f"`{form.module}`"
        assert float(times) == form.times
        for words, reduction in ((divisor, "mean"), ("1", "sum")):
            assert _worth(words) == form.divisor(reduction, N, C)
        assert _worth(of_mean) == form.beta(5.0, form.divisor("mean", N, C))
        assert _worth(of_sum) == form.beta(5.0, 1.0)


def _worth(words: str) -> float:
    """Of "n c wd / 2", with a weight decay of five."""
    product, _, share = words.partition("/")
    values = {"n": float(N), "c": float(C), "wd": 5.0}
    worth = 1.0
    for word in product.split():
        worth *= values[word] if word in values else float(word)
    return worth / float(share or 1)


def test_a_loss_that_extends_another_has_no_form_of_its_own() -> None:
    class Half(Squared):
        def _value(self, P: Tensor, Y: Tensor) -> Tensor:
            return 0.5 * super()._value(P, Y)

    class Named(Squared):
        torch_form = TorchForm("MSELoss()", times=2.0)

    assert Half().torch_form is None
    assert Named().torch_form == Squared().torch_form
    assert Loss.torch_form is None
