"""Row ranges of files: every record once, line breaks within quotes included."""

from itertools import pairwise

import pytest

from bidual.distributed import shards
from bidual.distributed.shards import check_file, record_offsets, row_range
from bidual.runtime.ranks import Ranks

RECORDS = ['a,"b"\n', '1,"two\nlines"\n', '2,"say ""no""\n"\n', "3,plain\n", '4,""\n', "5,end"]


@pytest.mark.parametrize("chunk", [1, 3, 7, 1000])
@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_records_are_cut_between_lines_only(tmp_path, monkeypatch, chunk, parts):
    monkeypatch.setattr(shards, "_CHUNK", chunk)
    for tail in ("", "\n"):
        text = "".join(RECORDS) + tail
        (tmp_path / "t.csv").write_text(text)
        edges = record_offsets(tmp_path / "t.csv", parts)
        pieces = [text[begin:end] for begin, end in pairwise(edges)]
        assert text[: edges[0]] == RECORDS[0]
        assert "".join(pieces) == text[edges[0] :]
        starts = [sum(map(len, RECORDS[: 1 + 5 * k // parts])) for k in range(parts)]
        assert edges[:-1] == starts


def test_fewer_rows_than_ranks_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("".join(RECORDS))
    with pytest.raises(ValueError, match="has 5 rows below its header, too few for 6 ranks"):
        record_offsets(tmp_path / "t.csv", 6)
    with pytest.raises(ValueError, match="3 ranks are more than the 2 rows"):
        row_range(2, Ranks(1, 3))
    with pytest.raises(ValueError, match=r"use \.csv, \.npy or \.parquet"):
        check_file(__file__)


def test_rows_are_spread_evenly():
    parts = [row_range(11, Ranks(rank, 3)) for rank in range(3)]
    assert [(part.start, part.stop) for part in parts] == [(0, 3), (3, 7), (7, 11)]
