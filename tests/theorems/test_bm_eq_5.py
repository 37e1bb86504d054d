"""BM eq. (5) and (18): the gated network's non-convex training problem has the optimum of the convex program.

With min(d, c) neurons per gate no local minimum is spurious (docs/corrections.md, BM Thm 3.3).
"""

import pytest
import torch
from scipy.optimize import minimize

from bidual.architectures import GatedMLP
from bidual.losses import Logistic, Loss, Squared
from bidual.losses.datafit import Datafit
from bidual.patterns import activations, sample_gates
from bidual.problems.certificate import Certificate
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto

BETA = 0.3


def setting(loss: Loss, seed: int):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(15, 3, generator=generator, dtype=torch.float64)
    Y = torch.randn(15, 2, generator=generator, dtype=torch.float64)
    Y = Y.sign() if isinstance(loss, Logistic) else Y
    gates = sample_gates(X, 4, generator)
    family = GatedMLP(gates)
    problem = Problem(family.lift(X, 2), Datafit(loss, Y), family.gauge(), BETA)
    return X, Y, activations(X, gates).double(), solve_auto(problem, Limits(1e-9)).certificate


def train_the_network(loss: Loss, X, Y, D, neurons: int, seed: int) -> float:
    """L-BFGS on the weights of the non-convex network itself, by automatic differentiation."""
    p, d, c = len(D), X.shape[1], Y.shape[1]
    start = torch.randn(p * neurons * (d + c), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def objective(flat):
        w = torch.tensor(flat, requires_grad=True)
        U, W = w[: p * neurons * d].reshape(p, d, neurons), w[p * neurons * d :].reshape(p, neurons, c)
        outputs = torch.einsum("pn,nd,pdm,pmc->nc", D, X, U, W)
        value = loss.value(outputs, Y).sum() + 0.5 * BETA * w.square().sum()
        value.backward()
        return float(value.detach()), w.grad.numpy()

    return float(minimize(objective, start.numpy(), jac=True, method="L-BFGS-B", options={"maxiter": 3000}).fun)


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("seed", range(2))
def test_enough_neurons_reach_the_certified_optimum_from_every_start(loss, seed):
    X, Y, D, certificate = setting(loss, seed)
    reached = [train_the_network(loss, X, Y, D, neurons=2, seed=start) for start in range(3)]
    assert reached == pytest.approx([certificate.primal] * 3, rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_no_network_goes_below_the_certified_dual(seed):
    X, Y, D, certificate = setting(Squared(), seed)
    assert isinstance(certificate, Certificate)
    for neurons in (1, 2, 3):
        assert train_the_network(Squared(), X, Y, D, neurons, seed) >= certificate.dual
