"""Parallel networks of three layers and more as scikit-learn estimators."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bidual.architectures import GatedParallel, ParallelMLP
from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.parameters import COUNT, accepted_by, as_count, check_memory, one_of, parameter
from bidual.estimators.programs import FixedProgram, NeuronProgram, Program
from bidual.estimators.targets import ClassifierTargets, RegressorTargets
from bidual.losses.datafit import Datafit
from bidual.operators.parallel import as_widths
from bidual.patterns import with_constant
from bidual.problems.parallel import ParallelProblem
from bidual.training.parallel.plan import PARALLEL_SOLVERS, ParallelPlan

_SAMPLED = 40  # sub-networks of the gated model, as in PR A.1


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexParallel(ConvexEstimator):
    """What the parallel classifier and regressor share: parameters, and the program for an activation."""

    widths: int | tuple[int, ...] = parameter(3, accepted_by(as_widths))
    activation: str = parameter("relu", one_of(("relu", "gated_relu")))
    n_subnetworks: int | str = parameter("auto", COUNT, activation="gated_relu")

    _relu_solvers = PARALLEL_SOLVERS

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.activation == "gated_relu" and len(as_widths(self.widths)) > 1:
            raise ValueError(f"activation='gated_relu' is for three layers, one width, got {self.widths!r}.")

    def _make_program(self, X: Tensor, datafit: Datafit) -> Program:
        return self._gated(X, datafit) if self.activation == "gated_relu" else self._relu(X, datafit)

    def _relu(self, X: Tensor, datafit: Datafit) -> Program:
        widths, bias = as_widths(self.widths), bool(self.hidden_bias)
        problem = ParallelProblem(with_constant(X) if bias else X, datafit, 1.0, widths)
        plan = ParallelPlan(problem.X, widths, self.oracle, as_count(self.n_starts, "auto"), self._seed())
        return NeuronProgram(problem, lambda neurons: ParallelMLP(neurons, widths, bias), plan)

    def _gated(self, X: Tensor, datafit: Datafit) -> Program:
        cells = self._cells(X, datafit.targets.shape[1])
        return FixedProgram.of(GatedParallel(cells, bool(self.hidden_bias)), X, datafit)

    def _cells(self, X: Tensor, n_outputs: int) -> SubNetworkGates:
        """The last fit's, where that may be continued, or new ones."""
        last = getattr(getattr(self, "architecture_", None), "gates", None)
        d, (width,) = X.shape[1] + bool(self.hidden_bias), as_widths(self.widths)
        count = as_count(self.n_subnetworks, _SAMPLED)
        settings = (count, d, width, repr(self.random_state))
        if self.warm_start and last is not None and getattr(self, "_cell_settings", None) == settings:
            return last
        self._cell_settings = settings
        need = 8 * count * (len(X) * (len(X) + width) + 12 * width * d * n_outputs)
        what = f"{count} sub-networks on {len(X)} samples"
        check_memory(need, X.device, what, "lower n_subnetworks, or use fewer samples")
        return SubNetworkGates.sample(d, count, width, torch.Generator().manual_seed(self._seed())).to(X)


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexParallelClassifier(ClassifierTargets, ConvexParallel):
    """Path-regularised parallel network classifier, certified.

    It minimises ``sum_i w_i loss_i + beta * path_norm`` over parallel networks of any number K of sub-networks, each
    with L layers: a convex program (PR eq. 4 = eq. 21). The path norm is the root of the sum of squared products of
    weights over all paths of a sub-network, summed over sub-networks. m_2 second-layer units are no different from one
    at ``beta / sqrt(m_2)``, so there is no parameter for it.

    Args:
        widths: m_1, the first-layer units of a sub-network of three layers, or (m_1, ..., m_(L-2)) for L layers, whose
            sub-networks are trees.
        activation: "relu", or "gated_relu", a gated linear model with the activation patterns of sampled sub-networks,
            which is what PR trains on larger data; it is no ReLU network.
        beta: in the scaling of a sum over samples; "auto" is a tenth of ``beta_max_``, the smallest beta whose optimum
            is the zero network.
        oracle: for "relu", how the steepest sub-network is found: "exact" (over all patterns of both layers, or a
            refusal that says how many there are), "search" (with a proved bound), or "auto": exact where that is
            affordable, about a dozen samples in the plane.
        n_starts: for "relu", from how many starts sub-networks are searched for; "auto" is 512.
        n_subnetworks: for "gated_relu", how many sub-networks are sampled; "auto" is 40.
        hidden_bias: whether first-layer units have a bias, which counts in the path norm.
        loss, class_weight, solver, tol, max_iter, max_time, fit_intercept, random_state, warm_start, verbose, device,
            callback: as in :class:`ConvexMLPClassifier`; for "relu" the solver is column generation.

    Attributes:
        certificate_: for "relu" about all parallel networks of these widths. Where patterns were searched its gap can
            be large although no better network was found. Beyond three layers it is about trees with these numbers of
            inputs per unit; ``module_`` holds them in dense layers of m_1 m_2 ..., m_2 ..., ... units, which could do
            better with the weights that are zero in a tree.
        module_: the network, a :class:`bidual.architectures.modules.ParallelNetwork`; ``n_neurons_`` counts its
            sub-networks.
        beta_, beta_max_, n_iter_, history_, solver_, classes_, n_features_in_: as in :class:`ConvexMLPClassifier`.
    """


class ConvexParallelRegressor(RegressorTargets, ConvexParallel):
    """Path-regularised parallel network regressor; parameters are those of :class:`ConvexParallelClassifier`."""
