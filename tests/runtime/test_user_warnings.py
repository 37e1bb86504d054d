"""Warnings point at the user's line: none is given with a fixed number of frames."""

from pathlib import Path

import bidual


def test_all_warnings_are_given_by_the_one_function_that_finds_the_line() -> None:
    root = Path(bidual.__file__).parent
    found = [path.relative_to(root).as_posix() for path in root.rglob("*.py") if "warnings.warn(" in path.read_text()]
    assert found == ["runtime/user_warnings.py"]
