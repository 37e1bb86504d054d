"""Reads a rank's own rows of a table or an array; no rank reads all rows."""

import io
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bidual.io import tables
from bidual.operators.tiled import MappedRows
from bidual.runtime.extras import extra
from bidual.runtime.ranks import Ranks

with extra("pandas"):
    import pandas as pd

_CHUNK = 2**24  # bytes of a CSV file that are scanned at a time
_QUOTE, _NEWLINE = ord('"'), ord("\n")


def row_range(rows: int, ranks: Ranks) -> slice:
    """The rows of a rank, as even as they can be."""
    if rows < ranks.size:
        raise ValueError(f"{ranks.size} ranks are more than the {rows} rows there are; start at most {rows}.")
    return ranks.part(rows)


def check_file(path: str | os.PathLike[str]) -> Path:
    """The path, if it can be read shard by shard."""
    return tables.check_file(path, "every rank needs the file under the same name", ".npy")


def mapped_shard(path: str | os.PathLike[str], ranks: Ranks) -> MappedRows:
    """A rank's rows of a .npy file, which stay on disk."""
    whole = MappedRows.open(path)
    return MappedRows(whole.array[row_range(len(whole), ranks)])


def table_shard(path: str | os.PathLike[str], ranks: Ranks, texts: Collection[str] = ()) -> pd.DataFrame:
    """A rank's rows of a CSV or Parquet file with a header; the columns in ``texts`` are read as strings."""
    path = ranks.together(lambda: check_file(path))
    if path.suffix.lower() == ".csv":
        edges = ranks.broadcast_json(ranks.together(lambda: record_offsets(path, ranks.size) if ranks.leads else None))
        frame = ranks.together(lambda: _csv_rows(path, edges, ranks.rank, texts))
    else:
        frame = ranks.together(lambda: _parquet_rows(path, ranks))
    return ranks.together(lambda: _checked(path, frame, ranks.size))


def _checked(path: Path, frame: pd.DataFrame, ranks: int) -> pd.DataFrame:
    if not len(frame):
        raise ValueError(f"{path} has too few rows for {ranks} ranks; start fewer.")
    return tables.with_plain_names(path, frame)


def _parquet_rows(path: Path, ranks: Ranks) -> pd.DataFrame:
    """A rank's rows, from the row groups that contain them."""
    with extra("pyarrow"):
        from pyarrow import parquet
    with tables.parsing(path):
        file = parquet.ParquetFile(path)
        sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
    ends, rows = np.cumsum(sizes), row_range(sum(sizes), ranks)
    first, last = (int(np.searchsorted(ends, row, "right")) for row in (rows.start, rows.stop - 1))
    with tables.parsing(path):
        table = file.read_row_groups(list(range(first, last + 1)))
    return table.slice(rows.start - int(ends[first] - sizes[first]), rows.stop - rows.start).to_pandas()


def _csv_rows(path: Path, edges: list[int], rank: int, texts: Collection[str]) -> pd.DataFrame:
    with open(path, "rb") as file:
        header = file.read(edges[0])
        file.seek(edges[rank])
        body = file.read(edges[rank + 1] - edges[rank])
    with tables.parsing(path):
        return pd.read_csv(io.BytesIO(header + body), index_col=False, dtype=dict.fromkeys(texts, str))


def record_offsets(path: Path, parts: int) -> list[int]:
    """The offset of the first record after the header, and the ends of ``parts`` even parts, in one pass.

    A line break within quotes, which is one after an odd number of quotes, ends no record.
    """
    chunks, total, size = _counted(path)
    rows = total - 1
    if rows < parts:
        raise ValueError(f"{path} has {max(rows, 0)} rows below its header, too few for {parts} ranks; start fewer.")
    return [_end_of(path, chunks, 1 + rows * k // parts, size) for k in range(parts + 1)]


class _Chunk(NamedTuple):
    """The offset of a part of the file, and the numbers of complete records and of quotes before it."""

    begin: int
    records: int
    quotes: int


def _counted(path: Path) -> tuple[list[_Chunk], int, int]:
    """All chunks, the number of records, and the size of the file."""
    chunks, at, last = [], _Chunk(0, 0, 0), _NEWLINE
    with open(path, "rb") as file:
        while data := file.read(_CHUNK):
            chunks.append(at)
            ends, quotes = _record_ends(data, at.quotes)
            at, last = _Chunk(at.begin + len(data), at.records + len(ends), quotes), data[-1]
    return chunks, at.records + (last != _NEWLINE), at.begin


def _end_of(path: Path, chunks: list[_Chunk], record: int, size: int) -> int:
    """The end of a record, from the one chunk that contains it."""
    chunk = next(chunk for chunk in reversed(chunks) if chunk.records < record)
    with open(path, "rb") as file:
        file.seek(chunk.begin)
        ends, _ = _record_ends(file.read(_CHUNK), chunk.quotes)
    place = record - chunk.records - 1
    return chunk.begin + int(ends[place]) + 1 if place < len(ends) else size  # the last line may have no break


def _record_ends(data: bytes, quotes: int) -> tuple[np.ndarray, int]:
    """Positions of line breaks outside quotes, and the number of quotes so far."""
    chunk = np.frombuffer(data, dtype=np.uint8)
    breaks, marks = np.flatnonzero(chunk == _NEWLINE), np.flatnonzero(chunk == _QUOTE)
    outside = (quotes + np.searchsorted(marks, breaks)) % 2 == 0
    return breaks[outside], quotes + len(marks)
