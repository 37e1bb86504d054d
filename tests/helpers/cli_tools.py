"""Runs the command line in this process, and makes a small table."""

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from bidual.cli.app import main


class Run(NamedTuple):
    code: object
    out: str
    err: str


def run(*arguments: object) -> Run:
    """Exit code, standard output and standard error of a command."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as leave:
        main([str(argument) for argument in arguments])
    return Run(leave.value.code, out.getvalue(), err.getvalue())


def refused(message: str, *arguments: object) -> bool:
    """Whether a command ends with code 2, prints nothing, and says ``message`` in one line."""
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    return True


def write_table(folder: Path) -> Path:
    """40 rows: two numbers, a category, a label and a number to predict."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 40))
    frame = pd.DataFrame({"a": a, "b": b, "shade": np.where(b > 0.5, "dark", "light")})
    frame["label"] = np.where(a + 0.3 * rng.standard_normal(40) > 0, "yes", "no")
    frame["level"] = a - 2 * b + 0.1 * rng.standard_normal(40)
    frame.to_csv(folder / "table.csv", index=False)
    return folder / "table.csv"
