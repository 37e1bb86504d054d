"""Parallel networks of three layers and more as scikit-learn estimators."""

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from bidual.architectures import GatedParallel, ParallelMLP
from bidual.architectures.cells import Cells
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.network import check_patterns, oracle_of
from bidual.estimators.programs import FixedProgram, NeuronProgram, Program
from bidual.estimators.targets import ClassifierTargets, RegressorTargets
from bidual.losses import Loss
from bidual.losses.datafit import Datafit
from bidual.operators.parallel import as_widths
from bidual.patterns import with_constant
from bidual.problems.parallel import ParallelProblem
from bidual.problems.problem import Problem
from bidual.runtime.memory import available_bytes, human_bytes
from bidual.training.parallel.plan import PARALLEL_SOLVERS, ParallelPlan

_ACTIVATIONS = ("relu", "gated_relu")
_SAMPLED = 40  # sub-networks of the gated model, as in PR A.1


class ConvexParallel(ConvexEstimator):
    """What the parallel classifier and regressor share: parameters, and the program for an activation."""

    def __init__(
        self,
        *,
        widths: int | tuple[int, ...] = 3,
        activation: str = "relu",
        beta: float | str = "auto",
        patterns: int | str = "auto",
        loss: str | Loss = "auto",
        solver: str = "auto",
        tol: float = 1e-4,
        max_iter: int | None = None,
        max_time: float | None = None,
        hidden_bias: bool = True,
        fit_intercept: bool = True,
        random_state: int | np.random.RandomState | None = 0,
        warm_start: bool = False,
        verbose: int | bool = 0,
        device: str = "cpu",
    ) -> None:
        self.widths = widths
        self.activation = activation
        self.beta = beta
        self.patterns = patterns
        self.loss = loss
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.hidden_bias = hidden_bias
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.device = device

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.activation not in _ACTIVATIONS:
            raise ValueError(f"activation must be one of {list(_ACTIVATIONS)}, got {self.activation!r}.")
        widths = as_widths(self.widths)
        if self.activation == "gated_relu" and len(widths) > 1:
            raise ValueError(f"activation='gated_relu' is for three layers, one width, got {self.widths!r}.")
        check_patterns(self.patterns, self.activation)

    def _check_solver(self) -> None:
        if self.activation != "relu":
            super()._check_solver()
        elif self.solver not in ("auto", *PARALLEL_SOLVERS):
            raise ValueError(
                f"solver must be 'auto' or one of {sorted(PARALLEL_SOLVERS)} for relu, got {self.solver!r}."
            )

    def _make_program(self, X: Tensor, datafit: Datafit) -> Program:
        return self._gated(X, datafit) if self.activation == "gated_relu" else self._relu(X, datafit)

    def _relu(self, X: Tensor, datafit: Datafit) -> Program:
        widths, bias = as_widths(self.widths), bool(self.hidden_bias)
        problem = ParallelProblem(with_constant(X) if bias else X, datafit, 1.0, widths)
        plan = ParallelPlan(problem.X, widths, *oracle_of(self.patterns), self._seed())
        return NeuronProgram(problem, lambda neurons: ParallelMLP(neurons, widths, bias), plan)

    def _gated(self, X: Tensor, datafit: Datafit) -> Program:
        n_outputs = datafit.targets.shape[1]
        architecture = GatedParallel(self._cells(X, n_outputs), bool(self.hidden_bias))
        operator = architecture.lift(X, n_outputs)
        return FixedProgram(Problem(operator, datafit, architecture.gauge(), 1.0), architecture)

    def _cells(self, X: Tensor, n_outputs: int) -> Cells:
        """The last fit's, where that may be continued, or new ones."""
        last = getattr(getattr(self, "architecture_", None), "cells", None)
        d, (width,) = X.shape[1] + bool(self.hidden_bias), as_widths(self.widths)
        count = _SAMPLED if self.patterns == "auto" else int(self.patterns)
        settings = (count, d, width, repr(self.random_state))
        if self.warm_start and last is not None and getattr(self, "_cell_settings", None) == settings:
            return last
        self._cell_settings = settings
        need = 8 * count * (len(X) * (len(X) + width) + 12 * width * d * n_outputs)
        if need > available_bytes(X.device):
            raise ValueError(
                f"{count} sub-networks on {len(X)} samples would need {human_bytes(need)}, and "
                f"{human_bytes(available_bytes(X.device))} are free; lower patterns, or use fewer samples."
            )
        return Cells.sample(d, count, width, torch.Generator().manual_seed(self._seed())).to(X)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))


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
        patterns: for "relu", "auto" (all patterns of both layers where that is affordable, about a dozen samples in the
            plane; elsewhere a search from 512 starts with a proved bound), "exact" (all patterns, or a refusal that
            says how many there are) or a number of search starts. For "gated_relu", how many sub-networks are sampled;
            "auto" is 40.
        hidden_bias: whether first-layer units have a bias, which counts in the path norm.
        loss, solver, tol, max_iter, max_time, fit_intercept, random_state, warm_start, verbose, device: as in
            :class:`ConvexMLPClassifier`; for "relu" the solver is column generation.

    Attributes:
        certificate_: for "relu" about all parallel networks of these widths. Where patterns were searched its gap can
            be large although no better network was found. Beyond three layers it is about trees with these numbers of
            inputs per unit; ``module_`` holds them in dense layers of m_1 m_2 ..., m_2 ..., ... units, which could do
            better with the weights that are zero in a tree.
        module_: the network, a :class:`bidual.architectures.modules.ParallelNetwork`; ``n_neurons_`` counts its
        sub-networks. beta_, beta_max_, n_iter_, history_, solver_, classes_, n_features_in_: as in
        :class:`ConvexMLPClassifier`.
    """


class ConvexParallelRegressor(RegressorTargets, ConvexParallel):
    """Path-regularised parallel network regressor; parameters are those of :class:`ConvexParallelClassifier`."""
