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

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Show the default of an estimator's parameter, not the call that declares it."""
        if isinstance(attr.value, griffe.ExprCall) and str(attr.value.function) == "parameter":
            attr.value = attr.value.arguments[0]

    def on_package(self, *, pkg: griffe.Module, loader: Any = None, **kwargs: Any) -> None:
        seen: set[int] = set()
        self._walk(pkg, seen)

    def _walk(self, item: griffe.Object, seen: set[int]) -> None:
        if id(item) in seen:
            return
        seen.add(id(item))
        if item.docstring is not None:
            _make_plain(item.docstring)
        if isinstance(item, griffe.Class):
            _drop_constants(item)
        for member in list(item.members.values()):
            if not member.is_alias:
                self._walk(member, seen)  # type: ignore[arg-type]


def _drop_constants(cls: griffe.Class) -> None:
    """A field with ``init=False`` takes an inherited one out of the constructor, which griffe does not see."""
    init = cls.members.get("__init__")
    if not isinstance(init, griffe.Function) or "dataclass" not in cls.labels:
        return
    for name in [parameter.name for parameter in init.parameters]:
        nearest = next((base.members[name] for base in (cls, *cls.mro()) if name in base.members), None)
        if "init=False" in str(getattr(nearest, "value", "")):
            del init.parameters[name]


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
