"""A display of the gap against time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bidual.problems.solution import Callback, Record
from bidual.runtime.extras import extra

if TYPE_CHECKING:
    from rich.table import Table

_LINES = 12


@contextmanager
def gap_progress(verbose: int | bool, tol: float) -> Iterator[Callback | None]:
    """A callback that shows the last certificates on standard error; None if not verbose."""
    if not verbose:
        yield None
        return
    with extra("rich"):
        from rich.console import Console
        from rich.live import Live
    records: list[Record] = []
    with Live(console=Console(stderr=True), refresh_per_second=8) as live:

        def show(record: Record) -> None:
            records.append(record)
            live.update(_table(records[-_LINES:], tol))

        yield show


def _table(records: list[Record], tol: float) -> "Table":
    from rich.table import Table

    table = Table(title=f"certified relative gap, target {tol:g}", title_justify="left")
    for name in ("seconds", "solver", "step", "primal", "dual", "gap"):
        table.add_column(name, justify="left" if name == "solver" else "right")
    for r in records:
        numbers = f"{r.primal:.6g}", f"{r.dual:.6g}", f"{r.relative_gap:.2e}"
        table.add_row(f"{r.seconds:.2f}", r.solver, str(r.step), *numbers)
    return table
