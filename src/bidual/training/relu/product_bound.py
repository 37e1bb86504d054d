r"""The product bound with the dual point moved too: max -F*(V) over V and multipliers (docs/product_bound.md).

For any V, -F*(s V) with s = min(1, beta / B) is a lower bound of the optimum, where B bounds the polar at V. V and the
multipliers that make B are descended on together, first on all neurons, then on cells, split where B is largest.
"""

import math
import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, repeat
from typing import Any, Self

import torch
from torch import Tensor

from bidual.numerics.lbfgs import minimise
from bidual.polar import NeuronOracle
from bidual.polar.base import Pooled, distinct_count
from bidual.polar.products.helper import Helper
from bidual.polar.products.oracle import ProductBound, in_clusters, minimised
from bidual.polar.products.soft_bound import Cells, Covering, Soft
from bidual.polar.products.witness import ProductProof, Witness
from bidual.problems.certificate import Scope, judge
from bidual.problems.problem import NeuronProblem, ReluProblem
from bidual.problems.solution import Limits, Solution, Status, Verdict
from bidual.runtime.crossovers import PROOFS
from bidual.runtime.memory import available_bytes
from bidual.training.relu.dual_coordinates import DualCoordinates
from bidual.training.relu.lower_bounds import LowerBound
from bidual.training.relu.start import NetworkStart, predictions_at
from bidual.types import Matrix

_FARTHEST = 1e6  # predictions beyond are not worth a look
_MOVE = 0.3  # of the norm of V, how far a unit of its coordinates goes
_WARM, _WARM_STEPS = 0.1, 10  # width and steps of the descent before V moves
_WIDTH_OF_GAP, _NARROWEST = 0.25, 0.002  # smoothing by this share of the gap, at least by that
_WIDEST, _LATER_WIDEST = 0.1, 0.03  # and at most by this in the first rounds, and in later ones
_FIRST_STEPS, _STEPS = (15, 30, 60), 60  # of L-BFGS, in the first rounds and in those after them
_MEMORY, _LONG_MEMORY, _LONG = 20, 6, 1_000_000  # pairs that it keeps, of vectors up to so many numbers and beyond
_BEFORE_CELLS = 0.85  # cells are split once a round leaves more than this share of the gap
_SPLIT_WIDTH = 0.03  # of the moments by which a row is chosen
_MOST_SPLITS, _NEAR, _ACTIVE = 6, 0.015, 0.1  # cells within 1.5 % of the largest bound are split, within 10 % move
_MOST_KNOWN = 2  # cells that an earlier proof hands on, for every choice of signs: every one makes all steps longer
_USEFUL = 0.9  # an earlier proof that leaves more of the gap than this says little about the new problem
_GAIN, _PATIENCE = 0.01, 4  # it stalls where so many rounds shrink the gap by less than a hundredth


class Lift:
    """V as the oracle's rows see it: L* V merged over equal rows, times lengths; and back."""

    def __init__(self, oracle: NeuronOracle) -> None:
        self.pooled = oracle if isinstance(oracle, Pooled) else None
        inner = oracle.inner if isinstance(oracle, Pooled) else oracle
        self.lengths = inner.lengths[:, None].cpu()

    def __call__(self, V: Matrix) -> Matrix:
        rows = V if self.pooled is None else self.pooled.merged(V)
        return self.lengths * rows

    def back(self, V: Matrix, slope: Matrix) -> Matrix:
        if self.pooled is None:
            return self.lengths * slope
        V = V.detach().requires_grad_(True)
        # of a number, because torch imports a second's worth of modules where it is given a slope
        return torch.autograd.grad((self(V) * slope).sum(), V)[0]


@dataclass(frozen=True, eq=False)
class Joint:
    """A dual point by its coordinates f, and multipliers."""

    problem: NeuronProblem
    oracle: ProductBound
    lift: Lift
    f: Matrix
    cells: Covering
    reach: float  # norm of V at the beginning, times how far f moves in a unit
    unit: float  # what W and the bounds are divided by
    primal: float
    helper: Helper | None = None
    known: bool = False  # whether the multipliers come from an earlier proof
    share: float = 1.0  # of beta, what the cells' bound may be

    @property
    def dual(self) -> DualCoordinates:
        return DualCoordinates(self.problem.datafit)

    @property
    def beta(self) -> float:
        return self.share * self.problem.beta / (self.unit * self.oracle._scaled.size)

    def W(self, V: Matrix) -> Matrix:
        return self.lift(V) / self.unit

    @cached_property
    def bounds(self) -> list[float]:
        """Of the cells, not proved."""
        return self.cells.bounds(self.W(self.dual.point(self.f)))

    def refreshed(self, width: float, per_row: int) -> Self:
        return replace(self, cells=self.cells.refreshed(self.W(self.dual.point(self.f)), width, per_row))

    def warmed(self, steps: int, deadline: float) -> Self:
        W, width = self.W(self.dual.point(self.f)), _WARM * max(self.bounds)
        cells = minimised(self.cells, W, width, steps, lambda: time.perf_counter() < deadline)
        return replace(self, cells=cells)

    def moved(self, width: float, steps: int, deadline: float) -> Self:
        """After so many steps on V and the multipliers together."""
        scales, began, size = self.cells.scales(), self.cells.vector, self.f.numel()
        bound = self.cells.soft(self.helper)

        def unpack(x: Tensor) -> tuple[Matrix, Tensor]:
            return self.f + self.reach * x[:size].view_as(self.f), began + scales * x[size:]

        def slope(x: Tensor) -> tuple[float, Tensor]:
            f, vector = unpack(x)
            value, on_f, on_vector = self._slope(f, vector, bound, width)
            return value, torch.cat([self.reach * on_f.reshape(-1), scales * on_vector])

        start = self.f.new_zeros(size + len(began))
        memory = _MEMORY if len(start) <= _LONG else _LONG_MEMORY

        def in_time() -> bool:
            return time.perf_counter() < deadline

        x = minimise(slope, start, steps, memory=memory, go_on=in_time, pairs=torch.float32)
        f, vector = unpack(x)
        return replace(self, f=f, cells=self.cells.at(vector))

    def _slope(self, f: Matrix, vector: Tensor, bound: Soft, width: float) -> tuple[float, Matrix, Tensor]:
        """-(dual value) / primal, and its slopes in f and in the multipliers."""
        nothing = math.inf, torch.zeros_like(f), torch.zeros_like(vector)
        if not bool((f.abs() < _FARTHEST).all()):
            return nothing
        V = self.dual.point(f)
        if not bool(torch.isfinite(V).all()):
            return nothing
        found = bound(self.W(V).numpy(), vector.numpy(), width)
        if found is None or not found[0] > 0:
            return nothing
        largest, on_W, on_vector = found[0], torch.from_numpy(found[1]), torch.from_numpy(found[2])
        scale = min(1.0, self.beta / largest)
        scaled = (scale * V).detach().requires_grad_(True)
        value = -self.problem.datafit.conjugate_rows(scaled).sum()
        if not math.isfinite(float(value.detach())):
            return nothing
        on_scaled = torch.autograd.grad(value, scaled)[0].nan_to_num(0.0, 0.0, 0.0)  # at the domain's end V stays
        of_bound = -float((on_scaled * scaled).detach().sum()) / largest if scale < 1 else 0.0
        on_V = scale * on_scaled + of_bound / self.unit * self.lift.back(V, on_W)
        on_f = self.dual.pull(f, on_V)
        return -float(value.detach()) / self.primal, -on_f / self.primal, -of_bound / self.primal * on_vector

    @cached_property
    def gap(self) -> float:
        """The relative gap, not proved."""
        V = self.dual.point(self.f)
        scale = min(1.0, self.beta / max(*self.bounds, 1e-300))
        return 1 + float(self.problem.datafit.conjugate_rows(scale * V).sum()) / self.primal

    @property
    def _bytes(self) -> int:
        """About what a descent on all cells keeps."""
        return 8 * sum(place.pairs.count**2 + (_MEMORY + 12) * len(place.vector) for place in self.cells.places)

    def split(self) -> Self:
        """The cells near the largest bound, halved; not where memory is short."""
        if self._bytes > available_bytes(torch.device("cpu")) / 4:
            return self
        bounds = self.bounds
        order = sorted(range(len(bounds)), key=bounds.__getitem__, reverse=True)[:_MOST_SPLITS]
        which = [k for k in order if bounds[k] >= (1 - _NEAR) * max(bounds)]
        cells = self.cells.split(self.W(self.dual.point(self.f)), which, _SPLIT_WIDTH * max(bounds))
        return replace(self, cells=cells)

    def improved(self, width: float, steps: int, per_row: int, deadline: float) -> Self:
        """After a round on all cells, or once there are halves, on those that are near the largest bound; on all of
        them after all where V moved to where the others are worse."""
        bounds = self.bounds
        least = (1 - _ACTIVE) * max(bounds) if self.cells.is_split else 0.0
        active, width = [k for k, bound in enumerate(bounds) if bound >= least], width * max(bounds)
        found = self._moved_on(active, width, steps, per_row, deadline)
        if len(active) == len(bounds) or found.gap <= self.gap:
            return found
        late = time.perf_counter() >= deadline
        return self if late else self._moved_on(list(range(len(bounds))), width, steps, per_row, deadline)

    def _moved_on(self, active: list[int], width: float, steps: int, per_row: int, deadline: float) -> Self:
        part = replace(self, cells=self.cells.only(active))
        part = part.refreshed(width, per_row).moved(width, steps, deadline)
        return replace(part, cells=self.cells.replaced(active, part.cells))


@dataclass(frozen=True)
class _Time:
    """Until when a proof may go on, on the clock of ``time.perf_counter``.

    Attributes:
        ends: of the seconds that it is given.
        worth: until when it may go on in any case while a round leaves little of the gap.
        limit: of the run.
    """

    ends: float
    worth: float
    limit: float

    @classmethod
    def of(cls, seconds: float | None, max_time: float | None) -> Self:
        now = time.perf_counter()
        ends, limit = (math.inf if given is None else now + given for given in (seconds, max_time))
        return cls(ends, now + PROOFS.first, limit)

    def deadline(self, before: float, gap: float) -> float:
        """Of the round after one that led from a gap to another."""
        gains = gap < PROOFS.worth * before
        return min(max(self.ends, self.worth) if gains else self.ends, self.limit)


def _rounds(joint: Joint, per_row: int, until: _Time) -> Iterator[Joint]:
    """Better and better bounds: V fixed, then V moving, in short rounds first, which a proof of a moment has time for;
    cells are split where a long round gains little."""
    again = joint.known and joint.cells.is_split  # then it begins where rounds are long, and have been wide before
    if not again:
        joint = joint.refreshed(_WARM * max(joint.bounds), per_row).warmed(_WARM_STEPS, until.limit)
    yield joint
    before, gap, widest = joint.gap if again else math.inf, joint.gap, _LATER_WIDEST if joint.known else _WIDEST
    first = [] if again else [(steps, widest) for steps in _FIRST_STEPS]
    for steps, widest in chain(first, repeat((_STEPS, _LATER_WIDEST))):
        width = min(max(_WIDTH_OF_GAP * gap, _NARROWEST), widest)
        joint = joint.improved(width, steps, per_row, until.deadline(before, gap))
        yield joint
        before, gap = gap, joint.gap
        if steps >= _STEPS and gap > _BEFORE_CELLS * before:
            joint = joint.split()


@dataclass
class _State:
    done: Solution
    verdict: Verdict
    rounds: Iterator[Joint]
    until: _Time
    helper: Helper
    gaps: list[float] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class JointBound(LowerBound):
    """A lower bound for the network of the solver before, better with every step; see the module.

    Attributes:
        seconds: that it may take, a short first round in any case, and more while a round leaves less than a third of
            the gap (``PROOFS.worth``); None for as long as it gains and the limits allow.
        max_time: the limit of the run.
    """

    seconds: float | None = None
    max_time: float | None = None

    @abstractmethod
    def _begun(self, problem: Any, done: Solution) -> Joint:
        """Where the descent begins."""

    @abstractmethod
    def _proof(self, problem: Any, joint: Joint, norm: float) -> tuple[Witness, NeuronOracle]:
        """The multipliers for a W of this norm, and the oracle that proves with them."""

    def within(self, limits: Limits) -> Self:
        return replace(self, max_time=limits.max_time)

    def resume(self, problem: Any, done: Solution) -> _State:
        until = _Time.of(self.seconds, self.max_time)
        before = Verdict(done.problem, done.certificate, done.dual_point, done.search_gap)
        helper = Helper(min(until.ends, until.limit))
        joint = replace(self._begun(problem, done), helper=helper)
        rounds = _rounds(joint, joint.oracle.per_row, until)
        return _State(done, before, rounds, until, helper, [done.certificate.relative_gap])

    def step(self, problem: Any, state: _State) -> _State:
        joint = next(state.rounds)
        V = joint.dual.point(joint.f)
        proofs, oracle = self._proof(problem, joint, float(torch.linalg.vector_norm(joint.W(V))))
        done = state.done
        certificate = judge(
            done.problem,
            done.Z,
            V,
            lambda W: oracle.steepest(W).bracket.upper,
            Scope.ALL_PATTERNS,
            witness=proofs,
        )
        gaps = [*state.gaps, min(state.gaps[-1], certificate.relative_gap)]
        return replace(state, verdict=replace(state.verdict, certificate=certificate), gaps=gaps)

    def finished(self, state: _State) -> Status | None:
        recent = state.gaps[-_PATIENCE - 1 :]
        stalled = len(state.gaps) > 2 * _PATIENCE and recent[-1] > (1 - _GAIN) * recent[0]
        late = len(state.gaps) > 2 and time.perf_counter() > state.until.deadline(*state.gaps[-2:])
        return state.done.status if stalled or late else None

    def close(self, state: _State | None) -> None:
        if state is not None:
            state.helper.close()


@dataclass(frozen=True, eq=False)
class JointProductBound(JointBound):
    """:class:`JointBound` for two-layer networks.

    Attributes:
        near: the network of another beta, whose dual point and multipliers are begun with if they prove more.
    """

    near: NetworkStart | None = None
    name = "product_bound"
    takes = ReluProblem

    def check(self, problem: ReluProblem) -> None:
        super().check(problem)
        problem.check_weight_decay("the product bound")

    def _begun(self, problem: ReluProblem, done: Solution) -> Joint:
        return _begun(problem, done, self.near)

    def _proof(self, problem: ReluProblem, joint: Joint, norm: float) -> tuple[Witness, NeuronOracle]:
        assert isinstance(joint.cells, Cells)
        proofs = joint.oracle.proofs(joint.cells, norm)
        return proofs, problem.oracle(lambda X: ProductProof(X, proofs))


def bytes_needed(problem: ReluProblem) -> int:
    """About what the descent keeps: its vectors have the cones of all rows in every cell, and pairs of rows."""
    rows = distinct_count(problem.X) if problem.readout is None else len(problem.readout.distinct[0])
    c, d = problem.datafit.targets.shape[1], problem.X.shape[1]
    c *= 1 if problem.readout is None else problem.readout.readouts
    return cells_bytes(rows, d, 2**c if c <= ProductBound.most_outputs else 1, c)


def cells_bytes(rows: int, d: int, cells: int, c: int) -> int:
    """About what a descent on so many cells of c outputs keeps."""
    count = ProductBound.clusters if in_clusters(ProductBound, rows, c) else rows
    numbers = cells * (rows * 2 * d + count * ProductBound.per_row)
    return 8 * (numbers * (_MEMORY if numbers <= _LONG else _LONG_MEMORY) + 12 * numbers + 25 * count**2)


def _begun(problem: ReluProblem, done: Solution, near: NetworkStart | None = None) -> Joint:
    """At the network's own dual point, or at that of an earlier proof if its multipliers prove more there."""
    oracle = problem.oracle(ProductBound)
    inner = oracle.inner if isinstance(oracle, Pooled) else oracle
    assert isinstance(inner, ProductBound)
    lift, dual, f = Lift(oracle), DualCoordinates(problem.datafit), coordinates_of(done)

    def begun(f: Matrix, cells: Cells | None = None) -> Joint:
        V = dual.point(f)
        unit, known = float(torch.linalg.vector_norm(lift(V))), cells is not None
        cells = inner.start(lift(V) / unit) if cells is None else cells
        return Joint(problem, inner, lift, f, cells, reach_of(dual, V), unit, done.certificate.primal, known=known)

    if near is None or near.dual is None or near.witness is None:
        return begun(f)
    c, other = lift(dual.point(f)).shape[1], predictions_at(dual, near.dual)
    cells = inner.again(near.witness, c, _MOST_KNOWN)
    tried = [] if cells is None else [begun(point, cells) for point in (f, other) if point is not None]
    tried = [joint for joint in tried if joint.gap < _USEFUL and all(map(math.isfinite, joint.bounds))]
    return min(tried, key=lambda joint: joint.gap) if tried else begun(f)


def coordinates_of(done: Solution) -> Matrix:
    """The f of the network's own dual point."""
    program = done.problem.to(torch.float64)
    P = program.operator.forward(done.Z.to(torch.float64))
    return DualCoordinates(program.datafit).predictions(P, done.dual_point)


def reach_of(dual: DualCoordinates, V: Matrix) -> float:
    """How far a unit of f's coordinates goes, where it begins at V."""
    return _MOVE * float(torch.linalg.vector_norm(V)) / dual.speed
