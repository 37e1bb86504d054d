"""Any network family as scikit-learn estimators, also one that is defined outside of this package."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

from numpy.typing import ArrayLike
from torch import Tensor

from bidual.architectures import Architecture, LinearMLP
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.parameters import must, parameter
from bidual.estimators.programs import FixedProgram, Program
from bidual.estimators.targets import ClassifierTargets, RegressorTargets
from bidual.losses.datafit import Datafit


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexModel(ConvexEstimator):
    """A network of a given architecture, whose operator is known before training."""

    architecture: Architecture | None = parameter(
        None, must("an Architecture, or None", lambda value: value is None or isinstance(value, Architecture))
    )
    activation: str = field(default="given", init=False)
    oracle: str = field(default="auto", init=False)
    n_starts: int | str = field(default="auto", init=False)
    hidden_bias: bool = field(default=False, init=False)
    random_state: int = field(default=0, init=False)

    def _make_program(self, X: Tensor, datafit: Datafit) -> Program:
        architecture = LinearMLP(bias=True) if self.architecture is None else self.architecture
        architecture.check_samples(tuple(X.shape[1:]))
        return FixedProgram.of(architecture, X, datafit)

    @property
    def _keeps_sparse(self) -> bool:
        return self.architecture is None or self.architecture.takes_sparse

    def _flat_samples(self, X: Any, reset: bool) -> ArrayLike:
        found = tuple(int(side) for side in getattr(X, "shape", ())[1:])
        if reset:
            self.__dict__.pop("sample_shape_", None)
            if len(found) > 1:
                self.sample_shape_ = found
        elif len(found) > 1 and found != getattr(self, "sample_shape_", found):
            raise ValueError(f"the network was trained on samples of shape {self.sample_shape_}, got {found}.")
        return X.reshape(len(X), prod(found)) if len(found) > 1 else X


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexClassifier(ClassifierTargets, ConvexModel):
    """A classifier of any architecture, trained to a certified global optimum of its convex program.

    It minimises ``sum_i w_i loss_i + beta * Omega(Z)``, where Omega is the gauge of the architecture.

    Args:
        architecture: a family with its settings, of ``bidual.architectures`` or a subclass of ``Architecture`` of your
            own (docs/add_an_architecture.md); None is a linear network.
        beta, loss, class_weight, solver, tol, max_iter, max_time, fit_intercept, warm_start, verbose, device,
            callback: as in :class:`ConvexMLPClassifier`.

    Attributes:
        certificate_, module_, beta_, beta_max_, n_neurons_, n_iter_, history_, solver_, classes_, n_features_in_: as in
            :class:`ConvexMLPClassifier`.
        sample_shape_: the shape of one sample, where it is not a row of numbers.
    """


class ConvexRegressor(RegressorTargets, ConvexModel):
    """A regressor of any architecture, certified; parameters are those of :class:`ConvexClassifier`."""
