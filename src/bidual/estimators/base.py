"""The scikit-learn face shared by all network families: validate, build, solve, store. No mathematics here."""

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from bidual.architectures import Architecture
from bidual.estimators.onnx_export import OnnxExport
from bidual.estimators.parameters import (
    BETA,
    COUNT,
    SECONDS,
    STEPS,
    TOL,
    check_device,
    check_display,
    check_parameters,
    must,
    one_of,
    parameter,
    restored_if_refused,
)
from bidual.estimators.programs import Fitted, Program, WarmStart
from bidual.estimators.progress import gap_progress
from bidual.estimators.saving import SavedEstimator
from bidual.losses import Loss, resolve_loss
from bidual.losses.datafit import Datafit
from bidual.problems.certificate import Certificate
from bidual.problems.solution import Limits, Record
from bidual.runtime.numerical_errors import LARGEST, check_magnitude
from bidual.solvers.driver import Solver
from bidual.solvers.plan import make_solver
from bidual.training.relu.plan import ORACLES, RELU_SOLVERS


class Samples(NamedTuple):
    """Validated samples, encoded targets and weights."""

    X: Tensor
    Y: Tensor
    weight: Tensor | None

    def rows(self, rows: Tensor) -> "Samples":
        """Some of them, by index or mask."""
        return Samples(self.X[rows], self.Y[rows], None if self.weight is None else self.weight[rows])

    def weighted(self) -> "Samples":
        """Those of positive weight."""
        return self if self.weight is None else self.rows(self.weight > 0)


SOLVER = must("a string or a Solver", lambda value: isinstance(value, (str, Solver)))


def _check_loss(name: str, value: Any) -> None:
    if not (isinstance(value, str) and value == "log_loss"):
        resolve_loss(value)


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexEstimator(OnnxExport, SavedEstimator):
    """Fits one architecture to a certified optimum. Subclasses say which architecture and how targets are encoded."""

    activation: str = parameter("relu", one_of(("relu", "gated_relu", "linear")))
    beta: float | str = parameter("auto", BETA)
    oracle: str = parameter("auto", one_of(ORACLES), activation="relu")
    n_starts: int | str = parameter("auto", COUNT, activation="relu")
    loss: str | Loss = parameter("auto", _check_loss)
    solver: str | Solver = parameter(
        "auto", must("a string or a Solver", lambda value: isinstance(value, (str, Solver)))
    )
    tol: float = parameter(1e-4, TOL)
    max_iter: int | None = parameter(None, STEPS)
    max_time: float | None = parameter(None, SECONDS)
    hidden_bias: bool = True
    fit_intercept: bool = True
    random_state: int | np.random.RandomState | None = 0
    warm_start: bool = False
    verbose: int | bool = parameter(0, check_display)
    device: str = parameter("cpu", check_device)

    _relu_solvers: ClassVar[tuple[str, ...]] = RELU_SOLVERS
    _auto_fraction = 0.1  # of beta_max: where most of the UCI sets peak (docs/uci.md)
    _largest = LARGEST  # number in a sample

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train to a certified relative gap of ``tol``.

        Args:
            X: samples, shape (n, d). Standardise the features: weight decay treats them all alike.
            y: labels or targets, shape (n,) or (n, c).
            sample_weight: one non-negative number per sample; a weight of 2 is the same as a repeated sample.
        """
        with restored_if_refused(self):
            return self._fit(X, y, sample_weight)

    def _fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Self:
        self._check_parameters()
        samples = self._validate_fit(X, y, sample_weight)
        program = self._build(samples)
        self.beta_ = self._choose_beta(samples)
        with gap_progress(self.verbose, self.tol) as callback:
            fitted = program.train(self.beta_, start=self._last_fit(), callback=callback, **self._solver_options())
        self._store(fitted)
        self._check_network(samples.weighted().X, fitted)
        return self

    def _check_network(self, X: Tensor, fitted: Fitted) -> None:
        """The network must predict what its certificate is about."""
        expected = fitted.expected()
        with torch.no_grad():
            expected.check(self.module_(X).reshape(expected.predictions.shape))

    @abstractmethod
    def _make_program(self, X: Tensor, datafit: Datafit) -> Program: ...

    @abstractmethod
    def _encode_targets(self, y: NDArray[Any]) -> NDArray[np.float64]: ...

    @abstractmethod
    def _make_loss(self) -> Loss: ...

    def _solver_options(self) -> dict[str, Any]:
        steps = None if self.max_iter is None else int(self.max_iter)
        seconds = None if self.max_time is None else float(self.max_time)
        return {"solver": self.solver, "limits": Limits(float(self.tol), steps, seconds)}

    def _check_parameters(self) -> None:
        """Refuse what makes no sense whatever the data are: the one place where parameters are checked."""
        check_parameters(self)
        self._check_solver()

    def _check_solver(self) -> None:
        if self.activation != "relu":
            if self.solver != "auto":
                make_solver(self.solver)
        elif self.solver not in ("auto", *self._relu_solvers):
            raise ValueError(
                f"solver must be 'auto' or one of {sorted(self._relu_solvers)} for relu, got {self.solver!r}."
            )

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _validate_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Samples:
        flat = self._flat_samples(X, reset=True)
        samples, targets = validate_data(
            self, flat, y, dtype=np.float64, multi_output=True, y_numeric=self._numeric_targets
        )
        check_magnitude("X", samples, self._largest)
        self._learn_shape(samples.shape[1])
        Y = self._encode_targets(targets)
        check_magnitude("y", Y)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, samples, dtype=np.float64, ensure_non_negative=True)
            check_magnitude("sample_weight", weight)
            self._encode_targets(targets[weight > 0])  # a class may have weight zero only
            Y = self._encode_targets(targets)
        device = torch.device(self.device)
        tensors = [torch.tensor(np.ascontiguousarray(array), device=device) for array in (samples, Y)]
        weights = None if weight is None else torch.tensor(weight, device=device)
        return Samples(self._shaped(tensors[0]), tensors[1], weights)

    def _flat_samples(self, X: ArrayLike, reset: bool) -> ArrayLike:
        """The samples as rows of numbers, for families whose samples have a shape; ``reset`` where it is learned."""
        return X

    def _learn_shape(self, n_features: int) -> None:
        """What shape samples have, once their numbers are known to be valid."""

    def _shaped(self, X: Tensor) -> Tensor:
        """Rows of numbers in the shape that the network takes."""
        return X

    def _build(self, samples: Samples) -> Program:
        program = self._program(samples)
        self.beta_max_ = program.beta_max
        return program

    def _program(self, samples: Samples) -> Program:
        """The program on these samples; those of weight zero are left out."""
        X, Y, weight = samples.weighted()
        return self._make_program(X, self._datafit(Y, weight))

    def _datafit(self, Y: Tensor, weight: Tensor | None) -> Datafit:
        return Datafit(self._make_loss(), Y, weight, self.fit_intercept)

    def _choose_beta(self, samples: Samples | None = None) -> float:
        if self.beta != "auto":
            return float(self.beta)
        return self._auto_fraction * self.beta_max_ if self.beta_max_ > 0 else 1.0

    def _last_fit(self) -> WarmStart | None:
        last = getattr(self, "certificate_", None) if self.warm_start else None
        return None if last is None else WarmStart(self.architecture_, last.point, last.dual_point)

    def _store(self, fitted: Fitted) -> None:
        solution = fitted.solution
        self.architecture_ = fitted.architecture
        self.module_ = fitted.module()
        self.certificate_ = solution.certificate
        self.history_ = solution.history
        self.n_iter_ = max(solution.n_steps, 1)
        self.n_neurons_ = self.module_.n_neurons
        self.solver_ = solution.solver
        if not solution.certificate.within(self.tol):
            warnings.warn(
                f"certified relative gap {solution.certificate.relative_gap:.1e} is above tol={self.tol:g}: "
                f"{solution.status.value}.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _outputs(self, X: ArrayLike) -> NDArray[np.float64]:
        """The network's raw outputs, shape (n, c), or (n, tokens, c)."""
        check_is_fitted(self)
        samples = self._network_samples(X)
        with torch.no_grad():
            return self.module_(samples.to(next(self.module_.parameters()).device)).cpu().numpy()

    def _network_samples(self, X: ArrayLike) -> Tensor:
        """Validated samples as the network takes them."""
        flat = validate_data(self, self._flat_samples(X, reset=False), dtype=np.float64, reset=False)
        return self._shaped(torch.tensor(np.ascontiguousarray(flat)))

    def _try_network(self) -> None:
        """Predict a sample of zeros; a network for other samples fails."""
        found, names = self.n_features_in_, getattr(self, "feature_names_in_", None)
        if names is not None and len(names) != found:
            raise ValueError(f"there are {len(names)} names of features, and n_features_in_={found}")
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "X does not have valid feature names")
                self.predict(np.zeros((1, found)))
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"the network does not take samples of n_features_in_={found} numbers") from error

    def _check_loaded(self) -> None:
        family, certificate, history = self.architecture_, self.certificate_, self.history_
        right = isinstance(family, Architecture) and isinstance(certificate, Certificate)
        if not right or not all(isinstance(record, Record) for record in history):
            raise ValueError("its architecture, certificate or history is something else")
        n_outputs, n_classes = self.module_.sizes["n_outputs"], len(getattr(self, "classes_", ()))
        if len({family.n_outputs(certificate.point), certificate.dual_point.shape[1], n_outputs}) > 1:
            raise ValueError("certificate, architecture and network are of different sizes")
        family.check_samples(getattr(self, "sample_shape_", (self.n_features_in_,)))
        self._try_network()
        if n_classes and n_outputs != n_classes and (n_classes, n_outputs) != (2, 1):
            raise ValueError(f"{n_classes} classes do not match a network with {n_outputs} outputs")
