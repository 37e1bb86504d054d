"""The product bound of parallel networks with the dual point moved too: max -F*(V) over V, the questions and their
multipliers (docs/parallel.md)."""

from dataclasses import dataclass
from math import prod, sqrt

import torch

from bidual.operators.parallel import as_widths
from bidual.polar import NeuronOracle
from bidual.polar.products.oracle import ProductBound
from bidual.polar.products.witness import Witness
from bidual.polar.subnetworks.descent import AskedBranches
from bidual.polar.subnetworks.witness import ParallelProof
from bidual.problems.parallel import ParallelProblem
from bidual.problems.solution import Solution
from bidual.training.relu.dual_coordinates import DualCoordinates
from bidual.training.relu.product_bound import Joint, JointBound, Lift, cells_bytes, coordinates_of, reach_of
from bidual.types import Matrix


@dataclass(frozen=True, eq=False)
class JointParallelBound(JointBound):
    """A lower bound for a parallel network with one output, better with every step; see the module."""

    name = "parallel_product_bound"
    takes = ParallelProblem

    def _begun(self, problem: ParallelProblem, done: Solution) -> Joint:
        oracle, dual, f = ProductBound(problem.X), DualCoordinates(problem.datafit), coordinates_of(done)
        lift, V = Lift(oracle), dual.point(f)
        unit = float(torch.linalg.vector_norm(lift(V)))
        widths = as_widths(problem.widths)
        cells, share = AskedBranches.start(oracle, lift(V) / unit, deep=len(widths) > 1), 1 / sqrt(prod(widths))
        return Joint(problem, oracle, lift, f, cells, reach_of(dual, V), unit, done.certificate.primal, share=share)

    def _proof(self, problem: ParallelProblem, joint: Joint, norm: float) -> tuple[Witness, NeuronOracle]:
        assert isinstance(joint.cells, AskedBranches)
        proofs = tuple(one.proof(joint.oracle, norm) for one in joint.cells.asked)
        return proofs, ParallelProof(problem.X, problem.widths, proofs)


def parallel_bytes_needed(X: Matrix) -> int:
    """About what the descent keeps, for four questions of one cell each."""
    return cells_bytes(len(X), X.shape[1], 4, 1)
