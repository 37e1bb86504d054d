"""How far probabilities can be trusted, on the UCI sets: ``python benchmarks/calibration.py --help``."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch start their threads

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline

import bidual
from bidual.reporting.plots import COLOURS, GREY, check_figure, figure_bytes, new_figure, plain
from bidual.runtime.files import write_atomically
from splits import Split, chosen_sets, line_of, measured, on_splits, parser_of_sets, write_outcomes

LOSSES = {"squared": "squared", "log loss": "log_loss"}
RIVALS: dict[str, Callable[[], BaseEstimator]] = {
    "LogisticRegression": LogisticRegression,
    "MLPClassifier": lambda: MLPClassifier(random_state=0),
    "RandomForestClassifier": lambda: RandomForestClassifier(random_state=0),
}
SCORES = {"log_loss": "log loss", "brier": "Brier score", "accuracy": "accuracy"}
BINS = 10


@dataclass(frozen=True)
class Outcome:
    """One fit on one split; a model that raised has NaN scores and says why.

    Attributes:
        log_loss: the mean of -log p of the true class, p at least 1 / (n + 2) and at most 1 - 1 / (n + 2) for n
            training samples, which is what the rule of succession gives to what was seen never, or always.
        brier: the mean of 1/2 |p - e_y|^2, for two classes the squared error of the probability of one.
        predicted, happened: probabilities on the test part and whether they came true, of the second of two classes,
            or of all classes of more.
    """

    name: str
    split: int
    model: str
    log_loss: float = float("nan")
    brier: float = float("nan")
    accuracy: float = float("nan")
    seconds: float = 0.0
    gap: float | None = None
    error: str | None = None
    predicted: list[float] = field(default_factory=list, repr=False)
    happened: list[bool] = field(default_factory=list, repr=False)


def models(estimators: Sequence[str], options: dict[str, Any], rivals: bool) -> dict[str, Callable[[], BaseEstimator]]:
    """Every estimator with both losses, and others to compare with."""
    own = {
        f"{name}, {words}": _maker(getattr(bidual, name), {**options, "loss": loss})
        for name in estimators
        for words, loss in LOSSES.items()
    }
    return own | (RIVALS if rivals else {})


def _maker(family: Callable[..., BaseEstimator], settings: dict[str, Any]) -> Callable[[], BaseEstimator]:
    return lambda: family(**settings)


def run_split(chosen: dict[str, Callable[[], BaseEstimator]], split: Split) -> list[Outcome]:
    """All models on one split."""
    return [
        Outcome(split.name, split.index, model, **measured(make(), split, _scores)) for model, make in chosen.items()
    ]


def _scores(model: Pipeline, split: Split) -> dict[str, Any]:
    shares = model.predict_proba(split.X[split.test])
    return scores(shares, model.classes_, split.y[split.test], len(split.train))


def scores(shares: NDArray[np.float64], classes: NDArray[Any], y: NDArray[Any], n_train: int) -> dict[str, Any]:
    """What :class:`Outcome` says of probabilities (n, n_classes) for the labels y."""
    truth = y[:, None] == classes
    least = 1 / (n_train + 2)
    clipped = np.clip(shares[truth], least, 1 - least)
    columns = slice(1, 2) if len(classes) == 2 else slice(None)
    return {
        "log_loss": float(-np.log(clipped).mean()),
        "brier": float(0.5 * ((shares - truth) ** 2).sum(1).mean()),
        "accuracy": float((classes[shares.argmax(1)] == y).mean()),
        "predicted": shares[:, columns].ravel().tolist(),
        "happened": truth[:, columns].ravel().tolist(),
    }


def reliability(predicted: NDArray[np.float64], happened: NDArray[np.bool_]) -> pd.DataFrame:
    """Of every bin that is not empty: how many, the mean probability, and how often it came true."""
    bins = np.minimum((predicted * BINS).astype(int), BINS - 1)
    table = pd.DataFrame({"bin": bins, "predicted": predicted, "happened": happened.astype(float)})
    groups = table.groupby("bin")
    return groups.mean().assign(count=groups.size())


def calibration_error(bins: pd.DataFrame) -> float:
    """The mean distance between the two, weighted by how many there are in a bin."""
    return float(np.average((bins["predicted"] - bins["happened"]).abs(), weights=bins["count"]))


def pooled(outcomes: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """The bins of every model over all sets and splits."""
    found = {}
    for model in dict.fromkeys(outcome.model for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.model == model]
        predicted, happened = (
            np.array([x for o in mine for x in getattr(o, key)]) for key in ("predicted", "happened")
        )
        if len(predicted):
            found[model] = reliability(predicted, happened.astype(bool))
    return found


def markdown(outcomes: Sequence[Outcome]) -> str:
    """One row per model, means over sets of means over splits; a model that failed anywhere has none."""
    table = pd.DataFrame([{k: v for k, v in asdict(o).items() if k not in ("predicted", "happened")} for o in outcomes])
    bins = pooled(outcomes)
    means = table.groupby(["model", "name"])[[*SCORES, "seconds"]].agg(lambda column: column.mean(skipna=False))
    means = means.groupby("model").agg(lambda column: column.mean(skipna=False))
    lines = [
        line_of(["model", *SCORES.values(), "calibration error", "seconds per fit"]),
        line_of(["---", *["---:"] * 5]),
    ]
    for model, found in bins.items():
        row = means.loc[model]
        numbers = [f"{row[name]:.4f}" for name in SCORES]
        lines.append(line_of([model, *numbers, f"{calibration_error(found):.4f}", f"{row['seconds']:.2f}"]))
    lines += [f"- failed: {o.model} on {o.name}, split {o.split}: {o.error}" for o in outcomes if o.error]
    return "\n".join(lines) + "\n"


def figure(outcomes: Sequence[Outcome]) -> bytes:
    """How often something happened against the probability it was given; the size of a dot is how often that was."""
    bins = pooled(outcomes)
    drawn = new_figure(5.2, 5.2)
    axes = drawn.subplots()
    plain(axes)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":")
    for k, (model, found) in enumerate(bins.items()):
        colour = COLOURS[k % len(COLOURS)]
        axes.plot(found["predicted"], found["happened"], color=colour, linewidth=1.2, label=model)
        sizes = 120 * found["count"] / found["count"].max() + 4
        axes.scatter(found["predicted"], found["happened"], s=sizes, color=colour, alpha=0.6, linewidths=0)
    axes.set(xlabel="predicted probability", ylabel="share that happened", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    axes.legend(frameon=False, fontsize=7, loc="upper left")
    return figure_bytes(drawn)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = parser_of_sets(__doc__)
    parser.add_argument("--estimators", nargs="+", default=["ConvexMLPClassifierCV"], help="classifiers of bidual")
    parser.add_argument("--no-rivals", action="store_true", help="leave scikit-learn's classifiers out")
    parser.add_argument("--figure", type=check_figure, help="write the reliability figure, a PNG")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    args = parse(arguments)
    if unknown := [name for name in args.estimators if not hasattr(bidual, name)]:
        raise SystemExit(f"bidual has no {unknown[0]}; give names such as ConvexMLPClassifier")
    chosen = models(args.estimators, dict(args.option), not args.no_rivals)
    outcomes = on_splits(partial(run_split, chosen), chosen_sets(args), args)
    write_outcomes(outcomes, markdown(outcomes), args)
    if args.figure:
        write_atomically(args.figure, figure(outcomes))


if __name__ == "__main__":
    main()
