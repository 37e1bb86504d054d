"""Two-layer networks as scikit-learn estimators."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from torch import Tensor

from bidual.architectures import Architecture, GatedMLP, LinearMLP
from bidual.datafit import Datafit
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.targets import ClassifierTargets, RegressorTargets
from bidual.gauges import GAUGES
from bidual.losses import Loss
from bidual.memory import available_bytes, human_bytes
from bidual.patterns import sample_gates, with_constant
from bidual.problem import Problem
from bidual.programs import FixedProgram, Program, ReluProgram
from bidual.relu import ReluProblem
from bidual.relu_training import RELU_SOLVERS, ReluTrainer

ACTIVATIONS = ("relu", "gated_relu", "linear")
AUTO_PATTERNS = 200


class ConvexMLP(ConvexEstimator):
    """What the two-layer classifier and regressor share: parameters and the choice of architecture."""

    def __init__(
        self,
        *,
        activation: str = "relu",
        beta: float | str = "auto",
        patterns: int | str = "auto",
        gates: ArrayLike | None = None,
        penalty: str = "nuclear",
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
        self.activation = activation
        self.beta = beta
        self.patterns = patterns
        self.gates = gates
        self.penalty = penalty
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
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {list(ACTIVATIONS)}, got {self.activation!r}.")
        if self.penalty not in GAUGES:
            raise ValueError(f"penalty must be one of {sorted(GAUGES)}, got {self.penalty!r}.")
        if self.activation == "relu" and self.penalty != "nuclear":
            raise ValueError(f"a relu network has the price of weight decay, penalty='nuclear'; got {self.penalty!r}.")
        if self.activation != "gated_relu" and self.gates is not None:
            raise ValueError(f"gates are for activation='gated_relu', got activation={self.activation!r}.")
        count, words = self.patterns, ("auto", "exact") if self.activation == "relu" else ("auto",)
        whole = isinstance(count, (int, np.integer)) and not isinstance(count, bool) and count > 0
        if not whole and not (isinstance(count, str) and count in words):
            raise ValueError(
                f"patterns must be {' or '.join(map(repr, words))} or a positive whole number, got {count!r}."
            )

    def _check_solver(self) -> None:
        if self.activation != "relu":
            super()._check_solver()
        elif self.solver not in ("auto", *RELU_SOLVERS):
            raise ValueError(f"solver must be 'auto' or one of {sorted(RELU_SOLVERS)} for relu, got {self.solver!r}.")

    def _make_program(self, X: Tensor, datafit: Datafit) -> Program:
        if self.activation == "relu":
            X = with_constant(X) if self.hidden_bias else X
            if not isinstance(self.patterns, str):
                _refuse_beyond_memory(X, int(self.patterns), datafit.targets.shape[1])
            trainer = ReluTrainer(X, self.patterns, self._seed())
            return ReluProgram(ReluProblem(X, datafit, 1.0), bool(self.hidden_bias), trainer)
        architecture = self._make_architecture(X, datafit.weight, datafit.targets.shape[1])
        operator = architecture.lift(X, datafit.targets.shape[1])
        return FixedProgram(Problem(operator, datafit, architecture.gauge(), 1.0), architecture)

    def _make_architecture(self, X: Tensor, weight: Tensor | None, n_outputs: int) -> Architecture:
        if self.activation == "linear":
            return LinearMLP(self.penalty, self.hidden_bias)
        if self.warm_start and self._same_gates(X):
            return self.architecture_
        self._gate_settings = self._current_gate_settings()
        if self.gates is not None:
            gates = self._given_gates(X)
            _refuse_beyond_memory(X, gates.shape[1], n_outputs)
            return GatedMLP(gates, self.penalty, self.hidden_bias)
        _refuse_beyond_memory(X, self._pattern_count(), n_outputs)
        return GatedMLP(self._sampled_gates(X, weight), self.penalty, self.hidden_bias)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _pattern_count(self) -> int:
        return AUTO_PATTERNS if self.patterns == "auto" else int(self.patterns)

    def _sampled_gates(self, X: Tensor, weight: Tensor | None) -> Tensor:
        generator = torch.Generator().manual_seed(self._seed())
        return sample_gates(X, self._pattern_count(), generator, bias=self.hidden_bias, weight=weight)

    def _given_gates(self, X: Tensor) -> Tensor:
        """The user's gates act on X as it was passed; they have no threshold, so a bias row of zeros is added."""
        gates = np.asarray(self.gates, dtype=np.float64)
        if gates.ndim != 2 or gates.shape[0] != X.shape[1] or not gates.shape[1]:
            raise ValueError(f"gates must have shape (n_features, P) with {X.shape[1]} rows, got {gates.shape}.")
        if not np.isfinite(gates).all():
            raise ValueError("gates must be finite, got NaN or infinity.")
        if self.hidden_bias:
            gates = np.vstack([gates, np.zeros(gates.shape[1])])
        return torch.tensor(gates, device=X.device)

    def _same_gates(self, X: Tensor) -> bool:
        """Whether the last fit's gates are what the parameters ask for now."""
        last = getattr(self, "architecture_", None)
        rows = X.shape[1] + bool(self.hidden_bias)
        fitting = isinstance(last, GatedMLP) and len(last.gates) == rows
        return fitting and getattr(self, "_gate_settings", None) == self._current_gate_settings()

    def _current_gate_settings(self) -> tuple[object, ...]:
        own = None if self.gates is None else np.asarray(self.gates).tobytes()
        return (self.patterns, self.penalty, self.hidden_bias, repr(self.random_state), own)


def _refuse_beyond_memory(X: Tensor, count: int, n_outputs: int) -> None:
    n, d = X.shape
    need = 8 * (2 * n * count + 12 * count * (d + 1) * n_outputs + 3 * n * (d + 1) * n_outputs)
    there = available_bytes(X.device)
    if need > there:
        raise ValueError(
            f"{count} patterns on {n} samples with {n_outputs} outputs would need {human_bytes(need)}, and "
            f"{human_bytes(there)} are free; lower patterns (or the number of gates), or use fewer samples."
        )


class ConvexMLPClassifier(ClassifierTargets, ConvexMLP):
    """Two-layer network classifier trained to a certified global optimum of its convex program.

    It minimises ``sum_i w_i loss_i + beta * Omega(Z)``, where Omega is the weight decay 1/2 sum of squares of the
    network's weights: over all ReLU networks of any width, or over all networks with given gates.

    Args:
        activation: "relu", "gated_relu" (fixed random gates) or "linear". For "relu" the certificate is about all
            activation patterns; on data of high rank its gap can be large although no better network was found.
        beta: the weight decay, in the scaling of a sum over samples; "auto" is a tenth of ``beta_max_``, the smallest
            beta whose optimum is the zero network. See :class:`ConvexMLPClassifierCV` to choose it from data.
        patterns: for "relu", "exact" (prove over all activation patterns, or refuse), a number of starts for a local
            search of neurons, or "auto": exact where that is affordable. For "gated_relu", how many gates to sample;
            "auto" is 200.
        gates: for "gated_relu", own gates, shape (n_features, P), in the units of the X that is passed to ``fit``.
        penalty: "nuclear" (weight decay); for "gated_relu" and "linear" also "frobenius" (one group per gate) or
            "per_output".
        loss: "auto" (squared), "log_loss" (logistic, or softmax beyond two classes; gives ``predict_proba``), the
            name of a loss in ``bidual.losses.LOSSES``, or a Loss.
        solver: "auto"; for "relu" one of "column_generation", "interior_point" (one output), "frank_wolfe" and
            "closed_form" (whitened data), otherwise a name in ``bidual.solvers.SOLVERS``.
        tol: the certified relative duality gap to reach; a ConvergenceWarning says so if it was not.
        max_iter: a limit on solver steps, None for the solver's own.
        max_time: a limit in seconds, None for none.
        hidden_bias: whether neurons (and sampled gates) have a bias; it is part of the weight decay, and one more
            dimension for the certificate.
        fit_intercept: whether outputs have an intercept, which is not penalised.
        random_state: the seed of the gates, or of the search for neurons.
        warm_start: start from the last fit's gates or neurons, and its solution.
        verbose: show the gap against time.
        device: where tensors live, "cpu" or "cuda".

    Attributes:
        certificate_: primal, dual, relative_gap and scope of this fit, with their witnesses.
        module_: the trained ``torch.nn.Module``.
        beta_, beta_max_: the beta used, and the smallest that would give the zero network (for "relu" on data of high
            rank, the largest below it that a search has found).
        n_neurons_, n_iter_, history_, solver_: size of the network, steps, records of the gap, which solvers ran.
        classes_, n_features_in_: as in scikit-learn.
    """


class ConvexMLPRegressor(RegressorTargets, ConvexMLP):
    """Two-layer network regressor trained to a certified global optimum of its convex program.

    Parameters and attributes are those of :class:`ConvexMLPClassifier`, without classes. ``loss="auto"`` is squared
    loss, one half of the sum of squares; "huber" and "absolute" are robust. Several targets at once are priced
    together (``penalty="nuclear"``).
    """
