"""Shows the epochs of a long training and the time left."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bidual.runtime.extras import extra
from bidual.training.layerwise.checkpoint import EpochRecord, Settings
from bidual.training.layerwise.trainer import OnEpoch

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_LINES = 12


@contextmanager
def epoch_progress(
    verbose: int | bool, settings: Settings, console: "Console | None" = None
) -> Iterator[OnEpoch | None]:
    """A callback that shows epochs on standard error: a table on a terminal, a line each elsewhere; None if silent."""
    if not verbose:
        yield None
        return
    with extra("rich"):
        from rich.console import Console
        from rich.live import Live
    console = Console(stderr=True) if console is None else console
    if not console.is_terminal:
        yield lambda record: console.print(_line(record, settings), highlight=False, soft_wrap=True)
        return
    records: deque[EpochRecord] = deque(maxlen=_LINES)
    with Live(console=console, refresh_per_second=4) as live:

        def show(record: EpochRecord) -> None:
            records.append(record)
            live.update(_table(records, settings))

        yield show


def _left(last: EpochRecord, settings: Settings) -> str:
    """The time of the remaining epochs if each takes as long as the last one: 2 h 05 min, 5 min 20 s or 12 s."""
    done = (last.stage - 1) * settings.epochs + last.epoch
    minutes, rest = divmod(round(last.seconds * (settings.n_stages * settings.epochs - done)), 60)
    if not minutes:
        return f"{rest} s"
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min {rest:02} s"


def _line(record: EpochRecord, settings: Settings) -> str:
    return (
        f"stage {record.stage}/{settings.n_stages} epoch {record.epoch}/{settings.epochs}: loss {record.loss:.4f}, "
        f"accuracy {record.accuracy:.4f}, {record.seconds:.1f} s, about {_left(record, settings)} left"
    )


def _table(records: deque[EpochRecord], settings: Settings) -> "Table":
    from rich.table import Table

    left = _left(records[-1], settings)
    title = f"{settings.n_stages} stages of {settings.epochs} epochs, about {left} left"
    table = Table(title=title, title_justify="left")
    for name in ("stage", "epoch", "learning rate", "loss", "accuracy", "seconds"):
        table.add_column(name, justify="right")
    for r in records:
        shown = f"{r.rate:.2g}", f"{r.loss:.4f}", f"{r.accuracy:.4f}", f"{r.seconds:.1f}"
        table.add_row(str(r.stage), str(r.epoch), *shown)
    return table
