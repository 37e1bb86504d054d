"""JSON from outside, where whatever is wrong is a ValueError."""

import json
from typing import Any

_LONGEST = 200  # characters of a reason


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError if it is none, or is nested too deeply to be read."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except UnicodeDecodeError as error:  # which would show the whole text
        raise ValueError(f"it is no text in {error.encoding}: {error.reason}") from error


def one_line(error: BaseException) -> str:
    """What an error says, in one line that is not too long."""
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
