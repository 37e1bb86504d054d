"""Two-layer networks as scikit-learn estimators: what all families share, and the fully connected one."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from bidual.architectures import Architecture, GatedMLP, LinearMLP, ReluMLP
from bidual.architectures.base import make_gauge
from bidual.estimators.automatic_beta import automatic_beta
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.inputs import full_samples
from bidual.estimators.parameters import COUNT, accepted_by, as_count, check_memory, parameter
from bidual.estimators.programs import FixedProgram, NeuronProgram, Program
from bidual.estimators.targets import ClassifierTargets, RegressorTargets
from bidual.gauges import Gauge
from bidual.losses import Loss
from bidual.losses.datafit import Datafit
from bidual.numerics.sparse import is_sparse, take_rows, values_of
from bidual.patterns import activations, distinct, sample_gates, with_constant
from bidual.problems.problem import ReluProblem
from bidual.training.relu.plan import ReluPlan
from bidual.training.relu.quick_gates import gates_of_quick_training

_SHARE_FOR_GATES = 0.25  # of max_time, that the training which finds gates may take beside the fit


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexNetwork(ConvexEstimator):
    """A two-layer network with a choice of activation. Subclasses define what its neurons see."""

    n_gates: int | str = parameter("auto", COUNT, activation="gated_relu")
    gates: ArrayLike | None = parameter(None, activation="gated_relu")
    penalty: str | Gauge = parameter("nuclear", accepted_by(make_gauge))

    _auto_gates = 200  # those of a quick training among them, where there is one (docs/uci.md)
    _trains_gates: ClassVar[bool] = False  # whether they may
    _gate_rows: ClassVar[str]  # what a gate has one number for
    _families: ClassVar[dict[str, Any]]  # the architecture of each activation

    @abstractmethod
    def _settings(self, X: Tensor) -> dict[str, Any]:
        """What the architectures of all activations need to know."""

    @abstractmethod
    def _relu_problem(self, X: Tensor, datafit: Datafit) -> ReluProblem: ...

    @abstractmethod
    def _seen(self, X: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The rows that gates are sampled for, without the constant of a hidden bias, and their weights."""

    @abstractmethod
    def _bytes(self, X: Tensor, count: int, n_outputs: int) -> int:
        """About what a program with this many gates, or starts of a search, needs."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.activation == "relu" and self.penalty != "nuclear":
            raise ValueError(f"a relu network has the price of weight decay, penalty='nuclear'; got {self.penalty!r}.")

    @property
    def _biased(self) -> bool:
        return bool(self.hidden_bias)

    def _make_program(self, X: Tensor, datafit: Datafit) -> Program:
        n_outputs = datafit.targets.shape[1]
        if self.activation == "relu":
            X = full_samples(X, "use activation='gated_relu' or 'linear', which keep it sparse, or fewer features")
            self._refuse_beyond_memory(X, as_count(self.n_starts, 0), n_outputs)
            problem = self._relu_problem(X, datafit)
            plan = ReluPlan(problem.X, self.oracle, as_count(self.n_starts, "auto"), self._seed(), problem.readout)
            plan.check(problem, str(self.solver), self.max_time)
            return NeuronProgram(problem, lambda neurons: self._architecture(X, neurons=neurons), plan)
        if self.activation == "linear":
            self._refuse_beyond_memory(X, 1, n_outputs)
            return FixedProgram.of(self._architecture(X, penalty=self.penalty), X, datafit)
        gates = self._make_gates(X, datafit)
        return FixedProgram.of(self._architecture(X, penalty=self.penalty, gates=gates), X, datafit)

    def _architecture(self, X: Tensor, **settings: Any) -> Architecture:
        return self._families[self.activation](**self._settings(X), **settings)

    def _make_gates(self, X: Tensor, datafit: Datafit) -> Tensor:
        """The last fit's gates if they may be kept, else the user's or new ones; a hidden bias is one row more."""
        trained = self._gates_are_trained(X, datafit)
        settings = (trained, *self._current_gate_settings())
        if (last := self._kept_gates(X, settings)) is not None:
            return last
        self._gate_settings = settings
        rows, weight = self._seen(X, datafit.weight)
        count = self._gate_count() if self.gates is None else np.asarray(self.gates).shape[-1]
        self._refuse_beyond_memory(X, count, datafit.targets.shape[1])
        if self.gates is not None:
            return self._given_gates(rows)
        seed = self._seed()
        drawn = sample_gates(rows, count, torch.Generator().manual_seed(seed), bias=self._biased, weight=weight)
        return self._after_trained_gates(drawn, self._relu_problem(X, datafit), seed) if trained else drawn

    def _kept_gates(self, X: Tensor, settings: tuple[object, ...]) -> Tensor | None:
        """Those of the last fit, if it is gone on with, and they were chosen with these settings for such samples."""
        last: Any = getattr(getattr(self, "architecture_", None), "gates", None)
        if not self.warm_start or last is None or getattr(self, "_gate_settings", None) != settings:
            return None
        width = self._seen(take_rows(X, slice(1)), None)[0].shape[1] + self._biased
        return last if len(last) == width else None

    def _after_trained_gates(self, drawn: Tensor, problem: ReluProblem, seed: int) -> Tensor:
        """As many gates as were drawn, first those of a quick training, which has a share of the time on top."""
        seconds = None if self.max_time is None else _SHARE_FOR_GATES * float(self.max_time)
        gates = torch.cat([gates_of_quick_training(problem, seed, seconds), drawn], 1)
        return gates[:, distinct(activations(problem.X, gates))[: drawn.shape[1]]]

    def _gates_are_trained(self, X: Tensor, datafit: Datafit) -> bool:
        """By default, where a quick training can be: its descents need a smooth loss, and samples written out."""
        own = self.gates is not None or self.n_gates != "auto"
        return self._trains_gates and not own and datafit.loss.smooth and not is_sparse(X)

    def _gate_count(self) -> int:
        return as_count(self.n_gates, self._auto_gates)

    def _given_gates(self, rows: Tensor) -> Tensor:
        """The user's gates act on rows as they are; they have no threshold, so a bias row of zeros is added."""
        gates = np.asarray(self.gates, dtype=np.float64)
        if gates.ndim != 2 or gates.shape[0] != rows.shape[1] or not gates.shape[1]:
            raise ValueError(
                f"gates must have shape ({self._gate_rows}, P) with {rows.shape[1]} rows, got {gates.shape}."
            )
        if not np.isfinite(gates).all():
            raise ValueError("gates must be finite, got NaN or infinity.")
        if self._biased:
            gates = np.vstack([gates, np.zeros(gates.shape[1])])
        return torch.tensor(gates, device=rows.device)

    def _current_gate_settings(self) -> tuple[object, ...]:
        own = None if self.gates is None else np.asarray(self.gates).tobytes()
        return (self.n_gates, self._biased, repr(self.random_state), own, *self._geometry())

    def _geometry(self) -> tuple[object, ...]:
        """What makes gates of one fit useless for another, besides parameters of gates."""
        return ()

    def _refuse_beyond_memory(self, X: Tensor, count: int, n_outputs: int) -> None:
        name = {"relu": "n_starts", "gated_relu": "n_gates"}.get(self.activation)
        size = f"{len(X)} samples with {n_outputs} outputs" + ("" if name is None else f" and {name}={count}")
        remedy = "use fewer samples" if name is None else f"lower {name}, or use fewer samples"
        check_memory(self._bytes(X, count, n_outputs), X.device, size, remedy)


class ConvexMLP(ConvexNetwork):
    """What the two-layer classifier and regressor share: parameters, and neurons that see whole samples."""

    _gate_rows = "n_features"
    _trains_gates = True
    _families: ClassVar = {"linear": LinearMLP, "gated_relu": GatedMLP, "relu": ReluMLP}

    def _settings(self, X: Tensor) -> dict[str, Any]:
        return {"bias": self._biased}

    def _relu_problem(self, X: Tensor, datafit: Datafit) -> ReluProblem:
        return ReluProblem(with_constant(X) if self.hidden_bias else X, datafit, 1.0)

    def _auto_beta(self, program: Program) -> float:
        if isinstance(program, NeuronProgram) and isinstance(program.problem, ReluProblem):
            return automatic_beta(program.problem, self.beta_max_)
        return super()._auto_beta(program)

    def _seen(self, X: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return X, weight

    def _bytes(self, X: Tensor, count: int, n_outputs: int) -> int:
        n, d = X.shape
        samples = 5 * (values_of(X).numel() + n) if is_sparse(X) else 3 * n * (d + 1) * n_outputs
        return 8 * (2 * n * count + 12 * count * (d + 1) * n_outputs + samples)

    @property
    def _keeps_sparse(self) -> bool:
        return True


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexMLPClassifier(ClassifierTargets, ConvexMLP):
    """Two-layer network classifier trained to a certified global optimum of its convex program.

    It minimises ``sum_i w_i loss_i + beta * Omega(Z)``, where Omega is the weight decay 1/2 sum of squares of the
    network's weights: over all ReLU networks of any width, or over all networks with given gates.

    Args:
        activation: "relu", "gated_relu" (fixed gates) or "linear". For "relu" the certificate is about all
            activation patterns; on data of high rank its gap can be large although no better network was found.
        beta: the weight decay, in the scaling of a sum over samples; "auto" is a share of ``beta_max_``, the smallest
            beta whose optimum is the zero network: for "relu" a smaller one the better neurons tell the targets
            (:func:`bidual.estimators.automatic_beta.automatic_beta`), otherwise a tenth. See
            :class:`ConvexMLPClassifierCV` to choose it from data.
        oracle: for "relu", how the steepest neuron is found: "exact" (prove over all activation patterns, or refuse),
            "search" (local, with a proved bound), or "auto": exact where that is affordable.
        n_starts: for "relu", from how many starts neurons are searched for; "auto" is 256.
        n_gates: for "gated_relu", how many random gates to sample. "auto" is 200 gates, the first of them (10 to 120)
            the neurons of a quick ReLU training on the samples of the fit, the others random (docs/uci.md says how that
            was chosen). All 200 are random for sparse X, for losses with kinks, in fits over several processes, and
            where the best network is zero.
        gates: for "gated_relu", own gates in place of sampled ones, shape (n_features, P), in the units of the X that
            is passed to ``fit``.
        penalty: "nuclear" (weight decay); for "gated_relu" and "linear" also "frobenius" (one group per gate) or
            "per_output".
        loss: "auto" (log loss for "relu", otherwise squared), "log_loss" (logistic, or softmax beyond two classes), the
            name of a loss in ``bidual.losses.LOSSES``, or a Loss. Those of hinge type and "absolute" have no
            ``predict_proba``.
        class_weight: None, "balanced" (n / (k n_c) for a class with n_c of all n samples of k classes, counted with
            their weights) or a dict with a number for some classes, the others having 1. Samples count with this times
            their ``sample_weight``. A class of weight 0 is in ``classes_`` and is not trained on; two others must be
            left.
        solver: "auto"; for "relu" one of "column_generation", "cone_program" (one output), "frank_wolfe",
            "cutting_planes", "copositive" (both squared loss) and "closed_form" (whitened data), otherwise a name in
            ``bidual.solvers.SOLVERS``.
        tol: the certified relative duality gap to reach; a ConvergenceWarning says so if it was not.
        max_iter: a limit on solver steps, None for the solver's own.
        max_time: a limit in seconds on a training, None for none; one that finds gates has a quarter of it beside that.
        hidden_bias: whether neurons (and gates, if not given) have a bias; it is part of the weight decay, and one more
            dimension for the certificate.
        fit_intercept: whether outputs have an intercept, which is not penalised.
        random_state: the seed of the gates or of the training that finds them, or of the search for neurons.
        warm_start: start from the last fit's gates or neurons, and its solution.
        verbose: show the gap against time.
        device: where tensors live, "cpu" or "cuda".
        callback: a function that is called with a :class:`bidual.problems.solution.Record` (solver, step, seconds,
            primal, dual, relative gap) for every certificate, and ends the fit by returning True; the network is then
            the best so far, with its certificate. It is not saved with the model, and paths do not call it.

    Attributes:
        certificate_: primal, dual, relative_gap and scope of this fit, with their witnesses.
        module_: the trained ``torch.nn.Module``.
        beta_, beta_max_: the beta used, and the smallest that would give the zero network (for "relu" on data of high
            rank, the largest below it that a search has found).
        search_gap_: for "relu", what the gap would be if the search had missed no neuron; it proves nothing.
        loss_: the loss, whatever the parameter ``loss`` is set to after the fit.
        n_neurons_, n_iter_, history_, solver_: size of the network, steps, records of the gap, which solvers ran.
        classes_, n_features_in_: as in scikit-learn.
    """

    @property
    def _loss_named(self) -> str | Loss:
        return "log_loss" if self.loss == "auto" and self.activation == "relu" else self.loss


class ConvexMLPRegressor(RegressorTargets, ConvexMLP):
    """Two-layer network regressor trained to a certified global optimum of its convex program.

    Parameters and attributes are those of :class:`ConvexMLPClassifier`, without classes. ``loss="auto"`` is squared
    loss, one half of the sum of squares; "huber" and "absolute" are robust; ``bidual.losses.Quantile(0.9)`` predicts a
    quantile, and "poisson" the mean of counts, with outputs of ``module_`` that are its logarithm. ``score`` is R^2
    with every loss. Several targets at once are priced together (``penalty="nuclear"``).
    """
