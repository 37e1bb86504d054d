"""Regularisation paths: one certified network per beta, each warm-started at the last."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bidual.architectures.modules import RebuildableModule
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.parameters import is_whole
from bidual.problems.solution import Solution
from bidual.runtime.jobs import OnDone, Task, run_all
from bidual.runtime.numerical_errors import numerical_errors_as_value_error
from bidual.runtime.user_warnings import warn_user
from bidual.solvers.plan import beta_grid, check_betas

Data = tuple[ArrayLike, ArrayLike, ArrayLike | None]  # X, y and weights of samples, as in ``fit``


@dataclass(frozen=True, eq=False)
class Path:
    """The networks along a path, in the order of ``betas``.

    Attributes:
        betas: the weight decays, usually from beta_max downwards.
        beta_max: the smallest beta whose optimum is the zero network.
        solutions: what the solver returned for each, with its certificate.
        modules: the decoded networks.
        losses: the data term F at each (the primal without the price of the weights).
    """

    betas: list[float]
    beta_max: float
    solutions: list[Solution]
    modules: list[RebuildableModule]
    losses: list[float]

    @property
    def n_neurons(self) -> list[int]:
        """The sizes of the networks."""
        return [module.n_neurons for module in self.modules]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per network, as `bidual path --json` writes them; losses are per sample."""
        scale, n = max(self.beta_max, 1e-300), len(self.solutions[0].certificate.dual_point)
        columns = zip(self.betas, self.losses, self.n_neurons, self.solutions, strict=True)
        return [
            {
                "beta": beta,
                "fraction": beta / scale,
                "loss": loss / n,
                "neurons": neurons,
                "relative_gap": solution.certificate.relative_gap,
                "seconds": solution.seconds,
            }
            for beta, loss, neurons, solution in columns
        ]


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
    with numerical_errors_as_value_error():
        path = _path(estimator, (X, y, sample_weight), betas, n_betas, ratio)
    _warn_of_gaps([path], estimator.tol)
    return path


def regularization_paths(
    estimator: ConvexEstimator,
    X: ArrayLike,
    y: ArrayLike,
    *,
    seeds: Sequence[int],
    betas: Sequence[float] | None = None,
    n_betas: int = 20,
    ratio: float = 1e-3,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
    on_done: OnDone | None = None,
) -> list[Path]:
    """The path of every seed, in the order of ``seeds``: how much gates, or starts of a search, matter.

    Args:
        estimator: its parameters are used, except ``beta`` and ``random_state``.
        seeds: one ``random_state`` for each path.
        n_jobs, on_done: of :func:`bidual.runtime.jobs.run_all`.

    The other parameters are those of :func:`regularization_path`; without ``betas`` every path has its own beta_max.
    """
    if not isinstance(seeds, Iterable) or isinstance(seeds, str) or not all(is_whole(seed, 0) for seed in seeds):
        raise ValueError(f"seeds must be whole numbers from 0 on, one for each path, got {seeds!r}.")
    seeded = [clone(estimator).set_params(random_state=int(seed)) for seed in seeds]
    tasks = [Task(_path, (each, (X, y, sample_weight), betas, n_betas, ratio)) for each in seeded]
    with numerical_errors_as_value_error():
        paths = run_all(tasks, n_jobs, on_done)
    _warn_of_gaps(paths, estimator.tol)
    return paths


def _path(estimator: ConvexEstimator, data: Data, betas: Sequence[float] | None, n_betas: int, ratio: float) -> Path:
    estimator = clone(estimator)
    estimator._check_parameters()
    if betas is not None:
        check_betas(betas)
    program = estimator._program(estimator._validate_fit(*data))
    beta_max = program.beta_max
    grid = beta_grid(beta_max or 1.0, n_betas, ratio) if betas is None else [float(beta) for beta in betas]
    fits = program.path(grid, **estimator._solver_options())
    modules, losses = [fit.module() for fit in fits], [fit.loss for fit in fits]
    return Path(grid, beta_max, [fit.solution for fit in fits], modules, losses)


def _warn_of_gaps(paths: Sequence[Path], tol: float) -> None:
    solutions = [solution for path in paths for solution in path.solutions]
    missed = [one for one in solutions if not one.certificate.within(tol)]
    if missed:
        worst = max(missed, key=lambda one: one.certificate.relative_gap)
        many = f"{len(missed)} of {len(solutions)} networks miss tol={tol:g}"
        warn_user(f"{many}; of the worst, {worst.shortfall(tol)}", ConvergenceWarning)
