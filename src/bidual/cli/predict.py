"""`bidual predict`: apply a saved model to a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bidual.cli import training as t
from bidual.runtime.console import print_json
from bidual.runtime.files import check_target, write_atomically

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from bidual.estimators.base import ConvexEstimator


def predict(
    model: Annotated[Path, t.argument("MODEL", "A model written by `bidual fit`.")],
    data: t.Data,
    out: Annotated[Path | None, t.option("A CSV file to write instead of printing.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add one column of probabilities per class.")] = False,
    json: t.Json = False,
) -> None:
    """Predict every row of a table with a saved model; CSV on standard output unless asked otherwise."""
    if out is not None:
        check_target(out, model, data)
    from bidual.cli.samples import model_samples
    from bidual.estimators.saving import read
    from bidual.io.tables import read_table

    saved = read(model)
    if proba and not hasattr(saved.estimator, "predict_proba"):
        reason = "--loss log_loss or squared" if hasattr(saved.estimator, "classes_") else "--task classification"
        raise ValueError(f"{model} gives no probabilities; train with {reason}, or omit --proba.")
    result = _predictions(saved.estimator, model_samples(saved, read_table(data)), proba)
    if out is not None:
        write_atomically(out, result.to_csv(index=False).encode())
    if json:
        columns = {name: result[name].tolist() for name in result.columns}
        print_json({"rows": len(result), "out": None if out is None else str(out), "columns": columns})
    elif out is None:
        print(result.to_csv(index=False), end="")


def _predictions(estimator: "ConvexEstimator", X: "pd.DataFrame | np.ndarray", proba: bool) -> "pd.DataFrame":
    import numpy as np
    import pandas as pd

    values = np.asarray(estimator.predict(X))
    if values.ndim == 2:
        return pd.DataFrame(values, columns=[f"prediction_{k}" for k in range(values.shape[1])])
    result = pd.DataFrame({"prediction": values})
    if proba:
        shares = estimator.predict_proba(X)
        for k, label in enumerate(estimator.classes_):
            result[f"probability_{label}"] = shares[:, k]
    return result
