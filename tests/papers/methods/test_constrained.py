"""PR (21) over given cells, against cvxpy on dense matrices and against the list of all cells."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.architectures.modules import ParallelNetwork
from bidual.losses import Hinge, Logistic, Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods import constrained
from bidual.papers.methods.constrained import solve_constrained
from bidual.papers.methods.gate_cones import GateCones
from bidual.papers.methods.path_norm import path_norm_of
from bidual.papers.methods.penalty import PenaltyForm, train
from bidual.problems.certificate import Scope
from oracles.parallel_oracle import three_layer_optimum


def draw(seed: int, n: int = 8, d: int = 2, count: int = 6, width: int = 3) -> tuple[Tensor, Tensor, SubNetworkGates]:
    rng = torch.Generator().manual_seed(seed)
    X, y = (torch.randn(n, k, generator=rng, dtype=torch.float64) for k in (d, 1))
    return X, y, SubNetworkGates.sample(d, count, width, rng)


def dense_optimum(X: Tensor, y: Tensor, cells: SubNetworkGates, beta: float, norm: str, loss: str = "squared") -> float:
    """The program with every inequality written out from the definition of w, not of z = s w."""
    data, f, price, inside = X.numpy(), 0, 0, []
    first, second = (part.numpy().astype(float) for part in cells.activity(X))
    for k in range(len(cells)):
        for side in (1.0, -1.0):
            w, s = cp.Variable((cells.width, X.shape[1])), cells.signs[k].numpy()
            hidden = [cp.multiply(first[k, j], data @ w[j]) for j in range(cells.width)]
            total = sum(s[j] * h for j, h in enumerate(hidden))
            inside += [cp.multiply(2 * first[k, j] - 1, data @ w[j]) >= 0 for j in range(cells.width)]
            inside += [cp.multiply(2 * second[k] - 1, total) >= 0]
            f = f + side * cp.multiply(second[k], total)
            price = price + (cp.norm(w, "fro") if norm == "path" else cp.sum(cp.norm(w, axis=1)))
    target = y[:, 0].numpy()
    data_term = {
        "squared": lambda: 0.5 * cp.sum_squares(f - target),
        "hinge": lambda: cp.sum(cp.pos(1 - cp.multiply(target, f))),
        "logistic": lambda: cp.sum(cp.logistic(-cp.multiply(target, f))),
    }[loss]()
    return float(cp.Problem(cp.Minimize(data_term + beta * price), inside).solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("norm", ["path", "weight_decay"])
@pytest.mark.parametrize(("seed", "d", "width"), [(0, 2, 3), (1, 3, 2), (2, 4, 1)])
def test_the_optimum_over_the_cells_is_cvxpy_s(norm: str, seed: int, d: int, width: int) -> None:
    X, y, cells = draw(seed, d=d, width=width)
    found = solve_constrained(cells, X, Datafit(Squared(), y), 0.1, norm=norm)
    assert found.objective == pytest.approx(dense_optimum(X, y, cells, 0.1, norm), rel=1e-6)
    assert found.certificate.relative_gap <= 1e-7
    assert found.certificate.scope is Scope.BLOCKS
    assert found.recheck()


@pytest.mark.parametrize("loss", [Hinge(), Logistic()])
def test_other_losses(loss: Hinge | Logistic) -> None:
    X, y, cells = draw(3)
    found = solve_constrained(cells, X, Datafit(loss, y.sign()), 0.2)
    assert found.objective == pytest.approx(dense_optimum(X, y.sign(), cells, 0.2, "path", loss.name), rel=1e-5)
    assert found.certificate.relative_gap <= 1e-5


@pytest.mark.parametrize("norm", ["path", "weight_decay"])
def test_it_is_a_network_of_that_price(norm: str) -> None:
    X, y, cells = draw(4)
    found = solve_constrained(cells, X, Datafit(Squared(), y), 0.05, norm=norm)
    module = found.networks.decode(cells.width)
    assert isinstance(module, ParallelNetwork)
    f = module(X).detach()
    assert torch.allclose(f, found.problem.operator.forward(found.certificate.point), atol=1e-9)
    if norm == "path":
        price = float(path_norm_of(module).detach())
    else:
        units = torch.linalg.vector_norm(module.layers[0].detach(), dim=1)  # second-layer weights are signs
        price = float((units.sum(1) * module.layers[2].detach()[:, 0, 0].abs()).sum())
    assert found.objective == pytest.approx(0.5 * float((f - y).square().sum()) + 0.05 * price, rel=1e-9)


def test_with_every_cell_it_is_the_training_problem() -> None:
    rng = torch.Generator().manual_seed(5)
    X, y = (torch.randn(4, k, generator=rng, dtype=torch.float64) for k in (2, 1))
    cells = SubNetworkGates.sample(2, 3000, 2, rng)
    found = solve_constrained(cells, X, Datafit(Squared(), y), 0.05)
    assert len(found.certificate.point) < 1000  # of 6000 blocks, most repeat a cell or are zero
    assert found.objective == pytest.approx(three_layer_optimum(X.numpy(), y[:, 0].numpy(), 0.05, 2), rel=1e-6)


def test_more_cells_never_hurt_and_weight_decay_costs_more() -> None:
    X, y, cells = draw(6, count=12)
    data = Datafit(Squared(), y)
    values = [solve_constrained(cells[torch.arange(k)], X, data, 0.1).objective for k in (3, 6, 12)]
    assert values[0] >= values[1] - 1e-8
    assert values[1] >= values[2] - 1e-8
    assert solve_constrained(cells, X, data, 0.1, norm="weight_decay").objective > values[2]


def test_the_gates_agree_with_the_network_that_comes_out() -> None:
    X, y, cells = draw(7)
    found = solve_constrained(cells, X, Datafit(Squared(), y), 0.02)
    module = found.networks.decode(cells.width)
    assert isinstance(module, ParallelNetwork)
    hidden = np.maximum(np.einsum("nd,kdm->knm", X.numpy(), module.layers[0].detach().numpy()), 0)
    second = (hidden * module.layers[1].detach().numpy()[:, None, :, 0]).sum(2)
    output = (np.maximum(second, 0) * module.layers[2].detach().numpy()[:, :, 0]).sum(0)
    assert np.allclose(output, found.problem.operator.forward(found.certificate.point)[:, 0].numpy(), atol=1e-9)


def test_cells_on_which_nothing_is_on_and_repeated_ones_are_skipped() -> None:
    X, y, cells = draw(8)
    twice = SubNetworkGates(torch.cat([cells.weights, 2 * cells.weights]), torch.cat([cells.signs, cells.signs]))
    dead = SubNetworkGates(twice.weights, -torch.ones_like(twice.signs))  # the second layer is never above zero
    data = Datafit(Squared(), y)
    once, again = (solve_constrained(c, X, data, 0.1) for c in (cells, twice))
    assert again.certificate.point.shape == once.certificate.point.shape
    assert again.objective == pytest.approx(once.objective, rel=1e-9)
    nothing = solve_constrained(dead, X, data, 0.1)
    assert nothing.objective == pytest.approx(0.5 * float(y.square().sum()), rel=1e-9)


def test_a_wrong_dual_point_does_not_pass_the_recheck() -> None:
    X, y, cells = draw(9)
    found = solve_constrained(cells, X, Datafit(Squared(), y), 0.1)
    better = replace(found.certificate, dual=found.certificate.dual * 1.01)
    assert not replace(found, certificate=better).recheck()
    assert not replace(found, multipliers=torch.zeros_like(found.multipliers)).recheck()


def test_it_pays_no_penalty_in_the_form_without_constraints() -> None:
    X, y, cells = draw(13)
    cells = constrained._distinct(cells, X)
    found = solve_constrained(cells, X, Datafit(Squared(), y), 0.1)
    form = PenaltyForm(cells, Squared(), 0.1, 1e3)
    with torch.no_grad():
        form.both.copy_(found.certificate.point.reshape(form.both.shape))
    assert form.value(X, y) == pytest.approx(found.objective, rel=1e-7)
    train(form, X, y, lambda p: torch.optim.SGD(p, lr=1e-7), epochs=20)
    assert form.value(X, y) >= found.certificate.dual * (1 - 1e-6)  # so large a lambda is an exact penalty


def test_redundant_inequalities_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, cells = draw(11, d=3)
    few = solve_constrained(cells, X, Datafit(Squared(), y), 0.1)
    monkeypatch.setattr(constrained, "_MOST_CHECKED", 0)
    many = solve_constrained(cells, X, Datafit(Squared(), y), 0.1)
    assert many.inequalities.shape[0] > 1.3 * few.inequalities.shape[0]
    assert many.objective == pytest.approx(few.objective, rel=1e-7)


def test_too_large_a_program_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, cells = draw(12)
    monkeypatch.setattr(constrained, "available_bytes", lambda device: 1000)
    with pytest.raises(ValueError, match="Use fewer sub-networks"):
        solve_constrained(cells, X, Datafit(Squared(), y), 0.1)


def test_bad_input_is_refused() -> None:
    X, y, cells = draw(10)
    data = Datafit(Squared(), y)
    with pytest.raises(ValueError, match="norm must be one of path, weight_decay"):
        solve_constrained(cells, X, data, 0.1, norm="l1")
    with pytest.raises(ValueError, match="one output"):
        solve_constrained(cells, X, Datafit(Squared(), torch.cat([y, y], 1)), 0.1)
    with pytest.raises(ValueError, match="one row per target"):
        solve_constrained(cells, X[:3], data, 0.1)


def exact_slacks(cells: SubNetworkGates, X: Tensor, z: Tensor) -> list[Fraction]:
    """The left sides of all inequalities of the cells at z = s w, in fractions."""
    found = []
    first, second = (part.tolist() for part in cells.activity(X))
    for k, units in enumerate(z.tolist()):
        linear = [
            [sum(Fraction(a) * Fraction(b) for a, b in zip(x, unit, strict=True)) for x in X.tolist()] for unit in units
        ]
        for j, sign in enumerate(cells.signs[k].tolist()):
            found += [int(sign) * (1 if on else -1) * a for on, a in zip(first[k][j], linear[j], strict=True)]
        for i, on in enumerate(second[k]):
            total = sum(linear[j][i] for j in range(cells.width) if first[k][j][i])
            found.append(total if on else -total)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_point_is_in_its_cones_in_fractions(seed: int) -> None:
    """An interior point method ends on borders up to 1e-12, and a point outside could be below the optimum."""
    X, y, cells = draw(seed, n=6, count=4, width=2)
    cells = constrained._distinct(cells, X)
    found = solve_constrained(cells, X, Datafit(Squared(), y), 0.05)
    for half in found.certificate.point.reshape(2, len(cells), cells.width, 2):
        assert min(exact_slacks(cells, X, half)) >= 0
    assert found.certificate.relative_gap <= 1e-7


def test_points_on_borders_are_moved_inside_and_no_further_than_rounding() -> None:
    X, _, cells = draw(3, n=5, count=8, width=2)
    cones = GateCones.of(cells, X)
    W, towards = cones.interior, torch.randn(cones.interior.shape, generator=torch.Generator().manual_seed(1)).double()
    here, there = (torch.cat([part.flatten(1) for part in cones.slacks(z)], 1) for z in (W, towards))
    step = torch.where(there < 0, -here / there, torch.inf).amin(1)
    z = W + step[:, None, None] * towards  # on the border, up to rounding
    moved = cones.moved_inside(z)
    assert min(exact_slacks(cells, X, moved)) >= 0
    assert float((moved - z).abs().max()) <= 1e-11 * float(z.abs().max())


@pytest.mark.parametrize("norm", ["path", "weight_decay"])
def test_the_polar_is_bounded_in_fractions(norm: str) -> None:
    """Large multipliers that nearly cancel what they are added to."""
    X, y, cells = draw(5, n=5, count=3, width=2)
    found = solve_constrained(cells, X, Datafit(Squared(), y), 0.1, norm=norm)
    V, H = found.certificate.dual_point, found.inequalities.toarray()
    design = found.problem.operator.dense()
    for scale in (1.0, 1e6):
        multipliers = scale * found.multipliers
        bound = constrained._LiftedPolar.of(found.problem, found.inequalities, multipliers)(V)
        G = [
            sum(Fraction(h) * Fraction(m) for h, m in zip(column, multipliers.tolist(), strict=True) if h)
            - sum(Fraction(a) * Fraction(v) for a, v in zip(forward, V[:, 0].tolist(), strict=True))
            for column, forward in zip(H.T.tolist(), design.T.tolist(), strict=True)
        ]
        size = found.problem.operator.block_shape[1]
        worst = max(sum(g * g for g in G[k : k + size]) for k in range(0, len(G), size))
        assert worst <= Fraction(bound + found.problem.rounding_of_polar(V)) ** 2
        assert bound <= float(worst) ** 0.5 * (1 + 1e-9)


def test_a_dual_point_that_was_scaled_can_be_rechecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver whose dual point is three times too long: the certificate shrinks it, and its multipliers with it."""
    X, y, cells = draw(0)
    right = solve_constrained(cells, X, Datafit(Squared(), y), 0.1)
    run = constrained.constrained_answer

    def longer(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        Z, V, multipliers = run(*arguments)
        return Z, 3 * V, 3 * multipliers

    monkeypatch.setattr(constrained, "constrained_answer", longer)
    found = solve_constrained(cells, X, Datafit(Squared(), y), 0.1)
    assert found.certificate.dual == pytest.approx(right.certificate.dual, rel=1e-6)
    torch.testing.assert_close(found.multipliers, right.multipliers, rtol=1e-5, atol=1e-9)
    assert found.recheck()


@pytest.mark.parametrize("seed", [0, 2, 4, 5])
def test_where_beta_is_tiny_rounding_is_not_paid_twice(seed: int) -> None:
    """Balanced only up to rounding, the dual point is scaled by 1 - 5e-7 here; asked again, by as much once more."""
    X, y, cells = draw(seed, count=3, width=2)
    found = solve_constrained(cells, X, Datafit(Squared(), y, intercept=True), 1e-8)
    assert 1e-8 < found.certificate.relative_gap < 1e-6
    assert found.recheck()
    assert not replace(found, multipliers=1.001 * found.multipliers + 1e-3).recheck()
    better = replace(found.certificate, dual=found.certificate.primal * (1 + 1e-8))
    assert not replace(found, certificate=better).recheck()


@pytest.mark.parametrize("multiplier", [math.nan, math.inf, 1.7e308])
def test_multipliers_beyond_all_numbers_prove_nothing(multiplier: float) -> None:
    """Also where they belong to a zero row of X, which has no inequality."""
    X, y, cells = draw(9)
    X[3] = 0.0
    found = solve_constrained(cells, X, Datafit(Squared(), y), 0.1)
    assert found.recheck()
    wrong = replace(found.certificate, dual_point=-y, dual=0.9 * found.certificate.primal, polar=0.1)
    for where in range(len(found.multipliers)):
        multipliers = found.multipliers.clone()
        multipliers[where] = multiplier
        assert not replace(found, certificate=wrong, multipliers=multipliers).recheck()
    everywhere = torch.full_like(found.multipliers, multiplier)
    assert not replace(found, certificate=wrong, multipliers=everywhere).recheck()


def test_a_dual_above_the_primal_is_refused_whatever_proves_it() -> None:
    X, y, cells = draw(9)
    found = solve_constrained(cells, X, Datafit(Squared(), y), 0.1)
    above = replace(found.certificate, dual=1.1 * found.certificate.primal, dual_point=-y)
    assert not above.holds(found.problem, lambda V: 0.0)
    assert found.certificate.holds(found.problem, lambda V: 0.0)
    assert not found.certificate.holds(found.problem, lambda V: math.nan)
    assert not found.certificate.holds(found.problem, lambda V: 0.0, rounding=0.01)
