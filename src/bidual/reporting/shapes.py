"""JSON from outside: what it must look like, said in one sentence where it does not."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LARGEST = 64 * 2**20  # bytes
_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Fields:
    """A JSON object whose fields are asked for by name and kind."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be a JSON object, got {_kind(value)}; write the file again.")
        self.value, self.where = value, where

    def __contains__(self, name: str) -> bool:
        return name in self.value

    def _get(self, name: str) -> Any:
        if name not in self.value:
            raise ValueError(f"{self.where} lacks {name!r}; write the file again.")
        return self.value[name]

    def _wrong(self, name: str, wanted: str) -> ValueError:
        found = _kind(self.value[name])
        return ValueError(f"{self.where}: {name!r} must be {wanted}, got {found}; write the file again.")

    def number(self, name: str, default: float | None = None) -> float:
        """A number; null and "nan" are not a number, "inf" and "-inf" are infinite."""
        value = self.value.get(name, default) if default is not None else self._get(name)
        try:
            return as_number(value)
        except (TypeError, OverflowError):
            raise self._wrong(name, "a number") from None

    def positive(self, name: str) -> float:
        value = self.number(name)
        if not 0 < value < math.inf:
            raise self._wrong(name, "a positive number")
        return value

    def whole(self, name: str) -> int:
        value = self._get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
            raise self._wrong(name, "a whole number")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self.value.get(name, default) if default is not None else self._get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value

    def truth(self, name: str) -> bool:
        value = self._get(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def satisfies(self, name: str, test: Callable[[Any], bool], wanted: str) -> None:
        """Refuse a value that fails a test; ``wanted`` says what would pass."""
        if not test(self._get(name)):
            raise self._wrong(name, wanted)

    def fields(self, name: str) -> "Fields":
        return Fields(self._get(name), f"{self.where}: {name!r}")

    def each(self, name: str, most: int) -> list["Fields"]:
        """A list of objects."""
        return [Fields(item, f"{self.where}: {name}[{k}]") for k, item in enumerate(self.items(name, most))]

    def items(self, name: str, most: int) -> list[Any]:
        value = self._get(name)
        if not isinstance(value, list) or len(value) > most:
            raise self._wrong(name, f"a list of at most {most}")
        return value


def as_number(value: Any) -> float:
    """A JSON value as a number; TypeError if it is none."""
    if value is None:
        return math.nan
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("not a number")
    return float(value)


def read_json(path: Path) -> Any:
    """The content of a JSON file of a sane size."""
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; a report reads JSON files of at most {_LARGEST}.")
    try:
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()).rstrip(".")[:200]
        raise ValueError(f"{path} is not JSON, or is cut off ({reason}); write the file again.") from error


def _kind(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    huge = isinstance(value, int) and abs(value) >= 2**63
    text = "a huge number" if huge else " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:60]}..."
