"""Which gates a gated network should have, on the UCI sets (docs/uci.md): ``python benchmarks/gates.py --help``."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch start their threads

import argparse
import json
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler

from bidual import ConvexMLPClassifier, ConvexMLPClassifierCV
from bidual.problems.solution import Limits
from bidual.runtime.files import write_atomically
from uci import load_set, set_names

FRACTIONS = (0.3, 0.1, 0.03)  # of the network's own beta_max
SPREAD_AT = 0.1  # of the beta_max of ReLU networks, the same for all gates
_LIMITS = Limits(1e-3)


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
    """What is compared."""

    splits: int
    seed: int
    draws: int
    cross_validated: bool

    def outcomes(self, folder: Path, name: str, gates: list[str]) -> Iterator[Outcome]:
        """All choices on all splits of one set."""
        X, y = load_set(folder, name)
        shuffles = StratifiedShuffleSplit(self.splits, test_size=0.25, random_state=self.seed)
        for split, (train, test) in enumerate(shuffles.split(X, y)):
            scaler = StandardScaler().fit(X[train])
            parts = scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test]
            for each in gates:
                yield self._outcome(name, split, each, parts)

    def _outcome(self, name: str, split: int, gates: str, parts: tuple[NDArray[Any], ...]) -> Outcome:
        X, y, X_test, y_test = parts
        accuracies, seconds = accuracies_of(network(gates, split), parts)
        optima = optima_of([network(gates, 100 + draw) for draw in range(self.draws)], X, y) if split == 0 else []
        found = Outcome(name, split, gates, accuracies, seconds, optima)
        if not self.cross_validated:
            return found
        began = process_time()
        chosen = ConvexMLPClassifierCV(**settings(gates, split), n_betas=8).fit(X, y)
        took = process_time() - began
        return Outcome(**asdict(found) | {"chosen": float(chosen.score(X_test, y_test)), "chosen_seconds": took})


def settings(gates: str, seed: int) -> dict[str, Any]:
    count = gates if gates == "auto" else int(gates)
    return {"activation": "gated_relu", "n_gates": count, "random_state": seed, "tol": _LIMITS.tol}


def network(gates: str, seed: int) -> ConvexMLPClassifier:
    return ConvexMLPClassifier(**settings(gates, seed))


def accuracies_of(estimator: ConvexMLPClassifier, parts: tuple[NDArray[Any], ...]) -> tuple[list[float], float]:
    """At all fractions of beta_max, and the processor seconds for gates and fits."""
    X, y, X_test, y_test = parts
    began = process_time()
    program = estimator._program(estimator._validate_fit(X, y, None))
    fits = program.path([share * (program.beta_max or 1.0) for share in FRACTIONS], _LIMITS)
    seconds = process_time() - began
    with torch.no_grad():
        scores = [fit.module()(torch.tensor(X_test))[:, 0].numpy() > 0 for fit in fits]
    return [float((estimator.classes_[score.astype(int)] == y_test).mean()) for score in scores], seconds


def optima_of(estimators: list[ConvexMLPClassifier], X: NDArray[Any], y: NDArray[Any]) -> list[float]:
    """The objective of every draw of gates at one and the same beta."""
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


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ.get("BIDUAL_DATA", "../shared/data"))
    parser.add_argument("--data-dir", type=Path, default=default, help="folder with uci/*.csv (or set BIDUAL_DATA)")
    parser.add_argument("--sets", nargs="+", help="names of sets; all by default")
    parser.add_argument("--gates", nargs="+", default=["200", "auto"], help="numbers of random gates, or auto")
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--seed", type=int, default=200, help="of the splits")
    parser.add_argument("--draws", type=int, default=5, help="of gates, for the spread of the optimum")
    parser.add_argument("--cv", action="store_true", help="also choose beta by cross-validation")
    parser.add_argument("--out", type=Path, help="write every outcome as JSON")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    args = parse(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    folder = args.data_dir / "uci"
    study = Study(args.splits, args.seed, args.draws, args.cv)
    names = args.sets or set_names(folder)
    outcomes = [outcome for name in names for outcome in study.outcomes(folder, name, args.gates)]
    print(table(outcomes).round(4).to_string())
    print(differences(outcomes, args.gates[0]).round(4).to_string())
    if args.out:
        write_atomically(args.out, json.dumps([asdict(outcome) for outcome in outcomes], indent=1).encode())


if __name__ == "__main__":
    main()
