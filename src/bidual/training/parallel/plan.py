"""How parallel networks are trained: two layers first, then search, then proof."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

import clarabel
import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy import sparse
from torch import Tensor

from bidual.numerics.clarabel import clarabel_answer
from bidual.operators.parallel import Widths, as_widths
from bidual.polar.base import NeuronOracle, Neurons
from bidual.polar.subnetworks.base import ParallelOracle, copies
from bidual.polar.subnetworks.bound import RelaxedBound
from bidual.polar.subnetworks.outputs import AllOutputs
from bidual.polar.subnetworks.pricing import ExactParallel, exact_pricing_cost
from bidual.polar.subnetworks.search import ParallelSearch
from bidual.problems.parallel import ParallelProblem
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits, Solution
from bidual.runtime.crossovers import PROOFS
from bidual.runtime.memory import available_bytes
from bidual.runtime.numerical_errors import NUMERICAL
from bidual.solvers.driver import Plan, Stage
from bidual.training.parallel.product_bound import JointParallelBound, parallel_bytes_needed
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.training.relu.lower_bounds import DualPoints
from bidual.training.relu.plan import MOMENT, NeuronPlan, ReluPlan
from bidual.training.relu.start import NetworkStart
from bidual.types import Matrix

PARALLEL_SOLVERS = ("column_generation",)
_ROUGH = 1e-3  # the search gap at which exact questions begin to pay
_ASKED = 60  # questions to a quick bound about several outputs
_SEEDS = 64  # two-layer neurons whose copies a search starts from
_HIGHER_RANK, _QUESTIONS = 30, 50  # what a question costs more beyond the plane, and how many several outputs need
_AFFORDABLE = 1e6  # networks to look at without being asked: seconds to a minute
_STEPS = 200  # of column generation
_ROUNDS, _CUTS, _CLOSE = 8, 15, 1e-4  # of cutting planes for the relaxed dual
_LARGEST = 60  # samples of that program, which has five variables for each


@dataclass(frozen=True, eq=False)
class ParallelPlan(NeuronPlan):
    """Trains parallel networks.

    It starts from the two-layer network at beta / sqrt(m_1 m_2 ...), whose copies are a parallel network of the same
    value and often the optimum, and adds sub-networks that a search finds. Then exact pricing finds the rest and proves
    the answer, where it is affordable; elsewhere a bound says how good the answer is at least.

    Attributes:
        widths: m_1, or (m_1, ..., m_(L-2)) for L layers.
    """

    X: Float[Tensor, "n d"]
    widths: Widths
    oracle: str = "auto"
    n_starts: int | str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "widths", as_widths(self.widths))
        if self.oracle == "exact":  # refused before any work where exact pricing would look at too much
            widths = as_widths(self.widths)
            if len(widths) > 1:
                raise ValueError(f"oracle='exact' is for three layers, one width, got {widths}; use 'auto', a search.")
            exact_pricing_cost(len(self.X), self.rank, widths[0], refuse=True)

    def exact(self, n_outputs: int = 1) -> bool:
        """Whether all patterns are looked at: for several outputs many times, and less quickly beyond the plane."""
        widths = as_widths(self.widths)
        if self.oracle != "auto" or len(widths) > 1:
            return self.oracle == "exact"
        slower = (1 if self.rank <= 2 else _HIGHER_RANK) * (1 if n_outputs == 1 else _QUESTIONS)
        return slower * exact_pricing_cost(len(self.X), self.rank, widths[0]) <= _AFFORDABLE

    @cached_property
    def _priced(self) -> ExactParallel:
        return ExactParallel(self.X, self.widths)

    @cached_property
    def _relaxed(self) -> RelaxedBound:
        return RelaxedBound(self.X, self.widths)

    @cached_property
    def _plain(self) -> ReluPlan:
        return ReluPlan(self.X, seed=self.seed)

    def parallel_oracle(self, n_outputs: int) -> ParallelOracle:
        """The oracle that proves: exact pricing, or a bound."""
        if self.exact(n_outputs):
            return self._priced if n_outputs == 1 else AllOutputs(self._priced)
        if n_outputs == 1:
            return self._relaxed
        questions = _ASKED if self._relaxed.quick else n_outputs
        return AllOutputs(RelaxedBound(self.X, self.widths, nodes=0), max_queries=questions)

    def _search(self) -> ParallelSearch:
        more = {} if isinstance(self.n_starts, str) else {"starts": self.n_starts}
        return ParallelSearch(self.X, self.widths, seed=self.seed, **more)

    def steepest(self, V: Matrix) -> float:
        """Attained by a sub-network: the steepest, or the best of a search and of two layers' copies."""
        if self.exact(V.shape[1]):
            return self.parallel_oracle(V.shape[1]).steepest(V).bracket.lower
        two = self._plain.neuron_oracle.steepest(V).neurons[:_SEEDS]
        return self._search().steepest(V, seeds=copies(two, self.widths)).bracket.lower

    def check(self, problem: ParallelProblem, solver: str, max_time: float | None = None) -> None:
        if solver not in ("auto", *PARALLEL_SOLVERS):
            raise ValueError(f"solver must be 'auto' or one of {sorted(PARALLEL_SOLVERS)}, got {solver!r}.")

    def stages(
        self,
        problem: ParallelProblem,
        limits: Limits,
        solver: str,
        prove: bool,
        candidates: tuple[Matrix, ...],
        start: NetworkStart | None,
    ) -> Plan:
        outputs = problem.datafit.targets.shape[1]
        exact, steps = self.exact(outputs), _STEPS if limits.max_steps is None else limits.max_steps
        two = self._two_layers(problem, limits)
        left = replace(limits.after(two.seconds, least=MOMENT), max_steps=steps)
        search = ColumnGeneration(self._search().within(left.max_time), copies(two.neurons, self.widths))
        found = yield Stage(search, replace(left, tol=max(limits.tol, _ROUGH) if exact else limits.tol))
        left = replace(limits.after(found.seconds, least=MOMENT), max_steps=steps)
        if exact:
            yield Stage(ColumnGeneration(self.parallel_oracle(outputs).within(left.max_time)), left)
        elif prove:
            yield from self._proofs(problem, left, found, two, candidates)

    def _has_product_bound(self, problem: ParallelProblem) -> bool:
        """It is for the processor, and for one output."""
        one = problem.datafit.targets.shape[1] == 1 and problem.units > 1
        fits = one and problem.X.device.type == "cpu" and not self._relaxed.quick
        return fits and parallel_bytes_needed(problem.X) <= available_bytes(problem.X.device) / 2

    def _two_layers(self, problem: ParallelProblem, limits: Limits) -> Solution:
        """The two-layer network at beta / sqrt(m_1 m_2 ...), another problem whose copies are the first neurons."""
        plain = ReluProblem(self.X, problem.datafit, problem.beta / sqrt(problem.units))
        share = None if limits.max_time is None else limits.max_time / 3
        return self._plain.train(plain, Limits(limits.tol, max_time=share), prove=False)

    def _proofs(
        self, problem: ParallelProblem, left: Limits, found: Solution, two: Solution, candidates: tuple[Matrix, ...]
    ) -> Plan:
        """Products of rows, for one output where questions about two layers are slow. Elsewhere the bound at the last
        dual point; where it is quick, also at those of two layers and of its relaxation."""
        if self._has_product_bound(problem):
            seconds = None if left.max_time is not None else PROOFS.seconds_after(found.seconds)
            with suppress(*NUMERICAL):  # the network keeps the bound that it has
                yield Stage(JointParallelBound(seconds), replace(left, max_steps=None))
            return
        oracle = self.parallel_oracle(problem.datafit.targets.shape[1]).within(left.max_time)
        left = replace(left, max_steps=None)
        before = found.seconds
        found = yield Stage(DualPoints(oracle, (found.dual_point, *candidates), problem.beta), left)
        left = left.after(found.seconds - before)
        if self._relaxed.quick and (left.max_time is None or left.max_time > MOMENT):
            best = relaxed_dual(problem, self._plain.neuron_oracle, two.neurons)
            points = (two.dual_point,) if best is None else (two.dual_point, best)
            yield Stage(DualPoints(oracle, points, problem.beta), left)


def relaxed_dual(problem: ParallelProblem, oracle: NeuronOracle, neurons: Neurons) -> Matrix | None:
    r"""The dual point at which the relaxed bound proves the most, for one output and squared loss; None elsewhere.

    The bound of :mod:`bidual.polar.subnetworks.bound` holds for any split v = a - b into non-negative parts: N(v) is at
    most beta if for both signs of v, with beta' = beta / sqrt(m_1 m_2 ...) and e = a - theta b,

        e >= v,   c >= 0,   c >= -e,   e^T (X u)_+ <= beta',   c^T (X u)_+ <= beta'   for all |u| <= 1

    have a solution: convex in v, e and c together. Maximising the dual over it is a quadratic program with one
    constraint for every two-layer neuron u, of which few are active: cutting planes, from the given neurons on. Its own
    dual replaces each second-layer unit h_+ by any p with (h)_+ <= p <= h_(+), the part of h from units of sign +1: the
    linear relaxation of the ReLU.
    """
    data = problem.datafit
    if data.targets.shape[1] != 1 or not data.loss.half_square or len(problem.X) > _LARGEST:
        return None
    n, level, known = len(problem.X), problem.beta / sqrt(problem.units), [_features(problem, neurons)]
    best = None
    for _ in range(_ROUNDS):
        x = _relaxed_program(problem, np.concatenate(known), level)
        if x is None:
            break
        best = torch.from_numpy(x[:n].copy()).to(problem.X)[:, None]
        found = [oracle.steepest(torch.from_numpy(part)[:, None]) for part in x.reshape(5, n)[1:]]
        known += [_features(problem, one.neurons[:_CUTS]) for one in found]
        if max(one.bracket.lower for one in found) <= level * (1 + _CLOSE):
            break
    return best


def _features(problem: ParallelProblem, neurons: Neurons) -> Float[ndarray, "q n"]:
    unit = neurons / torch.linalg.vector_norm(neurons, dim=1, keepdim=True)
    return (problem.X @ unit.to(problem.X).T).clamp(min=0).T.cpu().numpy()


def _relaxed_program(problem: ParallelProblem, F: Float[ndarray, "q n"], level: float) -> Float[ndarray, " x"] | None:
    """min F*(v) over (v, e, c, e', c'), the primed ones for -v, at a scale where the targets are of size one."""
    data, n = problem.datafit, F.shape[1]
    y, w = (part.cpu().numpy().ravel() for part in (data.targets, data.weights))
    size = max(float(np.abs(y).max()), 1e-300)
    P = sparse.csc_array(sparse.block_diag([sparse.diags_array(1 / w), sparse.csc_array((4 * n, 4 * n))]))
    equal = sparse.csr_array(np.concatenate([np.ones(n), np.zeros(4 * n)])[None] if data.intercept else (0, 5 * n))
    below = sparse.vstack([_order(n), sparse.kron(sparse.eye_array(5).tocsr()[1:], sparse.csr_array(F))])
    b = np.concatenate([np.zeros(equal.shape[0] + 6 * n), np.full(4 * len(F), level / size)])
    cones = [clarabel.ZeroConeT(equal.shape[0]), clarabel.NonnegativeConeT(below.shape[0])]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    q = np.concatenate([y / size, np.zeros(4 * n)])
    x = size * clarabel_answer(P, q, sparse.csc_array(sparse.vstack([equal, below])), b, cones, settings).x
    return x if np.isfinite(x).all() else None


def _order(n: int) -> sparse.sparray:
    """v <= e, -v <= e', -e <= c, -e' <= c', 0 <= c, 0 <= c' as rows M x <= 0."""
    signs = np.array(
        [[1, -1, 0, 0, 0], [-1, 0, 0, -1, 0], [0, -1, -1, 0, 0], [0, 0, 0, -1, -1], [0, 0, -1, 0, 0], [0, 0, 0, 0, -1]]
    )
    return sparse.kron(sparse.csr_array(signs), sparse.eye_array(n))
