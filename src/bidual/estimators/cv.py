"""Estimators that choose beta by cross-validation along the regularisation path, as LassoCV does."""

import copy
import numbers
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import check_cv
from torch import Tensor

from bidual.estimators.base import ClassifierTargets, RegressorTargets, Samples
from bidual.estimators.mlp import ConvexMLP
from bidual.estimators.parameters import FRACTION, accepted_by, is_whole, must, parameter
from bidual.losses import Loss
from bidual.runtime.jobs import Task, run_all
from bidual.solvers.plan import beta_grid, check_betas


def _check_betas(value: Any) -> None:
    if value is not None:
        check_betas(value)


@dataclass(kw_only=True, eq=False, repr=False)
class CrossValidated(ConvexMLP):
    """Fits a path on every fold, picks the fraction of beta_max with the best mean score, and refits on all samples.

    The fractions are shared between folds; each fold multiplies them by its own beta_max, so that a sum over fewer
    samples is not regularised harder.
    """

    betas: Sequence[float] | None = parameter(None, accepted_by(_check_betas))
    n_betas: int = parameter(12, must("a positive whole number", lambda value: is_whole(value, 1)))
    beta_ratio: float = parameter(3e-3, FRACTION)
    cv: Any = None
    cv_tol: float = parameter(1e-2, FRACTION)
    n_jobs: int | None = None
    beta: float | str = field(default="auto", init=False)
    warm_start: bool = field(default=False, init=False)

    def _choose_beta(self, samples: Samples | None = None) -> float:
        """By cross-validation; weights count in the fits and in the scores."""
        assert samples is not None
        scale = self.beta_max_ or 1.0  # a constant target: the zero network is best for every beta
        # beta_max itself gives the zero network: the path starts one step below it
        grid = beta_grid(scale, self.n_betas + 1, self.beta_ratio)[1:] if self.betas is None else self.betas
        self.betas_ = np.array(grid, dtype=np.float64)
        self.cv_scores_ = self._scores(samples, self.betas_ / scale)
        scores = self.cv_scores_.mean(1)
        self.best_index_ = max(range(len(scores)), key=lambda k: (scores[k], self.betas_[k]))  # of equals, the largest
        return float(self.betas_[self.best_index_])

    def _scores(self, samples: Samples, fractions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean negative loss per sample on the held-out part, for every fraction and fold."""
        labels = self._fold_labels(samples.Y)
        folds = check_cv(self._folds(samples.Y), labels, classifier=not self._numeric_targets)
        splits = list(folds.split(np.zeros(len(labels)), labels))
        tasks = [Task(_fold_scores, (self._for_fold(), samples, fractions, *split)) for split in splits]
        done: list[int] = []

        def tell(fold: int, _: object) -> None:
            done.append(fold)
            if self.verbose:
                print(f"{len(done)} of {len(tasks)} folds are done", file=sys.stderr, flush=True)

        return np.array(run_all(tasks, self.n_jobs, tell)).T

    def _for_fold(self) -> Self:
        """A copy whose seed does not depend on when other folds are fitted, without the results of an earlier fit."""
        fold = copy.copy(self)
        if not isinstance(self.random_state, numbers.Integral):
            fold.random_state = self._seed()
        for name in ("module_", "architecture_", "certificate_", "history_"):
            fold.__dict__.pop(name, None)
        return fold

    def _folds(self, Y: Tensor) -> Any:
        """The user's folds; by default five, or as many as the smallest class (or the data) has samples."""
        if self.cv is not None:
            return self.cv
        count = len(Y) if self._numeric_targets else np.unique(self._fold_labels(Y), return_counts=True)[1].min()
        return int(np.clip(count, 2, 5))

    def _fold_labels(self, Y: Tensor) -> NDArray[Any]:
        codes = Y.cpu().numpy()
        if self._numeric_targets:
            return codes
        return (codes[:, 0] > 0).astype(int) if codes.shape[1] == 1 else codes.argmax(1)


def _fold_scores(
    estimator: CrossValidated,
    samples: Samples,
    fractions: NDArray[np.float64],
    train: NDArray[np.intp],
    test: NDArray[np.intp],
) -> list[float]:
    """One fold: a path on its training part, and the score of every network on the rest."""
    device = samples.X.device
    program = estimator._program(samples.rows(torch.as_tensor(train, device=device)))
    options = estimator._solver_options()
    limits = replace(options.pop("limits"), tol=max(estimator.cv_tol, estimator.tol))
    fits = program.path(list(fractions * (program.beta_max or 1.0)), limits, prove=False, **options)
    held_out = samples.rows(torch.as_tensor(test, device=device))
    return [_score(fit.module(), estimator._make_loss(), held_out) for fit in fits]


def _score(module: torch.nn.Module, loss: Loss, held_out: Samples) -> float:
    with torch.no_grad():
        losses = loss.value(module(held_out.X), held_out.Y)
    share = torch.ones_like(losses) if held_out.weight is None else held_out.weight
    return -float((share * losses).sum() / share.sum())


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexMLPClassifierCV(ClassifierTargets, CrossValidated):
    """:class:`ConvexMLPClassifier` with beta chosen by cross-validation along a warm-started path.

    Args:
        betas: the weight decays to try; by default ``n_betas`` below beta_max, down to ``beta_ratio`` times it.
        cv: folds, as in scikit-learn; by default 5 stratified ones, or as many as the smallest class has samples.
        cv_tol: the certified relative gap of the fits on folds; the last fit reaches ``tol``.
        max_time: a limit in seconds on every single fit, not on all of them together.
        n_jobs: folds that are fitted at the same time; None is 1, or what ``joblib.parallel_config`` says. The results
            are those of one after the other. docs/sweeps.md says how folds go to a cluster.

    The other parameters are those of :class:`ConvexMLPClassifier`. Folds are scored by the held-out loss.
    ``class_weight`` counts in all fits and, like ``sample_weight``, in that loss, which is the one that is trained;
    "balanced" weights are those of all samples, for every fold.

    Attributes:
        beta_, betas_, best_index_: the chosen beta and the grid it comes from.
        cv_scores_: mean held-out negative loss, shape (n_betas, n_folds).
    """


class ConvexMLPRegressorCV(RegressorTargets, CrossValidated):
    """:class:`ConvexMLPRegressor` with beta chosen by cross-validation; see :class:`ConvexMLPClassifierCV`."""
