"""Probabilities against their definition: where classes have probabilities q, the best outputs tell q."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from bidual.losses import LOSSES, Hinge, Huber, Logistic, Loss, Softmax, Squared

rng = np.random.default_rng(0)
WITH = [Squared(), Huber(), Huber(1.4), Huber(3.0), Logistic(), Softmax()]
WITHOUT = ["absolute", "hinge", "poisson", "quantile", "squared_hinge"]


def named(loss: Loss) -> str:
    return f"{loss.name}-{getattr(loss, 'delta', '')}"


def best_outputs(loss: Loss, q: np.ndarray) -> torch.Tensor:
    """What minimises sum_k q_k l(p, target of class k), by Nelder-Mead."""
    n_outputs = loss.n_outputs(len(q))
    Y = torch.tensor(loss.encode(np.arange(len(q)), n_outputs))

    def expected(p: np.ndarray) -> float:
        return float(torch.tensor(q) @ loss.value(torch.tensor(p).expand(len(q), -1), Y))

    options = {"xatol": 1e-10, "fatol": 1e-16, "maxiter": 4000, "maxfev": 4000}
    return torch.tensor(minimize(expected, np.zeros(n_outputs), method="Nelder-Mead", options=options).x)[None]


@pytest.mark.parametrize("loss", WITH, ids=named)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_best_outputs_tell_the_probabilities(loss: Loss, n_classes: int) -> None:
    for q in rng.dirichlet(np.ones(n_classes), 4):
        found = loss.probabilities(best_outputs(loss, q))[0]
        np.testing.assert_allclose(found, q, atol=2e-6)


def test_losses_without_are_those_whose_best_outputs_do_not_tell() -> None:
    own = [name for name in LOSSES if LOSSES[name].__module__.startswith("bidual.")]
    assert sorted(name for name in own if not LOSSES[name]().gives_probabilities) == WITHOUT
    absolute = LOSSES["absolute"]()
    close, far = (best_outputs(absolute, np.array([1 - q, q])) for q in (0.6, 0.9))
    assert close.item() == pytest.approx(far.item(), abs=1e-6)


@pytest.mark.parametrize("loss", [*(LOSSES[name]() for name in WITHOUT), Huber(0.9)], ids=named)
def test_others_refuse_and_say_what_to_use(loss: Loss) -> None:
    with pytest.raises(ValueError, match=r"^\w+ loss (with delta=0.9 )?gives no probabilities; use .*'log_loss'"):
        loss.probabilities(torch.zeros(1, 2, dtype=torch.float64))


def test_squared_outputs_are_projected() -> None:
    f = torch.tensor([[-3.0], [-1.0], [-0.2], [0.0], [0.5], [1.0], [1.5]], dtype=torch.float64)
    np.testing.assert_allclose(Squared().probabilities(f)[:, 1], [0, 0, 0.4, 0.5, 0.75, 1, 1], atol=1e-16)
    P = torch.tensor(2 * rng.standard_normal((40, 3)))
    Q = Squared().probabilities(P)
    for target in torch.eye(3, dtype=torch.float64):  # the Brier score never grows
        assert bool(((Q - target).square().sum(1) <= (P - target).square().sum(1) + 1e-15).all())


@pytest.mark.parametrize(
    "rows",
    [
        [[1e-18]],
        [[-1e-18]],
        [[0.0, 1e-18]],
        [[0.1, 0.1, 0.1 + 1e-17]],
        [[40.0, 50.0, -40.0]],
        [[-900.0, -800.0, -1000.0]],
        [[3.0, np.nextafter(3.0, 4), 3.0]],
        [[0.5, 0.5, 0.2]],
    ],
)
@pytest.mark.parametrize("loss", WITH, ids=named)
def test_ties_of_rounding_are_told_apart(loss: Loss, rows: list[list[float]]) -> None:
    P = torch.tensor(rows, dtype=torch.float64)
    if P.shape[1] == 1 and not loss.one_output:
        return
    Q = loss.probabilities(P)
    assert Q.argmax(1).tolist() == loss.likeliest(P).tolist()
    assert Q.sum(1).numpy() == pytest.approx([1.0], abs=1e-15)


def test_a_tie_goes_to_the_first_class() -> None:
    zero = torch.zeros(1, 1, dtype=torch.float64)
    assert Logistic().likeliest(zero).tolist() == [0]
    assert Logistic().probabilities(zero).tolist() == [[0.5, 0.5]]


def test_small_probabilities_are_kept() -> None:
    far = Logistic().probabilities(torch.tensor([[40.0], [-700.0]], dtype=torch.float64))
    np.testing.assert_allclose([far[0, 0], far[1, 1]], np.exp([-40.0, -700.0]), rtol=1e-12)


def test_a_loss_that_promises_probabilities_must_have_them() -> None:
    with pytest.raises(TypeError, match="Promise says gives_probabilities; define _probabilities"):
        type("Promise", (Hinge,), {"gives_probabilities": True})
