"""An extension of griffe: docstrings are prose with formulas, shown as they are written."""

import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))

from api import escaped

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|obj):`~?([^`]+)`")
NAMES = re.compile(r"^( +(?:\w+, )+\w+,)\n +(?=(?:\w+, )*\w+: )", re.MULTILINE)  # of one item, on two lines
ITEM = re.compile(
    r"^ {4}(?:\w+, )+\w+(?=: )", re.MULTILINE
)  # several names: griffe takes what follows a space for a type
OPTIONS = {"warn_unknown_params": False, "warn_missing_types": False, "returns_named_value": False}


class PlainProse(griffe.Extension):
    """Escapes what Markdown would read as emphasis or as tags, and shows references as code."""

    def on_package(self, *, pkg: griffe.Module, loader: Any = None, **kwargs: Any) -> None:
        seen: set[int] = set()
        self._walk(pkg, seen)

    def _walk(self, item: griffe.Object, seen: set[int]) -> None:
        if id(item) in seen:
            return
        seen.add(id(item))
        if item.docstring is not None:
            _make_plain(item.docstring)
        for member in list(item.members.values()):
            if not member.is_alias:
                self._walk(member, seen)  # type: ignore[arg-type]


def _make_plain(docstring: griffe.Docstring) -> None:
    text = NAMES.sub(r"\1 ", ROLE.sub(r"``\1``", docstring.value))
    docstring.value = ITEM.sub(lambda item: item.group().replace(", ", ",\N{NO-BREAK SPACE}"), text)
    sections = docstring.parse("google", **OPTIONS)
    for section in sections:
        if section.kind is griffe.DocstringSectionKind.text:
            section.value = escaped(section.value)
        elif isinstance(section.value, list):
            for part in section.value:
                if hasattr(part, "description"):
                    part.description = escaped(part.description)
    docstring.__dict__["parsed"] = sections
