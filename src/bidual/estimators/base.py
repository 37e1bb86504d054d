"""The scikit-learn face shared by all network families: validate, code targets, build, solve, store."""

import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from bidual.estimators import parameters as checks
from bidual.estimators.availability import only_where
from bidual.estimators.class_weights import ClassWeight, check_class_weight, class_weighted
from bidual.estimators.inputs import FORMATS, answers_in_kind, as_plain_array, as_samples, as_targets
from bidual.estimators.onnx_export import export
from bidual.estimators.parameters import accepted_by, check_parameters, must, one_of, parameter, restored_if_refused
from bidual.estimators.programs import Fitted, Program, WarmStart
from bidual.estimators.progress import gap_progress
from bidual.estimators.saving import SavedEstimator
from bidual.losses import Loss, resolve_loss
from bidual.losses.datafit import Datafit
from bidual.numerics.sparse import is_sparse, take_rows
from bidual.problems.solution import Callback, Limits
from bidual.runtime.numerical_errors import LARGEST, check_magnitude
from bidual.runtime.user_warnings import warn_user
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
        return Samples(take_rows(self.X, rows), self.Y[rows], None if self.weight is None else self.weight[rows])

    def weighted(self) -> "Samples":
        """Those of positive weight."""
        return self if self.weight is None else self.rows(self.weight > 0)


BetaChoice = Callable[[Samples], Callable[[Program], float]]  # looks at the samples, and says beta for their program
_SOLVER = must("a string or a Solver", lambda value: isinstance(value, (str, Solver)))


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexEstimator(SavedEstimator):
    """Fits one architecture to a certified optimum. Subclasses define which architecture and how targets are coded."""

    activation: str = parameter("relu", one_of(("relu", "gated_relu", "linear")))
    beta: float | str = parameter("auto", checks.BETA)
    oracle: str = parameter("auto", one_of(ORACLES), activation="relu")
    n_starts: int | str = parameter("auto", checks.COUNT, activation="relu")
    loss: str | Loss = parameter("auto", accepted_by(lambda value: resolve_loss(value, 1)))
    solver: str | Solver = parameter("auto", _SOLVER)
    tol: float = parameter(1e-4, checks.TOL)
    max_iter: int | None = parameter(None, checks.STEPS)
    max_time: float | None = parameter(None, checks.SECONDS)
    hidden_bias: bool = True
    fit_intercept: bool = True
    random_state: int | np.random.RandomState | None = 0
    warm_start: bool = False
    verbose: int | bool = parameter(0, checks.check_display)
    device: str = parameter("cpu", checks.check_device)
    callback: Callback | None = parameter(None, checks.FUNCTION)

    _not_saved: ClassVar[dict[str, Any]] = {"callback": None}
    _relu_solvers: ClassVar[tuple[str, ...]] = RELU_SOLVERS
    _auto_fraction = 0.1  # of beta_max: where most of the UCI sets peak (docs/uci.md)
    _largest = LARGEST  # number in a sample
    _numeric_targets: ClassVar[bool]
    _sparse_samples: ClassVar[bool] = True  # whether they may be

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self._numeric_targets
        tags.input_tags.sparse = self._sparse_samples
        tags.target_tags.positive_only = self._numeric_targets and _loss_has(self, "counts")
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train to a certified relative gap of ``tol``.

        Args:
            X: samples, shape (n, d), an array, a sparse matrix, a tensor or a frame (docs/inputs.md). Standardise the
                features: weight decay treats them all alike.
            y: labels or targets, shape (n,) or (n, c).
            sample_weight: one non-negative number per sample; a weight of 2 is the same as a repeated sample.
        """
        with restored_if_refused(self):
            return self._fit(X, y, sample_weight)

    def _fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, choice: BetaChoice | None = None
    ) -> Self:
        self._check_parameters()
        samples = self._validate_fit(X, y, sample_weight)
        choose = self._choose_beta if choice is None else choice(samples)  # refuses what it cannot do before any work
        program = self._program(samples)
        self.beta_max_ = program.beta_max
        self.beta_ = choose(program)
        with gap_progress(self.verbose, self.tol, self.callback) as callback:
            fitted = program.train(self.beta_, start=self._last_fit(), callback=callback, **self._solver_options())
        self._store(fitted)
        with torch.no_grad():
            fitted.expected().check(self.module_(samples.weighted().X))
        return self

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted network to an ONNX file, see :func:`bidual.estimators.onnx_export.export`."""
        export(self, path)

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
        flat, kind = self._flat_samples(as_plain_array(X), reset=True), {"multi_output": True, "accept_sparse": FORMATS}
        samples, targets = validate_data(
            self, flat, as_targets(y), dtype=np.float64, y_numeric=self._numeric_targets, **kind
        )
        check_magnitude("X", samples.data if issparse(samples) else samples, self._largest)
        self._learn_shape(samples.shape[1])
        Y = self._encode_targets(targets)
        check_magnitude("y", Y)
        weight = None
        if sample_weight is not None:
            weight = as_plain_array(sample_weight)
            weight = _check_sample_weight(weight, samples, dtype=np.float64, ensure_non_negative=True)
            check_magnitude("sample_weight", weight)
        weight = self._class_weighted(targets, weight)
        if weight is not None:
            self._encode_targets(targets[weight > 0])  # a class may have weight zero only
            Y = self._encode_targets(targets)
        device = torch.device(self.device)
        X_there, Y_there = as_samples(samples, self._keeps_sparse, device), as_samples(Y, False, device)
        return Samples(self._shaped(X_there), Y_there, None if weight is None else torch.tensor(weight, device=device))

    @property
    def _keeps_sparse(self) -> bool:
        """Whether program and network take sparse samples; others write them out."""
        return False

    def _class_weighted(self, y: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        """The weights of samples with encoded targets y, times those of their classes if they have classes."""
        return weight

    def _flat_samples(self, X: ArrayLike, reset: bool) -> ArrayLike:
        """The samples as rows of numbers, for families whose samples have a shape; ``reset`` where it is learned."""
        return X

    def _learn_shape(self, n_features: int) -> None:
        """What shape samples have, once their numbers are known to be valid."""

    def _shaped(self, X: Tensor) -> Tensor:
        """Rows of numbers in the shape that the network takes."""
        return X if is_sparse(X) else X.reshape(len(X), *getattr(self, "sample_shape_", X.shape[1:]))

    def _program(self, samples: Samples) -> Program:
        """The program on these samples; those of weight zero are left out."""
        X, Y, weight = samples.weighted()
        return self._make_program(X, self._datafit(Y, weight))

    def _datafit(self, Y: Tensor, weight: Tensor | None) -> Datafit:
        return Datafit(self._make_loss(), Y, weight, self.fit_intercept)

    def _choose_beta(self, program: Program | None = None) -> float:
        if self.beta != "auto":
            return float(self.beta)
        return self._auto_fraction * self.beta_max_ if self.beta_max_ > 0 else 1.0

    def _last_fit(self) -> WarmStart | None:
        last = getattr(self, "certificate_", None) if self.warm_start else None
        return None if last is None else WarmStart(self.architecture_, last.point, last.dual_point)

    def _store(self, fitted: Fitted) -> None:
        self._become(fitted)
        if not fitted.solution.certificate.within(self.tol):
            warn_user(fitted.solution.shortfall(self.tol), ConvergenceWarning)

    def _become(self, fitted: Fitted) -> None:
        """Take the attributes of a fit."""
        solution = fitted.solution
        self.architecture_ = fitted.architecture
        self.module_ = fitted.module()
        self.certificate_ = solution.certificate
        self.history_ = solution.history
        self.n_iter_ = max(solution.n_steps, 1)
        self.n_neurons_ = self.module_.n_neurons
        self.solver_, self.search_gap_ = solution.solver, solution.search_gap

    def _outputs(self, X: ArrayLike) -> NDArray[np.float64]:
        """The network's raw outputs, shape (n, c), or (n, tokens, c)."""
        check_is_fitted(self)
        samples = self._network_samples(X)
        with torch.no_grad():
            return self.module_(samples.to(next(self.module_.parameters()).device)).cpu().numpy()

    def _network_samples(self, X: ArrayLike) -> Tensor:
        """Validated samples as the network takes them."""
        flat = self._flat_samples(as_plain_array(X), reset=False)
        samples = validate_data(self, flat, dtype=np.float64, accept_sparse=FORMATS, reset=False)
        return self._shaped(as_samples(samples, self._keeps_sparse, torch.device("cpu")))


def _check_probabilities(estimator: Any) -> None:
    resolve_loss(estimator.loss, 1).check_probabilities()


def _loss_has(estimator: Any, ability: str) -> bool:
    try:
        return bool(getattr(resolve_loss(estimator.loss, 1), ability))
    except ValueError:  # no loss at all, which fit refuses
        return False


def classes_and_codes(y: ArrayLike) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The classes in order, at least two, and the index of every label."""
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"a classifier needs samples of at least two classes, got one class only: {classes}; add samples of "
            "another class, or weights that are not zero."
        )
    return classes, codes


@dataclass(kw_only=True, eq=False, repr=False)
class ClassifierTargets(ClassifierMixin):
    """The loss says how labels become targets, and how outputs become probabilities.

    ``loss="auto"`` is squared loss, as in the papers: it was the most accurate on the UCI sets (docs/uci.md) and is the
    fastest; its probabilities are the outputs, projected onto the simplex. ``"log_loss"`` is logistic for two classes
    and softmax cross-entropy for more. Classifiers are dataclasses themselves, with the fields of both parents.
    """

    class_weight: ClassWeight = parameter(None, check_class_weight)

    _numeric_targets = False

    def _make_loss(self) -> Loss:
        return resolve_loss(self.loss, 1 if len(self.classes_) == 2 else len(self.classes_))

    def _encode_targets(self, y: NDArray[Any]) -> NDArray[np.float64]:
        self.classes_, codes = classes_and_codes(y)
        loss = self._make_loss()
        return loss.encode(codes, loss.n_outputs(len(self.classes_)))

    def _class_weighted(self, y: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        codes = np.searchsorted(self.classes_, np.ravel(y))
        return class_weighted(self.class_weight, self.classes_, codes, weight)

    @answers_in_kind
    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Raw scores: shape (n,) for two classes (positive means the second), else (n, n_classes)."""
        outputs = self._outputs(X)
        if outputs.shape[1] == 2:
            return outputs[:, 1] - outputs[:, 0]
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    @answers_in_kind
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most likely class of every sample: the one with the largest score, and of equal ones the first."""
        outputs = torch.from_numpy(self._outputs(X))
        return self.classes_[self._make_loss().likeliest(outputs).numpy()]

    @only_where(_check_probabilities)
    @answers_in_kind
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The probability of every class (n, n_classes), the largest being that of :meth:`predict`.

        Outputs of squared loss are projected onto the simplex, those of log loss go through the logistic function or
        the softmax. Losses whose outputs tell no probabilities, such as hinge, do not have this method.
        """
        outputs = torch.from_numpy(self._outputs(X))
        return self._make_loss().probabilities(outputs).numpy()

    @only_where(_check_probabilities)
    @answers_in_kind
    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logarithms of :meth:`predict_proba`, -inf where that is zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The share of samples whose class is predicted right."""
        return super().score(as_plain_array(X), as_targets(y), as_plain_array(sample_weight))


class RegressorTargets(RegressorMixin):
    """Targets as they are, one output per column; ``loss="auto"`` is squared.

    ``score`` is R^2 of ``predict``, whatever the loss.
    """

    _numeric_targets = True

    def _make_loss(self) -> Loss:
        loss = resolve_loss(self.loss)
        if loss.classification:
            others = "'squared', 'huber', 'absolute', 'quantile' or 'poisson'"
            raise ValueError(f"{loss.name} loss is for classifiers; use {others} here.")
        return loss

    def _encode_targets(self, y: NDArray[Any]) -> NDArray[np.float64]:
        self._make_loss()
        self._flat = y.ndim == 1
        return np.asarray(y, dtype=np.float64).reshape(len(y), -1)

    def _means(self, X: ArrayLike) -> NDArray[np.float64]:
        """What the loss says that the network's outputs are about."""
        outputs = self._outputs(X)
        return self._make_loss().mean(torch.from_numpy(outputs)).numpy()

    @answers_in_kind
    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predicted targets, of the shape that y had; with Poisson loss their means, exp of the network's outputs."""
        outputs = self._means(X)
        return outputs[:, 0] if self._flat else outputs

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R^2, averaged over targets."""
        return super().score(as_plain_array(X), as_targets(y), as_plain_array(sample_weight))
