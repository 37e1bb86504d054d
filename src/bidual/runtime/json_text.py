"""JSON from outside, where every fault is a ValueError in one sentence."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound="BaseModel")
_LONGEST = 200  # characters of a reason
_LARGEST = 64 * 2**20  # bytes of a file


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError if it is invalid, or nested too deeply to be read."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except UnicodeDecodeError as error:  # which would show the whole text
        raise ValueError(f"it is no text in {error.encoding}: {error.reason}") from error


def read_json(path: Path) -> Any:
    """The content of a JSON file of a sane size."""
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; JSON files may have at most {_LARGEST}.")
    try:
        return parse_json(path.read_bytes().decode("utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON, or is cut off ({one_line(error)}); write the file again.") from error


def validated(model: type[Model], value: Any, where: str, remedy: str = "; write the file again.") -> Model:
    """A value as a pydantic model; ValueError about the first wrong field. ``where`` names the file."""
    from pydantic import ValidationError

    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ValueError(f"{where}{_fault(error)}{remedy}") from error


def _fault(error: "ValidationError") -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    if first["type"] == "missing":
        return f" lacks {place!r}"
    message = one_line(ValueError(first["msg"])).replace("Input should", "must").replace("should", "must")
    return f": {place or 'the value'!r} {message.removeprefix('Value error, ')}, got {_kind(first['input'])}"


def _kind(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    huge = isinstance(value, int) and abs(value) >= 2**63
    text = "a huge number" if huge else " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:60]}..."


def one_line(error: BaseException) -> str:
    """The message of an error, in one line that is not too long."""
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
