"""The factored form of a ReLU network: neurons that stay in the cones of their activation patterns."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bidual.gauges import Factors, Nuclear
from bidual.operators import GatedOperator, LiftedOperator, PooledOperator
from bidual.papers.methods.cone_projection import Cones
from bidual.polar import Faces, NeuronOracle
from bidual.problems.certificate import certify
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.solution import Verdict
from bidual.runtime.user_warnings import warn_user
from bidual.solvers.factored.arithmetic import resized
from bidual.solvers.factored.program import FactoredProgram, Scaling, Violation


@dataclass(frozen=True, eq=False, kw_only=True)
class ConeProgram(FactoredProgram):
    r"""min F(sum_p D_p X U_p W_p^T) + beta/2 (|U|^2 + |W|^2) subject to (2 D_p - I) X U_p >= 0, BM eq. 19.

    With a readout it is the factored form of ReLU convolutions and attention (BM eq. 24, 134): the cones are those of
    the patches.

    A feasible point is a ReLU network of P m neurons with the same predictions and weight decay. So its certificate is
    that of the network, over all activation patterns, by an oracle for the steepest neuron. Make it by :meth:`of`.

    No number of factors removes spurious local minima here (docs/corrections.md, BM Theorem 3.3).
    """

    relu: ReluProblem
    patterns: Bool[Tensor, "p n"]
    oracle: NeuronOracle

    @classmethod
    def of(
        cls,
        relu: ReluProblem,
        patterns: Bool[Tensor, "p n"],
        m: int,
        scaling: Scaling | str = Scaling.SUM,
        oracle: NeuronOracle | None = None,
    ) -> Self:
        """The program over ``patterns``; the oracle is exact, for data of low rank, unless another one is given."""
        relu.check_weight_decay("the factored ReLU program")
        if patterns.ndim != 2 or patterns.shape[1] != len(relu.X) or not len(patterns):
            raise ValueError(f"patterns must have shape (P, {len(relu.X)}) with P >= 1, got {tuple(patterns.shape)}.")
        unit = Scaling(scaling).factor(relu.datafit.targets)
        relu = relu.with_beta(relu.beta / unit)
        oracle = relu.oracle(Faces) if oracle is None else oracle
        relu.check_oracle(oracle)
        return cls(gated_program(relu, patterns), m, unit, relu=relu, patterns=patterns, oracle=oracle)

    @cached_property
    def cones(self) -> Cones:
        return Cones.of(self.relu.X, self.patterns)

    @property
    def smooth(self) -> bool:
        return False

    def warn_if_wasteful(self) -> None:
        """By Caratheodory's theorem no network needs more than n c + 1 neurons."""
        n, c = self.operator.output_shape
        if self.m > n * c + 1:
            warn_user(
                f"m={self.m} factors per block are more than the n c + 1 = {n * c + 1} neurons that any optimum needs.",
                UserWarning,
            )

    def check_feasible(self, factors: Factors) -> None:
        if not bool(self.cones.contains(factors.U).all()):
            raise ValueError("some columns of U leave the cones of their patterns; use program.feasible(factors).")

    def feasible(self, factors: Factors) -> Factors:
        return Factors(self.cones.project(factors.U), factors.W)

    def prox(self, factors: Factors, step: float) -> Factors:
        """Cones are closed under scaling: shrink, then project."""
        return self.feasible(super().prox(factors, step))

    def network(self, factors: Factors) -> Factors:
        """Hidden weights (1, d, q) and output weights (1, c, q) of the neurons that are not zero, at least of one."""
        U, W = (part.permute(1, 0, 2).flatten(1) for part in factors)
        alive = torch.linalg.vector_norm(U, dim=0) > 0
        if not bool(alive.any()):
            return Factors(torch.ones_like(U[None, :, :1]), torch.zeros_like(W[None, :, :1]))
        return Factors(U[None, :, alive], W[None, :, alive])

    def judged(self, factors: Factors) -> Verdict:
        """The ReLU network that the factors are, against all networks: scope ALL_PATTERNS."""
        U, W = self.network(factors)
        master = self.relu.restricted_to(U[0].T)
        Z = (W[0] * torch.linalg.vector_norm(U[0], dim=0)).T.reshape(master.operator.block_shape)
        return Verdict(master, certify(master, Z, oracle=self.oracle))

    def polar(self, factors: Factors) -> float:
        """max |V^T (X u)_+| over all unit u, at least the maximum over the program's own cones in BM's form of (20)."""
        return self.oracle.steepest(self.problem.residual(self.product(factors))).bracket.upper

    def violation(self, factors: Factors) -> Violation | None:
        """The steepest neuron over all patterns, in a block of its own if its pattern has none yet."""
        V = self.problem.residual(self.product(factors))
        peaks = self.oracle.steepest(V, above=self.problem.beta)
        if not len(peaks.neurons) or float(peaks.values[0]) <= self.problem.beta:
            return None
        u = peaks.neurons[0].to(self.relu.X)
        program, factors, block = self._with_block(factors, self.relu.X @ u >= 0)
        w = -(_features(self.relu, u).T @ V).flatten()
        (p, a, _), (_, b, _) = program.shapes
        U, W = u.new_zeros(p, a, 1), u.new_zeros(p, b, 1)
        U[block, :, 0], W[block, :, 0] = u, w / torch.linalg.vector_norm(w)
        return Violation(program, factors, Factors(U, W))

    def _with_block(self, factors: Factors, pattern: Bool[Tensor, " n"]) -> tuple["ConeProgram", Factors, int]:
        """The program with a block for the pattern, zero factors there if it is new, and its index."""
        same = (self.patterns == pattern).all(1).nonzero()
        if len(same):
            return self, factors, int(same[0])
        more = torch.cat([self.patterns, pattern[None]])
        grown = replace(self, problem=gated_program(self.relu, more), patterns=more)
        padded = Factors(*(torch.cat([part, torch.zeros_like(part[:1])]) for part in factors))
        return grown, padded, len(self.patterns)

    def appended(self, factors: Factors, columns: Factors) -> tuple["ConeProgram", Factors]:
        """The new column in an empty column of its block; if there is none, every block gets one more column."""
        block = int(columns.U.flatten(1).any(1).nonzero()[0])
        taken = [*(factors.U[block].any(0) | factors.W[block].any(0)).tolist(), False]
        place = taken.index(False)
        U, W = (part.clone() for part in resized(factors, max(self.m, place + 1)))
        U[block, :, place], W[block, :, place] = columns.U[block, :, 0], columns.W[block, :, 0]
        return replace(self, m=U.shape[2]), Factors(U, W)


def gated_program(relu: ReluProblem, patterns: Bool[Tensor, "p R"]) -> Problem:
    """The program of the gated network with these patterns, one column per row of X (BM eq. 5, 130, 135)."""
    c = relu.datafit.targets.shape[1]
    operator: LiftedOperator = GatedOperator(relu.X, patterns, c)
    if relu.readout is not None:
        operator = PooledOperator(relu.readout, c, patterns=patterns)
    return Problem(operator, relu.datafit, Nuclear(), relu.beta)


def _features(relu: ReluProblem, u: Float[Tensor, " d"]) -> Float[Tensor, "N a"]:
    """L[(X u)_+], what a neuron contributes to the predictions before its output weights."""
    H = (relu.X @ u).clamp(min=0)[:, None]
    return H if relu.readout is None else relu.readout.pool(H)[:, 0]
