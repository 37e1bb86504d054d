"""A display of the gap against time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bidual.problems.solution import Callback, Record
from bidual.runtime.extras import extra
from bidual.runtime.numerical_errors import NUMERICAL

if TYPE_CHECKING:
    from rich.table import Table

_LINES = 12


@contextmanager
def gap_progress(verbose: int | bool, tol: float, own: Callback | None = None) -> Iterator[Callback | None]:
    """A callback that shows the last certificates on standard error if ``verbose``, and then asks the user's own."""
    own = None if own is None else _as_given(own)
    if not verbose:
        yield own
        return
    with extra("rich"):
        from rich.console import Console
        from rich.live import Live
    records: list[Record] = []
    with Live(console=Console(stderr=True), refresh_per_second=8) as live:

        def show(record: Record) -> object:
            records.append(record)
            live.update(_table(records[-_LINES:], tol))
            return None if own is None else own(record)

        yield show


def _as_given(callback: Callback) -> Callback:
    """A callback whose errors end the fit: those of arithmetic would be taken for a failure of the solver."""

    def ask(record: Record) -> object:
        try:
            return callback(record)
        except NUMERICAL as error:
            raise RuntimeError(f"the callback has failed: {type(error).__name__}: {error}") from error

    return ask


def _table(records: list[Record], tol: float) -> "Table":
    from rich.table import Table

    table = Table(title=f"certified relative gap, target {tol:g}", title_justify="left")
    for name in ("seconds", "solver", "step", "primal", "dual", "gap"):
        table.add_column(name, justify="left" if name == "solver" else "right")
    for r in records:
        numbers = f"{r.primal:.6g}", f"{r.dual:.6g}", f"{r.relative_gap:.2e}"
        table.add_row(f"{r.seconds:.2f}", r.solver, str(r.step), *numbers)
    return table
