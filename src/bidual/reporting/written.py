"""Pages of what commands wrote: the JSON of `bidual fit`, `path` and `certify`, and reproductions."""

import math
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from bidual.problems.certificate import Scope
from bidual.reporting.fit import cross_validation
from bidual.reporting.page import Report, page
from bidual.reporting.reproduction import KIND, Number, Written, find_results, read_result, reproduction_report
from bidual.reporting.results import Bounds, judged_report, path_report
from bidual.runtime.json_text import read_json, validated

_KNOWN = (
    "a model (.safetensors), the --json of bidual fit, path or certify, or a reproduction (a folder or its result.json)"
)

Positive = Annotated[Number, Field(gt=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=0, lt=2**53)]
Gap = Annotated[Number, AfterValidator(lambda gap: math.inf if math.isnan(gap) else gap)]  # null: nothing is proved
_Betas = Field(min_length=1, max_length=10_000)


class _Json(BaseModel):
    model_config = ConfigDict(strict=True)


class _Row(_Json):
    beta: Positive
    fraction: Number
    loss: Number
    neurons: Whole
    relative_gap: Gap
    seconds: Number
    seed: Whole | None = None


class _Path(_Json):
    """The JSON of `bidual path`."""

    beta_max: Number
    path: Annotated[list[_Row], _Betas]


class _Certify(_Json):
    """The JSON of `bidual certify`."""

    objective: Number
    lower_bound: Number
    relative_gap: Gap
    better_objective: Number
    status: str
    task: str = ""
    loss: str = ""
    rows: Whole
    features: Whole
    neurons: Whole
    outputs: Whole
    beta: Number
    seconds: Number


class _Folds(_Json):
    betas: Annotated[list[Positive], _Betas]
    losses: Annotated[list[Annotated[list[Number], Field(min_length=1, max_length=1000)]], _Betas]


class _Fit(_Json):
    """The JSON of `bidual fit`."""

    primal: Number
    dual: Number
    relative_gap: Gap
    scope: Literal["BLOCKS", "ALL_PATTERNS"]
    neurons: Whole
    task: str
    rows: Whole
    features: Whole
    beta: Positive
    beta_max: Number
    seconds: Number
    solver: str = ""
    train_accuracy: Number | None = None
    train_r2: Number | None = None
    cv: _Folds | None = None


def written_report(path: Path, title: str | None) -> Report:
    """The page of a JSON file, or of a folder of reproductions."""
    if path.is_dir():
        return reproduction_report([read_result(found, Written) for found in find_results(path)], title)
    if path.suffix.lower() != ".json":
        raise ValueError(f"cannot report {path}: its suffix is {path.suffix!r}; give {_KNOWN}.")
    value = read_json(path)
    fields = value if isinstance(value, dict) else {}
    if fields.get("kind") == KIND:
        return reproduction_report([read_result(path, Written)], title)
    if "path" in fields:
        found = validated(_Path, value, str(path))
        return path_report([row.model_dump(exclude_none=True) for row in found.path], found.beta_max, title)
    if "lower_bound" in fields:
        return judged_report(validated(_Certify, value, str(path)), title)
    if "primal" in fields:
        return _fit(validated(_Fit, value, str(path)), title, path)
    raise ValueError(f"{path} holds no result that a report knows; give {_KNOWN}.")


def _fit(fit: _Fit, title: str | None, path: Path) -> Report:
    bounds, cv = Bounds(fit.primal, fit.dual, fit.relative_gap, Scope[fit.scope]), None
    if fit.cv is not None:
        if len({len(fit.cv.betas), len(fit.cv.losses)}) > 1 or len(set(map(len, fit.cv.losses))) > 1:
            raise ValueError(f"{path}: 'cv' must hold as many 'betas' as rows of 'losses'; write the file again.")
        cv = cross_validation(np.array(fit.cv.betas), np.array(fit.cv.losses), fit.beta)
    lead = "The output of bidual fit; the model file itself shows more"
    return page("written_fit", title or "Report of a fit", lead, fit=fit, bounds=bounds, cv=cv)
