"""What `bidual fit` prints about a fit, in one process or in many."""

from pathlib import Path
from typing import Any, NamedTuple

from bidual.estimators.base import ConvexEstimator
from bidual.io.tables import TableEncoder
from bidual.runtime.console import print_facts, print_json


class Outcome(NamedTuple):
    """A fit, with how it came about; ``ranks`` is None in one process."""

    estimator: ConvexEstimator
    encoder: TableEncoder
    task: str
    reason: str  # why this task
    rows: int
    score: float  # on the training rows
    seconds: float
    ranks: int | None = None

    @property
    def metric(self) -> str:
        return "accuracy" if self.task == "classification" else "r2"


def show(outcome: Outcome, out: Path, json: bool, quiet: bool) -> None:
    if json:
        print_json(_payload(outcome, out))
    elif not quiet:
        print_facts(_facts(outcome, out))


def _payload(outcome: Outcome, out: Path) -> dict[str, Any]:
    estimator, certificate = outcome.estimator, outcome.estimator.certificate_
    payload = {
        "task": outcome.task,
        "rows": outcome.rows,
        "features": estimator.n_features_in_,
        "beta": estimator.beta_,
        "beta_max": estimator.beta_max_,
        "primal": certificate.primal,
        "dual": certificate.dual,
        "relative_gap": certificate.relative_gap,
        "scope": certificate.scope.name,
        "neurons": estimator.n_neurons_,
        "solver": estimator.solver_,
        f"train_{outcome.metric}": outcome.score,
        "seconds": outcome.seconds,
        "out": str(out),
    }
    if outcome.ranks is not None:
        payload["ranks"] = outcome.ranks
    if hasattr(estimator, "cv_scores_"):
        scores = estimator.cv_scores_
        payload["cv_loss"] = -float(scores[estimator.best_index_].mean())
        payload["cv"] = {"betas": estimator.betas_.tolist(), "losses": (-scores).tolist()}
    return payload


def _facts(outcome: Outcome, out: Path) -> dict[str, str]:
    estimator = outcome.estimator
    where = "" if outcome.ranks is None else f" on {outcome.ranks} rank{'s' if outcome.ranks > 1 else ''}"
    facts = {
        "task": f"{outcome.task} ({outcome.reason})",
        "data": f"{outcome.rows} rows{where}; {outcome.encoder.summary}",
        "beta": f"{estimator.beta_:.4g}, that is {estimator.beta_ / max(estimator.beta_max_, 1e-300):.3g} of beta_max",
    }
    if hasattr(estimator, "cv_scores_"):
        scores = -estimator.cv_scores_[estimator.best_index_]
        facts["cv loss"] = f"{scores.mean():.4g} +- {scores.std():.2g} per sample over {len(scores)} held-out folds"
    return facts | {
        "certificate": str(estimator.certificate_),
        "network": f"{estimator.n_neurons_} neurons ({estimator.solver_}, {estimator.n_iter_} steps)",
        f"train {outcome.metric}": f"{outcome.score:.4f}",
        "seconds": f"{outcome.seconds:.2f}",
        "saved": str(out),
    }
