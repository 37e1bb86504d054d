"""Strategies for the texts and bytes of tables."""

import io

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import parquet

ODD_NUMBERS = (
    *("0", "-0", "1", "-1", "2", "1e-300", "1e300", "1e308", "-1e308", "1e400", "5e-324", "0x1F", "1_000", "1,5", "०१"),
    *("9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616"),
    *("9" * 400, "nan", "NaN", "inf", "-inf", "Infinity", "NA", "null", "None", "", " ", "True", "false", "1e", "--1"),
)
ODD_TEXTS = (
    *("", " ", "a", "missing", "a=b", "Unnamed: 0", "[/b]", "[red]x", "{}", "%s", "\u202e", "\x1b[31m", "é", "😀"),
    *("a" * 300, "2024-01-01", "=1+1", "-", "--", "0", "nan", "a.1", "\ud7ff", "a\tb", "<script>", "\u2028"),
)
numbers = st.floats(-100, 100).map(repr) | st.integers(-3, 3).map(str)
cells = st.one_of(numbers, numbers, st.sampled_from(ODD_NUMBERS), st.sampled_from(ODD_TEXTS), st.text(max_size=6))
names = st.sampled_from(["a", "b", "y", "y", *ODD_TEXTS]) | st.text(max_size=6)


def quoted(text: str) -> str:
    """A field as CSV writes it."""
    special = any(mark in text for mark in ',"\r\n')
    return '"' + text.replace('"', '""') + '"' if special else text


@st.composite
def regular_csv(draw: st.DrawFn) -> bytes:
    """A table that is nearly right: columns of one kind each, with a target ``y``."""
    rows = draw(st.integers(1, 12))
    headers = ["y", *draw(st.lists(names, min_size=1, max_size=3))]
    columns = [[header, *draw(_column(rows))] for header in headers]
    lines = [",".join(quoted(field) for field in row) for row in zip(*columns, strict=True)]
    return "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"


def _column(rows: int) -> st.SearchStrategy[list[str]]:
    fixed = {"min_size": rows, "max_size": rows}
    few = st.lists(cells, min_size=1, max_size=3).flatmap(lambda kept: st.lists(st.sampled_from(kept), **fixed))
    return st.one_of(st.lists(numbers, **fixed), st.lists(numbers, **fixed), few, st.lists(cells, **fixed))


@st.composite
def ragged_csv(draw: st.DrawFn) -> bytes:
    """Rows of any length, with any separators, quotes, line ends and encodings."""
    mark = draw(st.sampled_from([",", ",", ",", ";", "\t", "|"]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r", "\n\n"]))
    field = st.one_of(cells, names, cells.map(lambda text: f'"{text}'), cells.map(quoted))
    rows = draw(st.lists(st.lists(field, max_size=4), max_size=6))
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-32"]))
    body = end.join(mark.join(row) for row in rows).encode(encoding, "ignore")
    return draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\x00", b"y,a\n"])) + body


csv_bytes = st.one_of(regular_csv(), regular_csv(), ragged_csv(), st.binary(max_size=60))

_KINDS: tuple[st.SearchStrategy[object], ...] = (
    *(st.floats(-5, 5), st.floats(), st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1), st.booleans()),
    *(st.text(max_size=4), st.binary(max_size=4), st.datetimes(), st.dates(), st.timedeltas(), st.times()),
    *(st.decimals(-5, 5, allow_nan=False, places=2), st.lists(st.integers(0, 3), max_size=2), st.none()),
    st.fixed_dictionaries({"k": st.integers(0, 3)}),
)


@st.composite
def parquet_bytes(draw: st.DrawFn) -> bytes:
    """A Parquet file with columns of any type, missing values among them."""
    rows = draw(st.integers(0, 8))
    headers = draw(st.lists(st.sampled_from(["y", "a", "b", ""]) | st.text(max_size=3), min_size=1, max_size=4))
    arrays = [_array([draw(kind | st.none()) for _ in range(rows)]) for kind in draw(_kinds(len(headers)))]
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_arrays(arrays, names=["y", *headers][: len(arrays)]), sink)
    return sink.getvalue()


def _kinds(count: int) -> st.SearchStrategy[list[st.SearchStrategy[object]]]:
    return st.lists(st.sampled_from(_KINDS), min_size=count, max_size=count)


def _array(values: list[object]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else str(value).encode("utf-8", "replace") for value in values])


@st.composite
def npy_bytes(draw: st.DrawFn) -> bytes:
    """A .npy file of any type and shape, whole or not."""
    shape = draw(st.sampled_from([(0,), (5,), (6, 3), (6, 1), (0, 3), (2, 2, 2), (), (6, 2)]))
    kind = draw(st.sampled_from(["f8", "f4", "i8", "u1", "?", "c16", "U3", "S2", "M8[s]", "f2", ">f8", "V4"]))
    array = np.zeros(shape, dtype=kind)
    if array.dtype.kind in "fiu" and array.size:
        array.flat = draw(st.lists(st.integers(0, 5), min_size=array.size, max_size=array.size))
    sink = io.BytesIO()
    np.save(sink, array)
    raw = bytearray(sink.getvalue())
    if draw(st.booleans()):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw[: draw(st.integers(0, len(raw)))] if draw(st.integers(0, 3)) == 0 else raw)
