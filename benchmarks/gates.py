"""Which gates a gated network should have, on the UCI sets (docs/uci.md): ``python benchmarks/gates.py --help``."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch start their threads

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from bidual import ConvexMLPClassifier, ConvexMLPClassifierCV, ConvexMLPRegressor
from bidual.problems.solution import Limits
from splits import Split, chosen_sets, on_splits, parser_of_sets, write_outcomes

FRACTIONS = (0.3, 0.1, 0.03)  # of the network's own beta_max
SPREAD_AT = 0.1  # of the beta_max of ReLU networks, the same for all gates
_LIMITS = Limits(1e-3)
Network = ConvexMLPClassifier | ConvexMLPRegressor


@dataclass(frozen=True)
class Outcome:
    """One choice of gates on one split.

    Attributes:
        accuracies: on the test part, at every fraction of beta_max.
        seconds: of processor time for the gates and all fits.
        optima: at one beta, of other draws of gates; on the first split only.
        chosen, chosen_seconds: accuracy and seconds of the cross-validated network, where it was asked for.
    """

    name: str
    split: int
    gates: str
    accuracies: list[float]
    seconds: float
    optima: list[float]
    chosen: float | None = None
    chosen_seconds: float | None = None


@dataclass(frozen=True)
class Study:
    """What is compared: choices of gates, a number or "auto", of networks with these options."""

    gates: Sequence[str]
    draws: int
    cross_validated: bool
    options: dict[str, Any]

    def outcomes(self, split: Split) -> list[Outcome]:
        """All choices on one split."""
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [self._outcome(split, each) for each in self.gates]

    def _outcome(self, split: Split, gates: str) -> Outcome:
        X, y, X_test, y_test = split.parts
        accuracies, seconds = scores_on_path(self._network(gates, split.index), split.parts, FRACTIONS)
        others = [self._network(gates, 100 + draw) for draw in range(self.draws)] if split.index == 0 else []
        found = Outcome(split.name, split.index, gates, accuracies, seconds, optima_of(others, X, y))
        if not self.cross_validated:
            return found
        began = process_time()
        chosen = ConvexMLPClassifierCV(**self._settings(gates, split.index), n_betas=8).fit(X, y)
        took = process_time() - began
        return replace(found, chosen=float(chosen.score(X_test, y_test)), chosen_seconds=took)

    def _network(self, gates: str, seed: int) -> ConvexMLPClassifier:
        return ConvexMLPClassifier(**self._settings(gates, seed))

    def _settings(self, gates: str, seed: int) -> dict[str, Any]:
        count = gates if gates == "auto" else int(gates)
        gated = {"activation": "gated_relu", "n_gates": count, "random_state": seed, "tol": _LIMITS.tol}
        return gated | self.options


def scores_on_path(
    estimator: Network, parts: tuple[NDArray[Any], ...], fractions: Sequence[float]
) -> tuple[list[float], float]:
    """Accuracy or R^2 on the test part at all fractions of beta_max, and the processor seconds for gates and fits."""
    X, y, X_test, y_test = parts
    began = process_time()
    program = estimator._program(estimator._validate_fit(X, y, None))
    fits = program.path([share * (program.beta_max or 1.0) for share in fractions], _LIMITS)
    seconds = process_time() - began
    scores = []
    for fit in fits:
        estimator._become(fit)
        scores.append(float(estimator.score(X_test, y_test)))
    return scores, seconds


def optima_of(estimators: list[ConvexMLPClassifier], X: NDArray[Any], y: NDArray[Any]) -> list[float]:
    """The objective of every draw of gates at one and the same beta."""
    if not estimators:
        return []
    relu = ConvexMLPClassifier(oracle="search")
    beta = SPREAD_AT * relu._program(relu._validate_fit(X, y, None)).beta_max
    programs = [each._program(each._validate_fit(X, y, None)) for each in estimators]
    return [program.train(beta, _LIMITS).solution.certificate.primal for program in programs]


def table(outcomes: list[Outcome]) -> pd.DataFrame:
    """Means over splits, then over sets; the spread of optima is (largest - smallest) / mean."""
    rows = pd.DataFrame([asdict(outcome) for outcome in outcomes])
    accuracies = pd.DataFrame(rows.pop("accuracies").tolist(), columns=[f"at {share}" for share in FRACTIONS])
    optima = rows.pop("optima")
    rows["spread"] = [(max(some) - min(some)) / np.mean(some) if some else np.nan for some in optima]
    rows["optimum"] = [np.mean(some) if some else np.nan for some in optima]
    rows = pd.concat([rows, accuracies], axis=1).astype({"chosen": float, "chosen_seconds": float})
    sets = rows.drop(columns="split").groupby(["gates", "name"]).mean()
    sets["optimum"] /= sets["optimum"].groupby("name").transform("min")
    return sets.groupby("gates", sort=False).mean()


def differences(outcomes: list[Outcome], base: str) -> pd.DataFrame:
    """Mean difference of accuracy to one choice over the sets, and its standard error."""
    rows = pd.DataFrame([asdict(outcome) for outcome in outcomes])
    rows["mean accuracy"], rows["at 0.1"] = rows["accuracies"].map(np.mean), rows["accuracies"].str[1]
    columns = ["mean accuracy", "at 0.1", *(["chosen"] if rows["chosen"].notna().all() else [])]
    sets = rows.groupby(["gates", "name"])[columns].mean()
    apart = sets - sets.loc[base].reindex(sets.index, level="name")
    return apart.groupby("gates").agg(["mean", "sem"])


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of_sets(__doc__)
    parser.add_argument("--gates", nargs="+", default=["200", "auto"], help="numbers of random gates, or auto")
    parser.add_argument("--draws", type=int, default=5, help="of gates, for the spread of the optimum")
    parser.add_argument("--cv", action="store_true", help="also choose beta by cross-validation")
    args = parser.parse_args(arguments)
    study = Study(args.gates, args.draws, args.cv, dict(args.option))
    outcomes = on_splits(study.outcomes, chosen_sets(args), args)
    tables = table(outcomes), differences(outcomes, args.gates[0])
    write_outcomes(outcomes, "\n".join(each.round(4).to_string() for each in tables) + "\n", args)


if __name__ == "__main__":
    main()
