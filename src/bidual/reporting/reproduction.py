"""Pages of reproduced figures and tables, from the files that `bidual reproduce` wrote: claims, figures and settings.

The page is drawn from result.json alone, so this room does not import the experiments.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bidual.reporting.elements import (
    Html,
    badge,
    details,
    escaped,
    facts,
    figure,
    image,
    joined,
    number,
    paragraph,
    table,
)
from bidual.reporting.markdown import to_html
from bidual.reporting.page import Report, Section, assemble
from bidual.reporting.shapes import Fields, read_json

FORMAT = 1
KIND = "bidual reproduction"
RESULT = "result.json"
_CLAIMS, _FOLDERS = 500, 500
_LARGEST = 20 * 2**20  # bytes of a figure
_PNG = b"\x89PNG\r\n\x1a\n"
_SMOKE = "At smoke scale sizes are tiny: it shows that everything runs, and nothing about the papers."
_LONGEST = 2000  # characters of a setting
_NONE = paragraph("None.")


@dataclass(frozen=True)
class Claim:
    """What a paper claims, what was measured, and whether the claim holds.

    Attributes:
        paper: the statement, with the number that the paper gives.
        ours: the numbers it was checked with.
        holds: the value of a predicate on these numbers, never an equality of noise.
        why: why it does not hold, or under which reading it does; may be empty.
    """

    paper: str
    ours: str
    holds: bool
    why: str = ""


@dataclass(frozen=True)
class Written:
    """A finished experiment as a page shows it.

    Attributes:
        row, name, title, source: which experiment.
        scale: "paper", "cpu" or "smoke".
        seed, seconds, started, machine, version, commit: how, when and where; of a resumed run, over all sessions.
        fingerprint: of the experiment's source.
        configuration: the settings of the run.
        claims: of the paper, checked.
        table: Markdown.
        folder: where the files are.
    """

    row: str
    name: str
    title: str
    source: str
    scale: str
    seed: int
    seconds: float
    started: str
    machine: dict[str, Any]
    version: str
    commit: str | None
    fingerprint: str
    configuration: Any
    claims: tuple[Claim, ...]
    table: str
    folder: Path

    @property
    def holds(self) -> int:
        """How many of the claims hold."""
        return sum(claim.holds for claim in self.claims)


def is_reproduction(value: Any) -> bool:
    """Whether a JSON value is marked as a reproduction."""
    return isinstance(value, dict) and value.get("kind") == KIND


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


def read_reproduction(path: Path) -> Written:
    """An untrusted result file: every field that is shown must have the right type."""
    fields = Fields(read_json(path), str(path))
    if fields.text("kind", "") != KIND:
        raise ValueError(
            f"{path} is not a reproduction: its kind is not {KIND!r}; give a result of `bidual reproduce`."
        )
    if fields.number("format") != FORMAT:
        raise ValueError(f"{path} has format {fields.value['format']!r}, this version reads {FORMAT}; write it again.")
    return Written(
        row=fields.text("row"),
        name=fields.text("name"),
        title=fields.text("title"),
        source=fields.text("source"),
        scale=fields.text("scale"),
        seed=fields.whole("seed"),
        seconds=fields.number("seconds"),
        started=fields.text("started", ""),
        machine=fields.fields("machine").value,
        version=fields.text("version", ""),
        commit=None if fields.value.get("commit") is None else fields.text("commit"),
        fingerprint=fields.text("fingerprint", ""),
        configuration=fields.value.get("configuration"),
        claims=tuple(map(_read_claim, fields.each("claims", _CLAIMS))),
        table=fields.text("table", ""),
        folder=path.parent,
    )


def _read_claim(fields: Fields) -> Claim:
    return Claim(fields.text("paper"), fields.text("ours"), fields.truth("holds"), fields.text("why", ""))


def _picture(folder: Path) -> bytes | None:
    """The PNG, or else the SVG; only ever used as an image."""
    for name in ("figure.png", "figure.svg"):
        path = folder / name
        if not path.is_file():
            continue
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"{path} has {path.stat().st_size} bytes; a page takes figures of at most {_LARGEST}.")
        data = path.read_bytes()
        if data.startswith(_PNG) if name.endswith("png") else b"<svg" in data[:4096]:
            return data
        raise ValueError(f"{path} is not a {name[-3:].upper()} picture; write the figure again, or remove it.")
    return None


def reproduction_report(found: Sequence[Written], title: str | None) -> Report:
    """One reproduction with a section for each part, or many with an index."""
    if len(found) == 1:
        only = found[0]
        return assemble(title or only.title, _lead(only), _sections(only))
    ordered = sorted(found, key=lambda one: (_natural(one.row), _natural(one.name)))
    sections = [Section("Summary", _index(ordered))]
    for count, one in enumerate(ordered):
        parts = [paragraph(_lead(one), "soft")]
        parts += [Html(f"<h3>{escaped(part.title)}</h3>{part.body}") for part in _sections(one)[1:]]
        sections.append(Section(f"{one.row} {one.title}", joined(parts), _anchor(count)))
    return assemble(title or "Reproductions", f"{len(found)} figures and tables, reproduced", sections)


def _anchor(count: int) -> str:
    return f"reproduction-{count + 1}"


def _natural(text: str) -> list[tuple[int, int, str]]:
    """R2 before R10."""
    parts = re.findall(r"\d+|\D+", text)
    return [(0, int(part[:18]), "") if part.isdecimal() else (1, 0, part) for part in parts]


def _lead(one: Written) -> Html:
    return escaped(f"{one.source}, row {one.row}, {one.scale} scale")


def _sections(one: Written) -> list[Section]:
    sections = [Section("Summary", _summary(one))]
    if one.claims:
        sections.append(Section("Claims", joined(map(_claim, one.claims))))
    picture = _picture(one.folder)
    if picture is not None:
        alt, caption = f"The reproduced figure: {one.title}.", escaped(f"{one.title} ({one.source})")
        sections.append(Section("Figure", figure(image(picture, alt, "card"), caption, "wide")))
    if one.table.strip():
        sections.append(Section("Results", to_html(one.table)))
    return [*sections, Section("How it was run", _run(one))]


def _summary(one: Written) -> Html:
    words = escaped(
        f"This reproduces {one.source}: {one.title}. It took {number(one.seconds, 3)} seconds at {one.scale} scale."
    )
    note = [paragraph(_SMOKE)] if one.scale == "smoke" else []
    if not one.claims:
        return joined([paragraph(words), *note, paragraph("No claims were checked.")])
    good = one.holds == len(one.claims)
    verdict = badge(f"{one.holds} of {len(one.claims)} claims hold", good)
    return joined([paragraph(words), *note, Html(f"<p>{verdict}</p>")])


def _claim(claim: Claim) -> Html:
    verdict = badge("holds" if claim.holds else "does not hold", claim.holds)
    why = f'<p class="soft">{escaped(claim.why)}</p>' if claim.why.strip() else ""
    return Html(
        f'<div class="claim"><p>{verdict}</p><p><strong>The paper:</strong> {escaped(claim.paper)}</p>'
        f"<p><strong>Measured:</strong> {escaped(claim.ours)}</p>{why}</div>"
    )


def _run(one: Written) -> Html:
    pairs = {
        "name": one.name,
        "scale": one.scale,
        "seed": str(one.seed),
        "seconds": number(one.seconds),
        "started": one.started,
        "version": one.version,
        "commit": one.commit or "",
        "fingerprint of the experiment": one.fingerprint,
    }
    shown = {name: escaped(value) for name, value in pairs.items() if value}
    machine, configuration = (_settings(part) for part in (one.machine, one.configuration))
    return joined([facts(shown), details("Machine", machine), details("Configuration", configuration)])


def _settings(values: Any) -> Html:
    """An object by its names; anything else as one value."""
    named = values if isinstance(values, dict) else {"value": values}
    return facts({escaped(name): escaped(_shown(value)) for name, value in named.items()}) if named else _NONE


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _index(found: Sequence[Written]) -> Html:
    held, total = sum(one.holds for one in found), sum(len(one.claims) for one in found)
    words = f"{len(found)} reproductions; {held} of {total} claims hold. A click on a heading sorts the table."
    rows = [
        [
            escaped(one.row),
            Html(f'<a href="#{_anchor(count)}">{escaped(one.title)}</a>'),
            escaped(one.source),
            escaped(one.scale),
            f"{one.holds} of {len(one.claims)}",
            one.seconds,
        ]
        for count, one in enumerate(found)
    ]
    headers = ("row", "title", "source", "scale", "claims that hold", "seconds")
    note = [paragraph(_SMOKE)] if any(one.scale == "smoke" for one in found) else []
    return joined([paragraph(words), *note, table(headers, rows, "All reproductions")])
