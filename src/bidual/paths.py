"""Regularisation paths: one certified network per beta, each warm-started at the last."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bidual.auto import beta_grid, check_betas
from bidual.driver import Solution
from bidual.estimators.base import ConvexEstimator
from bidual.networks import RebuildableModule


@dataclass(frozen=True, eq=False)
class Path:
    """The networks along a path, in the order of ``betas``.

    Attributes:
        betas: the weight decays, usually from beta_max downwards.
        beta_max: the smallest beta whose optimum is the zero network.
        solutions: what the solver returned for each, with its certificate.
        modules: the decoded networks.
        n_neurons: their sizes.
        losses: the data term F at each (the primal without the price of the weights).
    """

    betas: list[float]
    beta_max: float
    solutions: list[Solution]
    modules: list[RebuildableModule]
    n_neurons: list[int]
    losses: list[float]


def regularization_path(
    estimator: ConvexEstimator,
    X: ArrayLike,
    y: ArrayLike,
    *,
    betas: Sequence[float] | None = None,
    n_betas: int = 20,
    ratio: float = 1e-3,
    sample_weight: ArrayLike | None = None,
) -> Path:
    """Train the estimator's network for every beta; the estimator itself is not changed.

    Args:
        estimator: its parameters are used, except ``beta``.
        X, y, sample_weight: as in ``fit``.
        betas: the weight decays; by default ``n_betas`` from beta_max down to ``ratio`` times it.
    """
    estimator = clone(estimator)
    estimator._check_parameters()
    if betas is not None:
        check_betas(betas)
    program = estimator._build(*estimator._validate_fit(X, y, sample_weight))
    beta_max = estimator.beta_max_
    grid = beta_grid(beta_max or 1.0, n_betas, ratio) if betas is None else [float(beta) for beta in betas]
    fits = program.path(grid, **estimator._solver_options())
    gaps = [fit.solution.certificate.relative_gap for fit in fits]
    if max(gaps) > estimator.tol:
        warnings.warn(
            f"{sum(gap > estimator.tol for gap in gaps)} of {len(grid)} networks miss tol={estimator.tol:g} (largest "
            f"certified relative gap {max(gaps):.1e}); raise max_iter or max_time, or tol.",
            ConvergenceWarning,
            stacklevel=2,
        )
    modules = [fit.module() for fit in fits]
    return Path(
        grid,
        beta_max,
        [fit.solution for fit in fits],
        modules,
        [module.n_neurons for module in modules],
        [fit.loss for fit in fits],
    )
