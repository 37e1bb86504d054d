"""PR (11) with its signs in the right place: against loops, against the exact limit, and against the constraints."""

import pytest
import torch
from torch import Tensor

from bidual.architectures import GatedParallel
from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.gauges import Group
from bidual.losses import Logistic, Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.penalty import PenaltyForm, train
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto


def draw(seed: int, n: int = 14, d: int = 3, c: int = 1) -> tuple[Tensor, Tensor, SubNetworkGates]:
    rng = torch.Generator().manual_seed(seed)
    X, Y = (torch.randn(n, k, generator=rng, dtype=torch.float64) for k in (d, c))
    return X, Y, SubNetworkGates.sample(d, 4, 3, rng)


def with_weights(form: PenaltyForm, seed: int) -> PenaltyForm:
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        form.both.copy_(torch.randn(form.both.shape, generator=rng, dtype=torch.float64))
    return form


@pytest.mark.parametrize("c", [1, 2])
def test_the_objective_is_the_formula_written_out(c: int) -> None:
    X, Y, cells = draw(0, n=6, c=c)
    form = with_weights(PenaltyForm(cells, Squared(), 0.3, 0.7, c), 1)
    first, second = cells.activity(X)
    f, penalty, price = torch.zeros_like(Y), 0.0, 0.0
    for sign, z in zip((1.0, -1.0), form.both.detach(), strict=True):
        for k in range(len(cells)):
            price += float(z[k].square().sum()) ** 0.5
            for i, x in enumerate(X):
                inner = sum(float(first[k, j, i]) * (x @ z[k, j]) for j in range(3))
                f[i] += sign * float(second[k, i]) * inner
                side = 2 * float(second[k, i]) - 1
                penalty += float((-side * inner).clamp(min=0).sum())
                for j in range(3):
                    weight = cells.signs[k, j] * z[k, j]  # the first-layer weight itself
                    side = 2 * float(first[k, j, i]) - 1
                    penalty += float((-side * (x @ weight)).clamp(min=0).sum())
    expected = 0.5 * float((f - Y).square().sum()) + 0.3 * price + 0.7 * penalty
    assert float(form.objective(X, Y).detach()) == pytest.approx(expected, rel=1e-12)
    assert torch.allclose(form(X), f)


def test_networks_of_the_cell_pay_no_penalty_and_others_do() -> None:
    X, Y, cells = draw(1)
    form, free = (PenaltyForm(cells, Squared(), 0.3, lam) for lam in (5.0, 0.0))
    for part in (form, free):
        with torch.no_grad():
            part.both.copy_(cells.interior[None, ..., None] * torch.tensor([1.0, 0.4]).reshape(2, 1, 1, 1, 1))
    assert form.value(X, Y) == pytest.approx(free.value(X, Y), rel=1e-12)
    with torch.no_grad():
        form.both.neg_()
    assert form.value(X, Y) > free.value(X, Y) + 1


def test_batches_stand_for_all_samples() -> None:
    X, Y, cells = draw(2, n=12)
    form = with_weights(PenaltyForm(cells, Squared(), 0.3, 0.7), 3)
    parts = [float(form.objective(X[i : i + 4], Y[i : i + 4], 1 / 3).detach()) for i in (0, 4, 8)]
    assert sum(parts) / 3 == pytest.approx(form.value(X, Y), rel=1e-12)
    assert form.value(X, Y, batch_size=5) == pytest.approx(form.value(X, Y), rel=1e-12)


@pytest.mark.parametrize("c", [1, 2])
def test_without_penalty_it_converges_to_the_exact_gated_optimum_from_above(c: int) -> None:
    X, Y, cells = draw(4, c=c)
    problem = Problem(GatedParallel(cells).lift(X, c), Datafit(Squared(), Y), Group(), 0.5)
    exact = solve_auto(problem, Limits(1e-8)).certificate
    form, values = PenaltyForm(cells, Squared(), 0.5, 0.0, c), []
    train(
        form,
        X,
        Y,
        lambda p: torch.optim.LBFGS(p, max_iter=50, history_size=30, line_search_fn="strong_wolfe"),
        epochs=15,
        on_epoch=lambda _, now: values.append(now.value(X, Y)),
    )
    assert min(values) >= exact.dual
    assert values[-1] == pytest.approx(exact.primal, rel=1e-3)
    assert problem.primal(form.lifted) <= values[-1] * (1 + 1e-12)


def test_a_larger_penalty_leaves_less_violation_and_a_larger_value() -> None:
    X, Y, cells = draw(5)
    values, outside = [], []
    for lam in (0.0, 0.1, 1.0):
        form = PenaltyForm(cells, Squared(), 0.1, lam)
        train(form, X, Y, lambda p: torch.optim.Adam(p, lr=0.01), epochs=600)
        values.append(form.value(X, Y))
        form.lam = 0.0
        free = form.value(X, Y)
        form.lam = 1.0
        outside.append(form.value(X, Y) - free)
    assert values[0] < values[1] < values[2]
    assert outside[0] > 3 * outside[1] > 3 * outside[2]


def test_training_depends_on_its_generator_only_and_calls_back() -> None:
    X, Y, cells = draw(6)
    ends, epochs = [], []
    for seed in (0, 0, 1):
        form = PenaltyForm(cells, Squared(), 0.3, 1e-5)
        torch.manual_seed(len(ends))
        train(
            form,
            X,
            Y,
            lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9),
            epochs=3,
            batch_size=5,
            generator=torch.Generator().manual_seed(seed),
            on_epoch=lambda epoch, _: epochs.append(epoch),
        )
        ends.append(form.both.detach().clone())
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])
    assert epochs == [1, 2, 3] * 3


def test_margin_losses_descend() -> None:
    X, _, cells = draw(7)
    Y = torch.where(X[:, :1] > 0, 1.0, -1.0).double()
    form = PenaltyForm(cells, Logistic(), 0.1, 1e-5)
    before = form.value(X, Y)
    train(form, X, Y, lambda p: torch.optim.Adam(p, lr=0.05), epochs=100)
    assert form.value(X, Y) < 0.5 * before


def test_bad_settings_are_refused() -> None:
    X, Y, cells = draw(8)
    with pytest.raises(ValueError, match="beta must be positive"):
        PenaltyForm(cells, Squared(), 0.0, 1.0)
    with pytest.raises(ValueError, match="lambda not negative"):
        PenaltyForm(cells, Squared(), 1.0, -1.0)
    form = PenaltyForm(cells, Squared(), 1.0, 1.0)
    with pytest.raises(ValueError, match="one row per sample"):
        train(form, X, Y[:3], torch.optim.Adam, epochs=1)
    with pytest.raises(ValueError, match="at least 1"):
        train(form, X, Y, torch.optim.Adam, epochs=0)
