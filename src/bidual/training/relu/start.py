"""What an earlier training on like samples leaves behind for the next one to start from."""

from dataclasses import dataclass
from typing import Self

import torch

from bidual.polar import Neurons
from bidual.polar.products.witness import Witness
from bidual.problems.problem import NeuronProblem
from bidual.training.relu.dual_coordinates import DualCoordinates
from bidual.types import Blocks, Matrix


@dataclass(frozen=True, eq=False)
class NetworkStart:
    """A network to start from, and what is known about it. Only where iterations begin depends on it.

    Attributes:
        neurons: of length one.
        Z: their output weights.
        dual: the dual point of its certificate.
        witness: the multipliers of its certificate.
    """

    neurons: Neurons
    Z: Blocks | None = None
    dual: Matrix | None = None
    witness: Witness | None = None

    def fitting(self, problem: NeuronProblem) -> Self | None:
        """What has the shapes of a problem; None without neurons of its size."""
        if self.neurons.shape[1] != problem.neuron_size:
            return None
        blocks = problem.restricted_to(self.neurons.to(problem.X)).operator.block_shape
        Z = self.Z if self.Z is not None and tuple(self.Z.shape) == blocks else None
        known = self.dual is not None and self.dual.shape == problem.datafit.targets.shape
        return type(self)(self.neurons, Z, *((self.dual, self.witness) if known else (None, None)))


def predictions_at(dual: DualCoordinates, V: Matrix) -> Matrix | None:
    """An f with V(f) about V: the slope of F* there; None where it is not finite."""
    V = V.detach().to(dual.datafit.targets).requires_grad_(True)
    P = torch.autograd.grad(dual.datafit.conjugate_rows(V).sum(), V)[0]
    f = dual.predictions(P, V.detach())
    return f if bool(torch.isfinite(f).all()) else None
