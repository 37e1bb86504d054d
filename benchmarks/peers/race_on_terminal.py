"""The table of a race against other systems, for `benchmarks/bench.py --peers`."""

from rich.table import Table

from race_results import Race
from race_table import row


def peer_table(race: Race) -> Table:
    """One line per problem; everybody who took part is named, also who did not arrive."""
    table = Table(title="CPU seconds to equal gaps, one thread", title_justify="left", show_lines=True)
    for name in ("work", "target", "ours", "others", "closest", "met"):
        table.add_column(name)
    for words in map(row, race.cases):
        others = "\n".join(f"{name}: {text}" for name, text in words.rivals.items())
        table.add_row(words.work, words.target, words.ours, others, words.ratio, words.met)
    return table


def peer_rows(race: Race) -> list[dict[str, object]]:
    """The same lines for machines."""
    return [words._asdict() for words in map(row, race.cases)]
