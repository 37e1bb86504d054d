"""The scikit-learn face shared by all network families: validate, code targets, build, solve, store."""

import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from bidual.estimators import parameters as checks
from bidual.estimators.inputs import FORMATS, as_plain_array, as_samples, as_targets
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

    loss_: Loss = field(init=False)  # that of the last fit, whatever the parameters say since

    _not_saved: ClassVar[dict[str, Any]] = {"callback": None}
    _relu_solvers: ClassVar[tuple[str, ...]] = RELU_SOLVERS
    _auto_fraction = 0.1  # of beta_max
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
        self.__dict__.pop("loss_", None)  # of an earlier fit
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
    def _encode_targets(self, y: NDArray[Any]) -> NDArray[np.float64]:
        """Targets of the loss, which is ``loss_`` from then on."""

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
        return Datafit(self.loss_, Y, weight, self.fit_intercept)

    def _choose_beta(self, program: Program) -> float:
        return self._auto_beta(program) if self.beta == "auto" else float(self.beta)

    def _auto_beta(self, program: Program) -> float:
        return self._auto_fraction * self.beta_max_ if self.beta_max_ > 0 else 1.0

    def _last_fit(self) -> WarmStart | None:
        last = getattr(self, "certificate_", None) if self.warm_start else None
        return None if last is None else WarmStart(self.architecture_, last.point, last.dual_point, last.witness)

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
        self._certified = solution.problem.without_caches()
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


def _loss_has(estimator: Any, ability: str) -> bool:
    try:
        return bool(getattr(resolve_loss(estimator.loss, 1), ability))
    except ValueError:  # no loss at all, which fit refuses
        return False
