"""Choosing beta by cross-validation along the regularisation path: what the estimators of all families share."""

import copy
import numbers
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import indexable
from sklearn.utils.metadata_routing import (
    UNUSED,
    MetadataRouter,
    MethodMapping,
    _routing_enabled,
    process_routing,
)
from torch import Tensor

from bidual.estimators.base import ConvexEstimator, Samples
from bidual.estimators.fold_scores import Fold, fold_tasks
from bidual.estimators.folds import CV, Split, check_weights, make_splits
from bidual.estimators.parameters import (
    FRACTION,
    JOBS,
    accepted_by,
    is_whole,
    must,
    parameter,
    restored_if_refused,
)
from bidual.estimators.programs import Program
from bidual.estimators.scoring import HeldOut, Scorer, check_responses, check_scoring, scorer_of, takes_weights
from bidual.runtime.jobs import Task, run_all
from bidual.solvers.plan import beta_grid, check_betas

if TYPE_CHECKING:
    _Family = ConvexEstimator  # what the mixin is mixed with
else:
    _Family = object

_EQUAL = 1e-12  # a relative difference of scores that is rounding
_OF_ONE_FIT = ("module_", "architecture_", "certificate_", "history_")


def _check_betas(value: Any) -> None:
    if value is not None:
        check_betas(value)


class _Metadata(NamedTuple):
    """Arguments of ``fit`` by where they go."""

    split: Mapping[str, Any]
    score: Mapping[str, Any]


@dataclass(kw_only=True, eq=False, repr=False)
class CrossValidated(_Family):
    """Fits a path on every fold, picks the fraction of beta_max with the best mean score, and refits on all samples.

    A mixin, left of the estimator that it makes cross-validated. Folds share the fractions of beta_max, or where they
    are trained together the beta per weight, so that a sum over fewer samples is not regularised harder.
    """

    betas: Sequence[float] | None = parameter(None, accepted_by(_check_betas))
    n_betas: int = parameter(14, must("a positive whole number", lambda value: is_whole(value, 1)))
    beta_ratio: float = parameter(1e-3, FRACTION)
    cv: Any = parameter(None, CV)
    scoring: str | Scorer | None = parameter(None, accepted_by(check_scoring))
    cv_tol: float = parameter(1e-2, FRACTION)
    n_jobs: int | None = parameter(None, JOBS)
    beta: float | str = field(default="auto", init=False)
    warm_start: bool = field(default=False, init=False)

    __metadata_request__fit: ClassVar[dict[str, str]] = {"groups": UNUSED}  # they are the splitter's

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        **metadata: Any,
    ) -> Self:
        """Choose beta, and train on all samples to a certified relative gap of ``tol``.

        Args:
            X: samples, shape (n, d). Standardise the features: weight decay treats them all alike.
            y: labels or targets, shape (n,) or (n, c).
            sample_weight: one non-negative number per sample; a weight of 2 is the same as a repeated sample. Weights
                count in the fits and in the held-out scores, if ``scoring`` is None or takes weights.
            groups: the group of every sample, for a splitter that keeps groups together, such as ``GroupKFold``.
            metadata: with ``sklearn.set_config(enable_metadata_routing=True)``, what the splitter or the scorer has
                requested; ``sample_weight`` then goes to a scorer that has requested it.
        """
        given = {"sample_weight": sample_weight, "groups": groups, **metadata}
        with restored_if_refused(self):
            return self._fit(X, y, sample_weight, partial(self._choice, X, y, given))

    def get_metadata_routing(self) -> MetadataRouter:
        """Where arguments of ``fit`` go: to the splitter ``cv`` and to the scorer of ``scoring``, as they request."""
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
        if self.scoring is not None:
            check_scoring(self.scoring)
            mapping = MethodMapping().add(caller="fit", callee="score")
            router.add(scorer=scorer_of(self.scoring), method_mapping=mapping)
        return router

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if (scorer := scorer_of(self.scoring)) is not None:
            check_responses(self, scorer)

    def _choice(self, X: Any, y: Any, given: Mapping[str, Any], samples: Samples) -> Callable[[Program], float]:
        """How beta is chosen, once folds and scores are known to make sense."""
        X, y = indexable(X, y)
        metadata = self._routed({name: value for name, value in given.items() if value is not None})
        cv = self._default_folds(samples.Y) if self.cv is None else self.cv
        splits = make_splits(cv, X, y, metadata.split, stratified=not self._numeric_targets)
        check_weights(splits, None if samples.weight is None else samples.weight.cpu().numpy())
        held_out = self._held_out(splits, X, y, metadata.score, samples)
        return partial(self._best_beta, samples, splits, held_out)

    def _routed(self, given: Mapping[str, Any]) -> _Metadata:
        """What goes to the splitter, and to the scorer; scores without one have their weights from the samples."""
        scorer = scorer_of(self.scoring)
        weighs = scorer is not None and np.asarray(given.get("sample_weight", 1)).ndim > 0  # a number changes nothing
        weight = {"sample_weight": given["sample_weight"]} if weighs else {}
        others = {name: given[name] for name in given.keys() - {"sample_weight"}}
        if _routing_enabled():
            found = process_routing(self, "fit", **weight, **others)
            return _Metadata(found.splitter.split, {} if scorer is None else found.scorer.score)
        if unknown := sorted(others.keys() - {"groups"}):
            raise TypeError(
                f"fit got {', '.join(unknown)}, which only metadata routing can pass on; call "
                "sklearn.set_config(enable_metadata_routing=True), or leave it out."
            )
        return _Metadata(others, weight if scorer is not None and takes_weights(scorer) else {})

    def _default_folds(self, Y: Tensor) -> int:
        """Five, or as many as the smallest class (or the data) has samples."""
        codes = Y.cpu().numpy()
        labels = codes.argmax(1) if codes.shape[1] > 1 else codes[:, 0] > 0
        count = len(Y) if self._numeric_targets else np.unique(labels, return_counts=True)[1].min()
        return int(np.clip(count, 2, 5))

    def _held_out(
        self, splits: Sequence[Split], X: Any, y: Any, metadata: Mapping[str, Any], samples: Samples
    ) -> list[HeldOut | None]:
        """What a scorer judges of every fold; None for accuracy, or the loss of regressors."""
        scorer = scorer_of(self.scoring)
        if scorer is None:
            return [None for _ in splits]
        parts = [HeldOut.of(scorer, k, test, X, y, metadata) for k, (_, test) in enumerate(splits)]
        if isinstance(self.scoring, str):  # a function of the user's own may need more than predictions
            constant = copy.copy(self)
            constant.module_ = _Constant(samples.Y.mean(0) if self._numeric_targets else 0 * samples.Y[0])
            for part in parts:
                part.check(constant)
        return [*parts]

    @property
    def held_out(self) -> tuple[str, NDArray[np.float64]]:
        """What networks were judged by on held-out samples, and its values (n_betas, n_folds): "loss", "accuracy", the
        name of a scorer, or "score" for a function."""
        return self.scored_by_, -self.cv_scores_ if self.scored_by_ == "loss" else self.cv_scores_

    def _name_of_scores(self) -> str:
        if self.scoring is None:
            return "loss" if self._numeric_targets else "accuracy"
        return self.scoring if isinstance(self.scoring, str) else "score"

    def _best_beta(
        self, samples: Samples, splits: Sequence[Split], held_out: Sequence[HeldOut | None], program: Program
    ) -> float:
        """The beta of the best mean score; of equals, which counts of samples often are, the middle one."""
        scale = self.beta_max_ or 1.0  # a constant target: the zero network is best for every beta
        # beta_max itself gives the zero network: the path starts one step below it
        grid = beta_grid(scale, self.n_betas + 1, self.beta_ratio)[1:] if self.betas is None else self.betas
        self.betas_ = np.array(grid, dtype=np.float64)
        folds = [Fold(*split, scored) for split, scored in zip(splits, held_out, strict=True)]
        together = self.solver == "auto" and program.trains_folds
        self.cv_scores_ = self._run(fold_tasks(self._for_fold(), samples, self.betas_, scale, folds, together))
        self.n_splits_, self.scored_by_ = len(splits), self._name_of_scores()
        scores = self.cv_scores_.mean(1)
        self.best_index_ = _middle_of_best(self.betas_, scores)
        self.best_score_ = float(scores[self.best_index_])
        return float(self.betas_[self.best_index_])

    def _run(self, tasks: Sequence[Task]) -> NDArray[np.float64]:
        """The scores of all folds, shape (n_betas, n_folds)."""
        done: list[int] = []

        def tell(fold: int, _: object) -> None:
            done.append(fold)
            if self.verbose:
                print(f"{len(done)} of {len(tasks)} parts of the folds are done", file=sys.stderr, flush=True)

        return np.concatenate(run_all(tasks, self.n_jobs, tell)).T

    def _for_fold(self) -> Self:
        """A copy whose seed does not depend on when other folds are fitted, without the results of an earlier fit."""
        fold = copy.copy(self)
        if not isinstance(self.random_state, numbers.Integral):
            fold.random_state = self._seed()
        fold.cv = fold.callback = None  # for this process only
        for name in _OF_ONE_FIT:
            fold.__dict__.pop(name, None)
        return fold


def _middle_of_best(betas: NDArray[np.float64], scores: NDArray[np.float64]) -> int:
    """The index of the best score; of several, the one whose beta is in the middle, or the larger of two."""
    top = scores.max()
    best = np.flatnonzero(scores >= (top - _EQUAL * abs(top) if np.isfinite(top) else top))
    return int(best[np.argsort(-betas[best], kind="stable")[(len(best) - 1) // 2]])


class _Constant(torch.nn.Module):
    """Predicts the same for every sample."""

    n_neurons = 0

    def __init__(self, outputs: Tensor) -> None:
        super().__init__()
        self.outputs = torch.nn.Parameter(outputs)

    def forward(self, X: Tensor) -> Tensor:
        return self.outputs.expand(len(X), -1)
