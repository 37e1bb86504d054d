"""`bidual demo`: two embedded data sets, trained to a certified optimum and compared with scikit-learn."""

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bidual.cli.training import Json
from bidual.runtime.console import print_json, print_table, working
from bidual.runtime.files import write_atomically

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.table import Table

    from bidual import ConvexMLPClassifier

SEEDS = range(5)
TOL = 1e-4
# A tenth of beta_max is too much for a spiral. Breast-cancer samples have rank 31: a ReLU network over all patterns
# can be trained, but only one with fixed gates is certified to be optimal.
SETTINGS: dict[str, dict[str, Any]] = {
    "spiral": {"loss": "squared", "beta": 0.1},
    "breast cancer": {"activation": "gated_relu"},
}
_BASELINE_STEPS = 1000  # more than scikit-learn's default of 200, with which the spiral is far from trained


class Split(NamedTuple):
    """Samples to train on and samples to test with."""

    X: "NDArray[np.float64]"
    y: "NDArray[Any]"
    X_test: "NDArray[np.float64]"
    y_test: "NDArray[Any]"


def demo(
    out: Annotated[Path, typer.Option(help="The folder for the figure; made if needed.")] = Path("demo-output"),
    json: Json = False,
) -> None:
    """Train on a spiral and on breast-cancer data, print the certificates, and compare with scikit-learn."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; give a folder for the figure.")
    from bidual.reporting.figures import demo_figure
    from bidual.runtime.extras import need
    from bidual.runtime.threads import one_thread

    need("matplotlib")
    out.mkdir(parents=True, exist_ok=True)
    splits = {"spiral": spiral_split(), "breast cancer": cancer_split()}
    models, rows = {}, []
    with one_thread():
        for name, split in splits.items():
            with working(f"training on {name}", quiet=json):
                models[name], row = _ours(name, split)
                rows += [row, _baseline(name, split)]
            if not json:
                print(f"{name}: {models[name].certificate_}")
    figure = out / "demo.png"
    write_atomically(figure, demo_figure(models, splits["spiral"].X, splits["spiral"].y, TOL))
    if json:
        print_json({"results": rows, "figure": str(figure)})
        return
    print_table(_table(rows))
    print(f"figure: {figure}")


def spiral_split() -> Split:
    """150 samples to train on, as in BM section 4.1, and 600 new ones."""
    from bidual.io.datasets import make_spiral

    return Split(*make_spiral(150, seed=0), *make_spiral(600, seed=1))


def cancer_split() -> Split:
    """Three quarters to train on, standardised."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=0)
    scaler = StandardScaler().fit(X)
    return Split(scaler.transform(X), y, scaler.transform(X_test), y_test)


def _ours(name: str, split: Split) -> "tuple[ConvexMLPClassifier, dict[str, Any]]":
    from bidual import ConvexMLPClassifier

    began = time.perf_counter()
    model = ConvexMLPClassifier(**SETTINGS[name], tol=TOL).fit(split.X, split.y)
    seconds = time.perf_counter() - began
    accuracy = float(model.score(split.X_test, split.y_test))
    certificate, given = model.certificate_, ", ".join(f"{key}={value!r}" for key, value in SETTINGS[name].items())
    title, proved = f"ConvexMLPClassifier({given})", ("relative_gap", "primal", "dual")
    row = {"data": name, "model": title, "runs": 1, "accuracy": [accuracy], "seconds": seconds}
    return model, row | {key: getattr(certificate, key) for key in proved}


def _baseline(name: str, split: Split) -> dict[str, Any]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    accuracies, began = [], time.perf_counter()
    for seed in SEEDS:
        model = MLPClassifier(max_iter=_BASELINE_STEPS, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(split.X, split.y)
        accuracies.append(float(model.score(split.X_test, split.y_test)))
    seconds = (time.perf_counter() - began) / len(SEEDS)
    title = f"MLPClassifier(max_iter={_BASELINE_STEPS})"
    return {"data": name, "model": title, "runs": len(SEEDS), "accuracy": accuracies, "seconds": seconds}


def _table(rows: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    table = Table(title="test accuracy", title_justify="left")
    for name in ("data", "model", "runs", "min", "mean", "max", "seconds per fit", "certified gap"):
        table.add_column(name, justify="left" if name in ("data", "model") else "right")
    for row in rows:
        values = row["accuracy"]
        spread = [f"{value:.3f}" for value in (min(values), sum(values) / len(values), max(values))]
        gap = f"{row['relative_gap']:.1e}" if "relative_gap" in row else "-"
        table.add_row(row["data"], row["model"], str(row["runs"]), *spread, f"{row['seconds']:.2f}", gap)
    return table
