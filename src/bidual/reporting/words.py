"""Numbers and settings as readers see them."""

import json
import math
from typing import Any

_LONGEST = 2000  # characters of a setting


def number(value: Any, digits: int = 4) -> Any:
    """A number for a reader: few digits, and a dash for NaN; texts as they are."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if isinstance(value, int):
        return str(value)
    return "–" if math.isnan(value) else f"{value:.{digits}g}"


def percent(share: float) -> str:
    """A share as per cent, with three digits."""
    return f"{100 * share:.3g} %" if math.isfinite(share) else number(share)


def objective(value: float) -> str:
    """An objective or a bound of one, with digits enough to tell the two apart."""
    return number(float(value), 9)


def gap(value: float) -> str:
    """A relative gap as a short text."""
    return f"{value:.1e}" if value < 1e-2 else percent(value)


def reach(value: float) -> str:
    """How good a point with this relative gap is."""
    if not math.isfinite(value):
        return "nothing is proved about it"
    if value == 0:
        return "it is optimal, up to rounding"
    return f"no network in scope improves on it by more than {percent(value)}"


def short(value: Any) -> str:
    """A JSON value as a text that is not too long."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
