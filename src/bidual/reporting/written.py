"""Pages of what commands wrote: the JSON of `bidual fit`, `path` and `certify`, and results of `bidual reproduce`.

Pages of reproductions are drawn from files, without the experiments.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt

from bidual.problems.certificate import Scope
from bidual.reporting.fit import cross_validation
from bidual.reporting.page import Report, page
from bidual.reporting.plots import PNG, Drawn, data_url
from bidual.reporting.results import Bounds, judged_report, path_report
from bidual.runtime.json_text import read_json, validated

FORMAT = 1
KIND = "bidual reproduction"
RESULT = "result.json"
_KNOWN = (
    f"a model (.safetensors), the --json of bidual fit, path or certify, or the folder or {RESULT} of a reproduction"
)
_CLAIMS, _FOLDERS = 500, 500
_LARGEST = 20 * 2**20  # bytes of a figure
_SPECIAL = {None: math.nan, "nan": math.nan, "inf": math.inf, "-inf": -math.inf}

# JSON has no word for numbers that are not finite: null and "nan" are NaN, "inf" and "-inf" are infinite.
Number = Annotated[
    float, Field(strict=True), BeforeValidator(lambda x: _SPECIAL.get(x, x) if x is None or isinstance(x, str) else x)
]
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
    constant_objective: Number = math.nan
    unit: Positive = 1.0
    weight_decay: Number | None = None
    kind: str = "two-layer ReLU network of any width"
    how: str = ""
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
    score: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,60}$")]
    values: Annotated[list[Annotated[list[Number], Field(min_length=1, max_length=1000)]], _Betas]


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
        if len({len(fit.cv.betas), len(fit.cv.values)}) > 1 or len(set(map(len, fit.cv.values))) > 1:
            raise ValueError(f"{path}: 'cv' must hold as many 'betas' as rows of 'values'; write the file again.")
        cv = cross_validation(np.array(fit.cv.betas), np.array(fit.cv.values), fit.beta, fit.cv.score)
    lead = "The output of bidual fit; the model file itself shows more"
    return page("written_fit", title or "Report of a fit", lead, fit=fit, bounds=bounds, cv=cv)


@dataclass(frozen=True)
class Claim:
    """What a paper claims, what was measured, and whether the claim holds."""

    paper: str  # the statement, with the number that the paper gives
    ours: str  # the numbers it was checked with
    holds: StrictBool  # the value of a predicate on these numbers, never an equality of noise
    why: str = ""  # why it does not hold, or under which reading it does


class Written(BaseModel):
    """A finished experiment as a page shows it; of a resumed run, over all sessions."""

    model_config = ConfigDict(frozen=True)

    row: str
    name: str
    title: str
    source: str
    scale: str  # "paper", "cpu" or "smoke"
    seed: Annotated[StrictInt, Field(ge=0, lt=2**53)]
    seconds: Number
    started: str = ""
    machine: dict[str, Any]
    version: str = ""
    commit: str | None = None
    fingerprint: str = ""  # of the experiment's source
    configuration: Any = None
    claims: Annotated[tuple[Claim, ...], Field(max_length=_CLAIMS)]
    table: str = ""  # Markdown
    folder: Path

    @property
    def holds(self) -> int:
        """How many of the claims hold."""
        return sum(claim.holds for claim in self.claims)

    @property
    def lead(self) -> str:
        """Where the paper has it, in one line."""
        return f"{self.source}, row {self.row}, {self.scale} scale"

    @property
    def drawn(self) -> Drawn | None:
        """The PNG, or else the SVG; only ever used as an image."""
        for path in (self.folder / "figure.png", self.folder / "figure.svg"):
            if path.is_file():
                return Drawn({"card": data_url(_picture(path))}, f"The reproduced figure: {self.title}.")
        return None


Kind = TypeVar("Kind", bound=Written)


def read_result(path: Path, model: type[Kind]) -> Kind:
    """An untrusted result file: every field that is shown must have the right type."""
    value = read_json(path)
    if not isinstance(value, dict) or value.get("kind") != KIND:
        raise ValueError(f"{path} is not a reproduction: its kind is not {KIND!r}; give one of `bidual reproduce`.")
    if value.get("format") != FORMAT:
        shown = str(value.get("format"))[:60]
        raise ValueError(f"{path} has format {shown}, this version reads {FORMAT}; write it again.")
    return validated(model, value | {"folder": path.parent}, str(path))


def find_results(folder: Path) -> list[Path]:
    """The result files of a folder: its own, or those of the folders in it, up to two levels down (scale, name)."""
    if (folder / RESULT).is_file():
        return [folder / RESULT]
    inner = [path for depth in ("*", "*/*") for path in folder.glob(f"{depth}/{RESULT}") if path.is_file()]
    found = sorted(inner, key=lambda path: _natural(str(path)))
    if not found:
        raise ValueError(f"{folder} holds no {RESULT}, nor do the folders in it; give the folder of a reproduction.")
    if len(found) > _FOLDERS:
        raise ValueError(f"{folder} holds {len(found)} reproductions; a page takes at most {_FOLDERS}.")
    return found


def _picture(path: Path) -> bytes:
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; a page takes figures of at most {_LARGEST}.")
    data = path.read_bytes()
    if data.startswith(PNG) if path.suffix == ".png" else b"<svg" in data[:4096]:
        return data
    raise ValueError(f"{path} is not a {path.suffix[1:].upper()} picture; write the figure again, or remove it.")


def reproduction_report(found: Sequence[Written], title: str | None) -> Report:
    """One reproduction with a section for each part, or many with an index."""
    if len(found) == 1:
        return page("reproduction", title or found[0].title, found[0].lead, found=found)
    ordered = sorted(found, key=lambda one: (_natural(one.row), _natural(one.name)))
    total = sum(len(one.claims) for one in found)
    lead = f"{len(found)} figures and tables, reproduced"
    return page("reproduction", title or "Reproductions", lead, found=ordered, total=total)


def _natural(text: str) -> list[tuple[int, int, str]]:
    """R2 before R10."""
    parts = re.findall(r"\d+|\D+", text)
    return [(0, int(part[:18]), "") if part.isdecimal() else (1, 0, part) for part in parts]
