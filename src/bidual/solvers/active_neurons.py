"""L-BFGS on a growing set of neurons: for more samples than a kernel matrix allows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges import BlockGauge, Factorised, FactorSteps
from bidual.numerics.lbfgs import Memory, Rows, step_length
from bidual.problems.problem import Problem
from bidual.solvers.driver import Solver
from bidual.solvers.neuron_products import NeuronProducts, ProductsFor, lifted
from bidual.types import Blocks, Matrix, as_protocol

_DUST = 1e-3  # of the gap: neurons smaller than this share of the largest are dropped
_ALIKE = 0.5  # the cosine to a new neuron above which an old one can turn there by itself
_DOUBLINGS = 60


@dataclass
class _State:
    work: Problem
    products: ProductsFor
    memory: Memory
    rows: Rows  # (u_j, w_j)
    block: Tensor  # of every neuron
    P: Matrix = field(init=False)  # their predictions
    G: Blocks = field(init=False)  # -A* V, V the gradient of F there
    dual: float = -inf
    V: Matrix | None = None  # the best dual point so far
    fresh: bool = True  # whether V is the gradient at the current point
    guess: float = 1.0
    best_guess: float = inf
    since_best: int = 0
    stuck: bool = False


@dataclass(frozen=True)
class ActiveNeurons(Solver):
    r"""min over neurons of F(sum_j A_{p_j} (u_j w_j^T)) + beta/2 sum_j (|u_j|^2 + |w_j|^2), a few per block.

    Solutions have few neurons (ranks close to one), and a neuron costs one product with X where a block costs c of
    them. One step, between two passes over all blocks:

    1. the steepest neuron of every block with Omega°(-A*_p V) > beta is added (BM eq. 20), at the length that lowers
       the convex objective most, unless the block has neurons enough to reach every Z_p, or one that is much like it;
    2. ``chunk`` iterations of L-BFGS move all neurons, preconditioned with X^T X; slopes along a line cost no product;
    3. neurons that have vanished are dropped. What L-BFGS remembers of the others is kept.

    Then V and Omega°(-A* V) over all blocks give the gap. The program is not convex, but its certificate is valid.
    """

    dtype: str = "float32"
    chunk: int = 20
    remember: int = 20
    patience: int = 20

    name = "active_neurons"
    needs = {"gauge": (BlockGauge, Factorised, FactorSteps)}  # noqa: RUF012
    needs_smooth_loss = True
    instead = "fista"
    check_every = 20

    def _refusal(self, problem: Problem) -> str | None:
        return smooth_price_refusal(self.name, problem)

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> _State:
        work = problem.to(getattr(torch, self.dtype))
        Z = work.operator.zeros() if start is None else start.to(work.operator.like)
        rows, block = _neurons(work, Z)
        state = _State(work, ProductsFor(work.operator), Memory(self.remember), rows, block)
        _pass(problem, state, work.operator.forward(Z))
        return state

    def step(self, problem: Problem, state: _State) -> _State:
        added = _add_violated(state)
        if not len(state.rows):
            state.stuck = True
            return state
        products = state.products(state.block, state.rows)
        moved = _descend(state.work, products, state.memory, self.chunk)
        state.rows = products.rows
        _pass(problem, state, products.P)
        _drop_dust(state)
        state.stuck = not (added or moved)
        return state

    def point(self, problem: Problem, state: _State) -> Tensor:
        a = problem.operator.block_shape[1]
        rows = state.rows.to(problem.operator.like)
        return lifted(problem.operator, state.block, rows[:, :a], rows[:, a:])

    def candidates(self, problem: Problem, state: _State) -> Sequence[Tensor]:
        return () if state.fresh or state.V is None else (state.V.to(problem.operator.like),)

    def estimate(self, problem: Problem, state: _State) -> float | None:
        return state.guess

    def finished(self, state: _State) -> bool:
        return state.stuck or state.since_best >= self.patience


def smooth_price_refusal(name: str, problem: Problem) -> str | None:
    """Why a smooth method on factors does not apply, if it does not."""
    if as_protocol(problem.gauge, Factorised).smooth_factors(problem.operator.block_shape[2]):
        return None
    return f"{name} needs a smooth price on factors; {problem.gauge.name} with several outputs has none."


def _neurons(work: Problem, Z: Blocks) -> tuple[Rows, Tensor]:
    """The cheapest neurons of a lifted variable."""
    used = Z.flatten(1).any(1).nonzero()[:, 0]
    U, W = as_protocol(work.gauge, Factorised).split(Z[used])
    size = torch.linalg.vector_norm(U, dim=1) * torch.linalg.vector_norm(W, dim=1)
    alive = size > torch.finfo(Z.dtype).eps * size.max() if len(used) else size > 0
    which, column = alive.nonzero(as_tuple=True)
    return torch.cat([U[which, :, column], W[which, :, column]], 1), used[which]


def _pass(problem: Problem, state: _State, P: Matrix) -> None:
    """A* V over all blocks, and from it an estimate of the gap."""
    data, work, state.P = problem.datafit, state.work, P
    P = P.to(data.targets)
    V = data.into_domain(data.grad(P))
    state.G = -work.operator.adjoint(V.to(work.operator.like))
    polar = work.gauge.polar(state.G).upper
    dual = -data.conjugate(min(1.0, problem.beta / polar) * V if polar > 0 else V)
    state.fresh = dual >= state.dual
    if state.fresh:
        state.dual, state.V = dual, V
    primal = data.value(P) + 0.5 * problem.beta * float(state.rows.square().sum())
    state.guess = max(primal - state.dual, 0.0) / primal if primal > 0 else 0.0
    better = state.guess < 0.9 * state.best_guess
    state.best_guess = state.guess if better else state.best_guess
    state.since_best = 0 if better else state.since_best + 1


def _add_violated(state: _State) -> bool:
    """Add neurons to the violated blocks that need some, weighted by their violation; False if there are none."""
    work = state.work
    p, a, b = work.operator.block_shape
    excess = (as_protocol(work.gauge, BlockGauge).block_polar(state.G) / work.beta - 1).clamp(min=0)
    U, W = as_protocol(work.gauge, FactorSteps).steepest(state.G)
    new = torch.cat([U[:, :, 0], W[:, :, 0]], 1)
    room = torch.bincount(state.block, minlength=p) < min(a, b)
    blocks = (room & (excess > 0) & (_likeness(state, new) < _ALIKE)).nonzero()[:, 0]
    if not len(blocks):
        return False
    new = new[blocks] * excess[blocks].sqrt()[:, None]
    along = state.products(blocks, new).P
    t = _best_length(work, state.P, along, 0.5 * work.beta * float(new.square().sum()))
    if t == 0:
        return False
    state.rows, state.block = torch.cat([state.rows, t**0.5 * new]), torch.cat([state.block, blocks])
    state.memory.grow(len(blocks))
    return True


def _likeness(state: _State, new: Rows) -> Float[Tensor, " p"]:
    """The largest cosine between u w^T and a neuron of the same block; 0 in blocks without neurons."""
    a, there = state.work.operator.block_shape[1], new[state.block]
    inner = [(state.rows[:, part] * there[:, part]).sum(1) for part in (slice(a), slice(a, None))]
    size = torch.stack([_sizes(rows, a) for rows in (state.rows, there)]).prod(0)
    cosine = inner[0] * inner[1] / size.clamp(min=torch.finfo(size.dtype).tiny)
    return new.new_zeros(len(new)).scatter_reduce(0, state.block, cosine, "amax")


def _best_length(work: Problem, P: Matrix, along: Matrix, price: float) -> float:
    """A t near the minimum of F(P + t along) + t price, by doubling or halving; 0 if that does not fall."""
    b = work.datafit.offset(P)

    def falls(t: float) -> bool:
        return float((_loss_gradient(work, P + t * along, b) * along).sum()) + price < 0

    if falls(1.0):
        return next((2.0**k for k in range(_DOUBLINGS) if not falls(2.0 ** (k + 1))), 2.0**_DOUBLINGS)
    return next((0.5**k for k in range(1, _DOUBLINGS) if falls(0.5**k)), 0.0)


def _loss_gradient(work: Problem, P: Matrix, b: Tensor) -> Matrix:
    """The gradient of the loss at the intercept b; grad F if b is the best one."""
    return work.datafit.weights * work.datafit.loss.grad(P + b, work.datafit.targets)


def _sizes(rows: Rows, a: int) -> Float[Tensor, " r"]:
    """|u_j| |w_j|."""
    return torch.linalg.vector_norm(rows[:, :a], dim=1) * torch.linalg.vector_norm(rows[:, a:], dim=1)


def _drop_dust(state: _State) -> None:
    a = state.work.operator.block_shape[1]
    size = _sizes(state.rows, a)
    kept = (size > min(_DUST * state.guess, _DUST) * size.max()).nonzero()[:, 0]
    if len(kept) < len(size):
        state.rows, state.block = state.rows[kept], state.block[kept]
        state.memory.keep(kept)


def _descend(work: Problem, products: NeuronProducts, memory: Memory, steps: int) -> bool:
    """Iterations of L-BFGS; False if none was possible."""
    curvature = products.curvature(work)
    divide: Callable[[Rows], Rows] = (lambda rows: rows / work.beta) if curvature is None else curvature.divide
    gradient, b = _gradient(work, products)
    for k in range(steps):
        step = -memory.divide(gradient, divide)
        if not float((gradient * step).sum()) < 0:  # rounding, or NaN
            memory.reset()
            step = -divide(gradient)
        t, P = _line_search(work, products, step, float((gradient * step).sum()), b)
        if t == 0:
            return k > 0
        products.move(step, t, P)
        before = gradient
        gradient, b = _gradient(work, products)
        memory.remember(t * step, gradient - before)
    return True


def _gradient(work: Problem, products: NeuronProducts) -> tuple[Rows, Tensor]:
    """The gradient of the objective at the best intercept, and that intercept."""
    b = work.datafit.offset(products.P)
    return products.pull(_loss_gradient(work, products.P, b)).add_(products.rows, alpha=work.beta), b


def _line_search(work: Problem, products: NeuronProducts, step: Rows, falls: float, b: Tensor) -> tuple[float, Matrix]:
    """A step length and the predictions there; 0 without descent. The intercept is fixed, which bounds F from above."""
    if not falls < 0:
        return 0.0, products.P
    (first, second), P = products.along(step), products.P
    tilt, bend = float((products.rows * step).sum()), float(step.square().sum())

    def slope(t: float) -> float:
        V = _loss_gradient(work, P + t * first + t**2 * second, b)
        return float((V * (first + 2 * t * second)).sum()) + work.beta * (tilt + t * bend)

    t = step_length(slope, falls)
    return t, P + t * first + t**2 * second
