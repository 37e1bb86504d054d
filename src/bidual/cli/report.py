"""`bidual report`: one HTML page of a fit, a path, a certificate or a reproduction."""

from pathlib import Path
from typing import Annotated, Any

from bidual.cli import training as t
from bidual.runtime.console import print_result, working

_INPUT = (
    "A model (.safetensors), what --json of fit, path or certify printed (.json), or the folder or result.json of a "
    "reproduction, or a folder of such folders."
)


def report(
    result: Annotated[Path, t.argument("INPUT", _INPUT)],
    out: Annotated[Path, t.option("The page to write (.html).")],
    data: Annotated[Path | None, t.option("A CSV or Parquet file to show a model on.")] = None,
    target: Annotated[str | None, t.option("The column of --data that the model predicts.")] = None,
    title: Annotated[str | None, t.option("The title of the page.")] = None,
    json: t.Json = False,
    quiet: t.Quiet = False,
) -> None:
    """Write one self-contained HTML page: what was reached, what is proved, and the figures and tables behind it."""
    from bidual.reporting import check_page
    from bidual.reporting import report as make_report

    check_page(out, result, *([] if data is None else [data]))
    if (data is None) is not (target is None):
        raise ValueError("--data and --target go together; give both, or neither.")
    X, y = (None, None) if data is None or target is None else _samples(result, data, target)
    with working("writing the report", quiet):
        page = make_report(result, X, y, title)
        page.save(out)
    summary = {"title": page.title, "sections": list(page.sections), "bytes": len(page.html.encode()), "out": str(out)}
    facts = {name: ", ".join(value) if isinstance(value, list) else str(value) for name, value in summary.items()}
    print_result(summary, facts, json, quiet)


def _samples(path: Path, data: Path, target: str) -> tuple[Any, Any]:
    """The table as samples and targets of a model file."""
    if path.suffix.lower() != ".safetensors":
        raise ValueError(f"--data is for model files (.safetensors), got {path}; leave --data and --target out.")
    from sklearn.base import is_classifier

    from bidual.cli.samples import model_samples
    from bidual.estimators.saving import read
    from bidual.io.tables import read_table, split_target, target_values

    saved = read(path)
    frame, column = split_target(read_table(data), target)
    y = target_values(column, "classification" if is_classifier(saved.estimator) else "regression")
    return model_samples(saved, frame), y
