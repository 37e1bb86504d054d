"""Pages of reproduced figures and tables, from the files that `bidual reproduce` wrote, without the experiments."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt

from bidual.reporting.page import Report, page
from bidual.reporting.plots import PNG, Drawn, data_url
from bidual.runtime.json_text import read_json, validated

FORMAT = 1
KIND = "bidual reproduction"
RESULT = "result.json"
_CLAIMS, _FOLDERS = 500, 500
_LARGEST = 20 * 2**20  # bytes of a figure
_SPECIAL = {None: math.nan, "nan": math.nan, "inf": math.inf, "-inf": -math.inf}

# JSON has no word for numbers that are not finite: null and "nan" are NaN, "inf" and "-inf" are infinite.
Number = Annotated[
    float, Field(strict=True), BeforeValidator(lambda x: _SPECIAL.get(x, x) if x is None or isinstance(x, str) else x)
]


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
        raise ValueError(
            f"{path} is not a reproduction: its kind is not {KIND!r}; give a result of `bidual reproduce`."
        )
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
