"""What commands print: results on standard output, progress on standard error."""

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from json import dumps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


def print_json(payload: Mapping[str, Any]) -> None:
    """One JSON object on standard output; numbers that are not finite become null."""
    print(dumps(_finite(payload), indent=2, allow_nan=False))


def print_result(payload: Mapping[str, Any], facts: Mapping[str, str], json: bool, quiet: bool) -> None:
    """A result as JSON, as facts, or not at all."""
    if json:
        print_json(payload)
    elif not quiet:
        print_facts(facts)


def print_facts(facts: Mapping[str, str]) -> None:
    """Names and values, one per line."""
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")


def print_table(table: "Table") -> None:
    """A table as wide as it needs to be when the output is not a terminal; texts of files are shown as they are."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 140
    console = Console(file=sys.stdout, width=width, markup=False, emoji=False)
    console.print(table)


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def working(message: str, quiet: bool) -> Iterator[None]:
    """A spinner on standard error, if it is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(message):
        yield


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
